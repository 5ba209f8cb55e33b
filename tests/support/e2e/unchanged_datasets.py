"""Programs with datasets that stock TensorFlow runs, for `test_unchanged.py`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

X = np.array([1.0, 2.0, 3.0], np.float32)
PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def datasets() -> Any:
    def elements(function: Callable[[tf.Tensor], Any], **options: Any) -> Any:
        dataset = tf.data.Dataset.range(5).map(function, **options)
        return [str(dataset.element_spec), list(dataset.as_numpy_iterator())]

    def py(i: tf.Tensor) -> tf.Tensor:
        return tf.py_function(lambda i: tf.range(i), [i], tf.int64)

    def numpy(i: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda i: i * 2, [i], tf.int64)

    return [elements(py), elements(numpy), elements(numpy, num_parallel_calls=2)]


@program
def dataset_from_generator() -> Any:
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([[1, 2], [3]]), output_signature=tf.TensorSpec([None], tf.int32)
    )
    return list(dataset.as_numpy_iterator())


@program
def datasets_from_generators_of_composite_tensors() -> Any:
    ragged = tf.data.Dataset.from_generator(
        lambda: iter([tf.ragged.constant([[1], [2, 3]]), tf.ragged.constant([[4]])]),
        output_signature=tf.RaggedTensorSpec([None, None], tf.int32),
    )
    sparse = tf.data.Dataset.from_generator(
        lambda: iter([(tf.sparse.from_dense([[1.0, 0.0]]), [2])]),
        output_signature=(tf.SparseTensorSpec([1, 2], tf.float32), tf.TensorSpec([1], tf.int32)),
    )
    return [
        [value.to_list() for value in ragged],
        [(tf.sparse.to_dense(value), other) for value, other in sparse],
    ]


@program
def handles() -> Any:
    def ragged_variant(n: tf.Tensor) -> tf.Tensor:
        return tf.data.experimental.to_variant(tf.data.Dataset.range(n))

    variable = tf.Variable(X)

    @tf.function
    def f(n: tf.Tensor) -> Any:
        variant = tf.py_function(ragged_variant, [n], tf.variant)
        spec = tf.TensorSpec([], tf.int64)
        dataset = tf.data.experimental.from_variant(variant, spec)
        total = dataset.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)
        handle = tf.py_function(lambda: variable.handle, [], tf.resource)
        return total, tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    return f(tf.constant(5, tf.int64))
