"""Partitioned functions that TensorFlow itself calls: datasets, iterators, sessions, servers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import stateless_py_func, to_numpy

v1 = tf.compat.v1


def _negative(value: Any) -> Any:
    return -value


def _op(x: tf.Tensor, op: Any = tf.numpy_function) -> tf.Tensor:
    return tf.ensure_shape(op(_negative, [x], tf.float32), x.shape)


def nested(x: tf.Tensor) -> tf.Tensor:
    """Callbacks one after the other: in a function, in a loop and in what it calls."""
    inner = tf.function(lambda x: _op(tf.sin(x)))

    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, _op(inner(y))

    return tf.cos(tf.while_loop(lambda i, y: i < 2, body, [tf.constant(0), inner(_op(x))])[1])


def side_by_side(x: tf.Tensor) -> tf.Tensor:
    """Callbacks that may overlap, so that the function does not run on one thread."""
    return _op(tf.sin(x)) + _op(tf.cos(x), stateless_py_func) + _op(x, stateless_py_func)


def _dataset(function: Callable[..., Any]) -> Any:
    return tf.data.Dataset.range(4).map(lambda i: function(tf.cast(i, tf.float32)))


def _by_iterator(function: Callable[..., Any], make: Callable[..., Any], **config: Any) -> Any:
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(**config)) as session:
        iterator = make(_dataset(function))
        value = iterator.get_next()
        if iterator.initializer is not None:
            session.run(iterator.initializer)
        return [session.run(value) for _ in range(2)]


def _shared(dataset: Any) -> Any:
    return v1.data.make_initializable_iterator(dataset, shared_name="shared")


def _multi_device(dataset: Any) -> Any:
    from tensorflow.python.data.ops import multi_device_iterator_ops as ops  # no public name

    return ops.MultiDeviceIterator(dataset, ["/cpu:0", "/cpu:1"])


def _by_two_sessions(function: Callable[..., Any]) -> Any:
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default():
        iterator = _shared(_dataset(function))
        value = iterator.get_next()
        with v1.Session(server.target) as one, v1.Session(server.target) as other:
            one.run(iterator.initializer)
            return [one.run(value), other.run(value)]


def _windows(function: Callable[..., Any]) -> Any:
    def key(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(function(x) > 0.0, tf.int64)

    numbers = tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32))
    return [*numbers.group_by_window(key, lambda _, rows: rows.batch(4), window_size=4)]


def _numbers() -> Any:
    return tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32))


def _tensors(value: tf.Tensor) -> Any:
    return tf.data.Dataset.from_tensors(value)


CALLERS: dict[str, Callable[[Any], Any]] = {
    "an iterator that is shared": lambda f: _by_iterator(f, _shared),
    "an iterator that starts by itself": lambda f: _by_iterator(
        f, lambda dataset: v1.data.make_initializable_iterator(dataset)
    ),
    "an iterator for several devices": lambda f: _by_iterator(
        f, _multi_device, device_count={"CPU": 2}
    ),
    "two sessions of a server": _by_two_sessions,
    "map": lambda f: [*_numbers().map(f)],
    "parallel map": lambda f: [*_numbers().map(f, num_parallel_calls=4)],
    "filter": lambda f: [*_numbers().filter(lambda x: tf.abs(f(x)) > 0.64)],
    "scan": lambda f: [*_numbers().scan(0.0, lambda state, x: (state + f(x), state * f(x)))],
    "reduce": lambda f: [_numbers().reduce(0.0, lambda state, x: state + f(x))],
    "flat_map": lambda f: [*_numbers().flat_map(lambda x: _tensors(f(x)))],
    "interleave": lambda f: [
        *_numbers().interleave(lambda x: _tensors(f(x)), num_parallel_calls=2)
    ],
    "group_by_window": _windows,
    "from_generator": lambda f: [
        *tf.data.Dataset.from_generator(
            lambda: iter([f(tf.constant(2.0))]), output_signature=tf.TensorSpec([], tf.float32)
        )
    ],
    "a py_function": lambda f: [
        tf.function(lambda x: tf.py_function(f, [x], tf.float32))(tf.constant(2.0))
    ],
    "map_fn": lambda f: [tf.function(lambda x: tf.map_fn(f, x))(tf.constant([1.0, 2.0]))],
}


@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
@pytest.mark.parametrize("program", [nested, side_by_side])
@pytest.mark.parametrize("caller", CALLERS)
def test_partitioned_functions_called_by(caller: str, program: Callable[..., Any]) -> None:
    with hostcall.scope(route="partition"):
        plain, jitted = (
            to_numpy(CALLERS[caller](tf.function(program, jit_compile=jit_compile)))
            for jit_compile in (False, True)
        )
    assert len(plain) == len(jitted) > 0
    for one, other in zip(plain, jitted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
