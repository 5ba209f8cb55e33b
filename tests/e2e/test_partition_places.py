"""Tests of the places and callers of partitioned functions, and of lists that grow in them."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_close,
    assert_same,
    compilations,
    distinct,
    gradient_of,
    jitted,
    partitioned,
    plain,
    stateless_py_func,
    to_numpy,
)


def test_clusters_are_compiled_once_for_each_shape(every_cluster: None) -> None:
    """Inputs of shapes 4, 4, 6, 4, and results of 3, 3, 4, 3 elements; other values each time."""

    @tf.function(jit_compile=True, reduce_retracing=True)
    def of_shapes(x: tf.Tensor) -> tf.Tensor:
        return distinct(tf.sin(x)) * 2.0

    for values in ([1, 2, 2, 3], [2, 4, 4, 5], [1, 2, 3, 3, 3, 4], [7, 7, 8, 9]):
        x = np.array(values, np.float32)
        np.testing.assert_allclose(of_shapes(x), np.unique(np.sin(x)) * 2.0, rtol=1e-6)
    assert compilations("of_shapes") == [1] * 4  # in two traces, for the sizes 4 and 6


def test_loops_without_host_ops_are_compiled_whole() -> None:
    def square_often(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * y), (0, x))[1]

    @jitted
    def of_loops(x: tf.Tensor) -> tf.Tensor:
        return square_often(distinct(square_often(x)))

    np.testing.assert_array_equal(of_loops(tf.ones([4])), [1.0])
    explained = str(hostcall.explain(of_loops, tf.ones([4])))
    assert len(re.findall(r"compiled \S (?:Stateless)?While", explained)) == 2
    assert compilations("of_loops") == [1, 1]


# TensorArrays that grow in partitioned functions: in XLA's programs they silently do not.

PAIR = tf.constant([1.0, 2.0])


def _half(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda v: v / 2, [x], tf.float32), x.shape)


def _array(size: int = 0) -> Any:
    return tf.TensorArray(tf.float32, size, dynamic_size=True, clear_after_read=False)


def in_a_loop_without_calls(x: tf.Tensor) -> Any:
    y = _half(x)
    _, array = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, array: (i + 1, array.write(i, y * tf.cast(i, tf.float32))),
        [tf.constant(0), _array()],
    )
    return array.stack(), array.size()


def in_a_loop_with_calls(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, array: Any, y: tf.Tensor) -> Any:
        y = _half(y) + 1.0
        return i + 1, array.write(i, y), y

    _, array, y = tf.while_loop(lambda i, *_: i < 3, body, [tf.constant(0), _array(), x])
    return array.stack(), array.size(), y


def in_functions(x: tf.Tensor) -> Any:
    grow = tf.function(lambda y: _array().write(1, y).write(0, y * 2.0).stack())
    return grow(x) + grow(_half(x))


def scattered(x: tf.Tensor) -> Any:
    array = _array(1).scatter([0, 2], tf.stack([x, _half(x)])).write(3, x).write(1, x + 1.0)
    return array.gather([2, 0, 3]), array.stack(), array.size()


def its_gradient(x: tf.Tensor) -> Any:
    def total(x: tf.Tensor) -> tf.Tensor:
        half = tf.py_function(lambda v: v / 2.0, [x], tf.float32)
        half.set_shape([2])
        return tf.reduce_sum(_array().write(0, x).write(1, half * x).stack() ** 2)

    return gradient_of(total, x)


@pytest.mark.parametrize(
    "program",
    [in_a_loop_without_calls, in_a_loop_with_calls, in_functions, scattered, its_gradient],
)
def test_arrays_grow_as_in_plain_graphs(program: Callable[..., Any]) -> None:
    assert_same(to_numpy(partitioned(program)(PAIR)), to_numpy(plain(program)(PAIR)))


def test_explain_says_that_a_list_that_grows_is_on_the_host() -> None:
    explained = str(hostcall.explain(partitioned(in_a_loop_without_calls), PAIR))
    assert "XLA would not let the list grow" in explained


def test_a_list_of_known_size_is_compiled() -> None:
    @partitioned
    def program(x: tf.Tensor) -> Any:
        array = tf.TensorArray(tf.float32, 2).write(0, _half(x)).write(1, x)
        return tf.sin(array.stack())

    explained = str(hostcall.explain(program, PAIR))
    assert "2 TensorListSetItem, TensorListStack, Sin" in explained  # the ops of one cluster
    np.testing.assert_allclose(program(PAIR), np.sin([[0.5, 1.0], [1.0, 2.0]]), rtol=1e-6)


# Partitioned functions that TensorFlow itself calls: datasets, iterators, sessions, servers.

v1 = tf.compat.v1


def negated(x: tf.Tensor, op: Any = tf.numpy_function) -> tf.Tensor:
    return tf.ensure_shape(op(lambda value: -value, [x], tf.float32), x.shape)


def nested(x: tf.Tensor) -> tf.Tensor:
    """Callbacks one after the other: in a function, in a loop and in what it calls."""
    inner = tf.function(lambda x: negated(tf.sin(x)))
    start = [tf.constant(0), inner(negated(x))]
    return tf.cos(
        tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, negated(inner(y))), start)[1]
    )


def side_by_side(x: tf.Tensor) -> tf.Tensor:
    """Callbacks that may overlap, so that the function does not run on one thread."""
    calls = negated(tf.cos(x), stateless_py_func) + negated(x, stateless_py_func)
    return calls + negated(tf.sin(x))


def numbers() -> Any:
    return tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32))


def by_iterator(function: Callable[..., Any], make: Callable[..., Any], **config: Any) -> Any:
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(**config)) as session:
        iterator = make(numbers().map(function))
        value = iterator.get_next()
        if iterator.initializer is not None:
            session.run(iterator.initializer)
        return [session.run(value) for _ in range(2)]


def by_several_devices(function: Callable[..., Any]) -> Any:
    from tensorflow.python.data.ops import multi_device_iterator_ops as ops  # no public name

    def make(dataset: Any) -> Any:
        return ops.MultiDeviceIterator(dataset, ["/cpu:0", "/cpu:1"])

    return by_iterator(function, make, device_count={"CPU": 2})


def by_two_sessions(function: Callable[..., Any]) -> Any:
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default():
        iterator = v1.data.make_initializable_iterator(numbers().map(function), "shared")
        value = iterator.get_next()
        with v1.Session(server.target) as one, v1.Session(server.target) as other:
            one.run(iterator.initializer)
            return [one.run(value), other.run(value)]


def in_windows(function: Callable[..., Any]) -> Any:
    def key(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(function(x) > 0.0, tf.int64)

    return numbers().group_by_window(key, lambda _, rows: rows.batch(4), window_size=4)


def by_generator(function: Callable[..., Any]) -> Any:
    spec = tf.TensorSpec([], tf.float32)
    return tf.data.Dataset.from_generator(
        lambda: iter([function(tf.constant(2.0))]), output_signature=spec
    )


def tensors(value: tf.Tensor) -> Any:
    return tf.data.Dataset.from_tensors(value)


CALLERS: dict[str, Callable[[Any], Any]] = {
    "an iterator": lambda f: by_iterator(f, v1.data.make_initializable_iterator),
    "an iterator for several devices": by_several_devices,
    "two sessions of a server": by_two_sessions,
    "parallel map": lambda f: numbers().map(f, num_parallel_calls=4),
    "filter": lambda f: numbers().filter(lambda x: tf.abs(f(x)) > 0.64),
    "scan": lambda f: numbers().scan(0.0, lambda state, x: (state + f(x), state * f(x))),
    "reduce": lambda f: [numbers().reduce(0.0, lambda state, x: state + f(x))],
    "flat_map": lambda f: numbers().flat_map(lambda x: tensors(f(x))),
    "interleave": lambda f: numbers().interleave(lambda x: tensors(f(x)), num_parallel_calls=2),
    "group_by_window": in_windows,
    "from_generator": by_generator,
    "a py_function": lambda f: [plain(lambda x: tf.py_function(f, [x], tf.float32))(2.0)],
    "map_fn": lambda f: [plain(lambda x: tf.map_fn(f, x))(tf.constant([1.0, 2.0]))],
}


@pytest.mark.usefixtures("partition_route")
@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
@pytest.mark.parametrize("program", [nested, side_by_side])
@pytest.mark.parametrize("caller", CALLERS)
def test_partitioned_functions_called_by(caller: str, program: Callable[..., Any]) -> None:
    expected, found = (
        to_numpy([*CALLERS[caller](tf.function(program, jit_compile=jit_compile))])
        for jit_compile in (False, True)
    )
    assert len(expected) == len(found) > 0
    assert_close(found, expected)
