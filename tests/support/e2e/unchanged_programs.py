"""Programs that stock TensorFlow runs; `test_unchanged.py` runs them with hostcall and without."""

import collections
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

X = np.array([1.0, 2.0, 3.0], np.float32)
PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def increment(x: Any) -> Any:
    return x + np.float32(1.0)


@program
def graph_of_each_kind() -> Any:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        return [
            tf.numpy_function(increment, [x], tf.float32),
            tf.py_function(increment, [x], tf.float32),
            tf.compat.v1.py_func(increment, [x], tf.float32),
            tf.compat.v1.py_func(increment, [x], tf.float32, stateful=False),
            tf.numpy_function(lambda: (np.int32(1), np.float64(2.0)), [], [tf.int32, tf.float64]),
            tf.py_function(lambda x: (x, x * 2.0), [x], (tf.float32, tf.float32)),
            tf.numpy_function(increment, [x], tf.float32, name="mine"),
            tf.py_function(increment, [x], tf.float32, name="yours"),
        ]

    traced = f.get_concrete_function(X)
    shapes = [str(y.shape) for y in tf.nest.flatten(traced.structured_outputs)]
    return f(X), [(op.name, op.type) for op in traced.graph.get_operations()], shapes


@program
def strings_of_unknown_shapes() -> Any:
    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)])
    def f(x: tf.Tensor) -> Any:
        unique = tf.numpy_function(np.unique, [x], tf.string)
        return tf.shape(unique), tf.py_function(lambda v: v[:1], [unique], tf.string)

    return [f(tf.constant(x)) for x in (["a", "bc", "a"], [["b"], ["c"]], "text")]


@program
def arguments() -> Any:
    def kinds(*args: Any) -> Any:
        return str([(type(a).__name__, getattr(a, "shape", ""), np.asarray(a)) for a in args])

    pair = collections.namedtuple("pair", "a b")

    def outcomes(op: Callable[..., Any]) -> Any:
        inputs: list[Callable[[], Any]] = [
            lambda: [X, 1.5, 2, True, "text", np.str_("text"), 1j],
            lambda: (X.astype(">f4"), [1, 2.5], [["a"], ["b"]], []),
            lambda: [tf.constant(X), tf.Variable(X)],
            lambda: [[tf.constant(1.0), tf.constant(2.0)], (tf.constant(1.0), 2.0)],
            lambda: [[tf.Variable(1.0), 2.0]],
            lambda: [pair(1.0, 2.0), pair(3, 4)],
            lambda: (x for x in (X, 2.0)),
            lambda: map(float, (1, 2)),
            lambda: {"a": X}.values(),
            lambda: collections.deque([X, 1]),
            lambda: range(3),
            lambda: np.ones((2, 2)),
            lambda: [tf.TensorShape([1, 2])],
        ]

        def calling(inp: Callable[[], Any]) -> Callable[[], Any]:
            return lambda: op(kinds, inp(), tf.string)

        calls = [*map(calling, inputs)]
        return [[call() for call in calls], [tf.function(call)() for call in calls[:2] + calls[5:]]]

    return [outcomes(op) for op in (tf.numpy_function, tf.py_function)]


@program
def script_ops_between_what_can_be_clustered() -> Any:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        x = x * 2.0 + 1.0
        kept = tf.numpy_function(lambda x: x[x > 3.5], [x], tf.float32)
        return tf.reduce_sum(kept * 2.0 + 1.0)

    @tf.function
    def f(x: tf.Tensor) -> Any:
        for _ in tf.range(3):
            unique = tf.py_function(lambda x: tf.unique(x)[0], [x * 3.0 - 1.0], tf.float32)
            x = x + tf.reduce_sum(unique * 0.5 + 1.0) + inner(x)
        if inner(x) > 0.0:
            x = x * 2.0 + tf.reduce_max(tf.numpy_function(np.cumsum, [x + 1.0], tf.float32))
        return x

    return f(X)


def raised(call: Callable[[], Any]) -> Any:
    """Return the class of the error of a call, and the first line that names an exception."""
    try:
        return str(call())
    except Exception as error:
        return type(error).__name__, re.findall(r"\w+: '?text\b", str(error))[:1]


@program
def errors() -> Any:
    def failing(kind: type[Exception], op: Callable[..., Any]) -> Callable[[], Any]:
        def fail(x: Any) -> Any:
            raise kind("text")

        return tf.function(lambda: op(fail, [X], tf.float32))

    kinds = [ValueError, TypeError, StopIteration, MemoryError, NotImplementedError, KeyError]
    kinds += [RuntimeError, UnicodeError]
    wrong: list[Callable[[], Any]] = [
        lambda: tf.py_function(increment, [X]),
        lambda: tf.py_function(increment, Tout=tf.float32),
        lambda: tf.numpy_function(increment, [X]),
        lambda: tf.py_function("no function", [X], tf.float32),
        lambda: tf.numpy_function(3, [X], tf.float32),
        lambda: tf.function(lambda x: tf.py_function(3, [x], tf.float32))(X),
    ]
    ops = (tf.numpy_function, tf.py_function)
    return [raised(call) for call in wrong + [failing(kind, op) for op in ops for kind in kinds]]


@program
def datasets() -> Any:
    def elements(function: Callable[[tf.Tensor], Any], **options: Any) -> Any:
        dataset = tf.data.Dataset.range(5).map(function, **options)
        return [str(dataset.element_spec), list(dataset.as_numpy_iterator())]

    def numpy(i: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda i: i * 2, [i], tf.int64)

    py = elements(lambda i: tf.py_function(tf.range, [i], tf.int64))
    return [py, elements(numpy), elements(numpy, num_parallel_calls=2)]


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
    def variant(n: tf.Tensor) -> tf.Tensor:
        return tf.data.experimental.to_variant(tf.data.Dataset.range(n))

    variable, spec = tf.Variable(X), tf.TensorSpec([], tf.int64)

    @tf.function
    def f(n: tf.Tensor) -> Any:
        made = tf.py_function(variant, [n], tf.variant)
        dataset = tf.data.experimental.from_variant(made, spec)
        total = dataset.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)
        handle = tf.py_function(lambda: variable.handle, [], tf.resource)
        return total, tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    return f(tf.constant(5, tf.int64))
