"""hostcall._ops.emit.gradients: first derivatives are those of a function without script ops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
import tests.support.gradients as g
from tests.support.helpers import each_mode, plain


def check(place: Any, mode: Any, program: Callable[..., Any], x: tf.Tensor) -> None:
    """`program` takes what wraps a function, and then its argument."""
    (actual,) = place(mode, lambda x: program(g.by_py_function, x))(x)
    (expected,) = place(mode, lambda x: program(g.unwrapped, x))(x)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@g.each_place
@each_mode
@g.each_size
def test_one_input_of_any_size(place: Any, mode: Any, size: int) -> None:
    x = tf.linspace(-2.0, 2.0, size) if size > 1 else tf.constant([0.5])
    check(place, mode, lambda wrap, x: wrap(lambda x: tf.sin(x) * tf.exp(x), x), x)


@g.each_place
@each_mode
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_each_float_dtype(place: Any, mode: Any, dtype: str) -> None:
    def program(wrap: Any, x: tf.Tensor) -> tf.Tensor:
        return tf.cast(wrap(lambda x: x * x, tf.cast(x, dtype)), tf.float32)

    check(place, mode, program, tf.constant([1.0, 2.5]))


@each_mode
def test_a_complex_input(mode: Any) -> None:
    def program(wrap: Any, x: tf.Tensor) -> tf.Tensor:
        z = tf.complex(x, 2.0 * x)
        return tf.math.real(wrap(lambda z: z * z * z, z))

    check(g.inside, mode, program, tf.constant([1.0, 2.5]))


@each_mode
@pytest.mark.parametrize("by_tape", [True, False])
def test_the_gradient_of_an_integer_is_none(mode: Any, by_tape: bool) -> None:
    @mode
    def program(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch([x])
            y = g.by_py_function(lambda x, n: x * tf.cast(n, tf.float32), x, n)
        gradients = tape.gradient(y, [x, n]) if by_tape else tf.gradients(y, [x, n])
        assert gradients[1] is None
        return gradients[0]

    np.testing.assert_array_equal(program(tf.constant([2.0]), tf.constant([3])), [3.0])


@each_mode
def test_slices_become_a_tensor(mode: Any) -> None:
    table, rows = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tf.constant([2, 0, 2])
    spec = tf.TensorSpec([3, 2], tf.float32)

    def gathered(table: tf.Tensor) -> tf.Tensor:
        return tf.gather(table, rows) ** 2

    (slope,) = g.inside(mode, lambda table: tf.py_function(gathered, [table], spec))(table)
    (expected,) = g.inside(plain, gathered)(table)
    np.testing.assert_array_equal(slope, tf.convert_to_tensor(expected))
