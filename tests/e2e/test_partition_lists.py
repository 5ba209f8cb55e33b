"""TensorArrays that grow in partitioned functions: in XLA's programs they silently do not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_same, to_numpy

X = tf.constant([1.0, 2.0])


def _half(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda v: v / 2, [x], tf.float32), x.shape)


def _array(size: int = 0) -> Any:
    return tf.TensorArray(tf.float32, size, dynamic_size=True, clear_after_read=False)


def one_by_one(x: tf.Tensor) -> Any:
    array = _array(1).write(0, x).write(2, _half(x)).write(1, x + 1.0)
    return array.stack(), array.size()


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


def in_a_function(x: tf.Tensor) -> Any:
    @tf.function
    def grow(y: tf.Tensor) -> Any:
        return _array().write(1, y).write(0, y * 2.0).stack()

    return grow(x) + grow(_half(x))


def scattered(x: tf.Tensor) -> Any:
    array = _array().scatter([0, 2], tf.stack([x, _half(x)])).write(3, x)
    return array.gather([2, 0, 3]), array.size()


def its_gradient(x: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        half = tf.py_function(lambda v: v / 2.0, [x], tf.float32)
        half.set_shape([2])
        array = _array().write(0, x).write(1, half * x)
        y = tf.reduce_sum(array.stack() ** 2)
    return tape.gradient(y, x)


PROGRAMS = [
    one_by_one,
    in_a_loop_without_calls,
    in_a_loop_with_calls,
    in_a_function,
    scattered,
    its_gradient,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_arrays_grow_as_in_plain_graphs(program: Callable[..., Any]) -> None:
    expected = to_numpy(tf.function(program)(X))
    with hostcall.scope(route="partition"):
        actual = to_numpy(tf.function(program, jit_compile=True)(X))
    assert_same(actual, expected)


def test_explain_says_that_a_list_that_grows_is_on_the_host() -> None:
    with hostcall.scope(route="partition"):
        program = tf.function(in_a_loop_without_calls, jit_compile=True)
        explained = str(hostcall.explain(program, X))
    assert "XLA would not let the list grow" in explained


def test_a_list_of_known_size_is_compiled() -> None:
    def program(x: tf.Tensor) -> Any:
        array = tf.TensorArray(tf.float32, 2).write(0, _half(x)).write(1, x)
        return tf.sin(array.stack())

    with hostcall.scope(route="partition"):
        jitted = tf.function(program, jit_compile=True)
        explained = str(hostcall.explain(jitted, X))
    assert "2 TensorListSetItem, TensorListStack, Sin" in explained  # the ops of one cluster
    np.testing.assert_allclose(jitted(X), np.sin([[0.5, 1.0], [1.0, 2.0]]), rtol=1e-6)
