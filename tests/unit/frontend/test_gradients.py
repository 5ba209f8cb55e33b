"""hostcall._frontend.gradients: first derivatives are those of a function without script ops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
from tests.support.gradients import SIZES
from tests.support.helpers import each_mode, gradient_of, plain


def wrap(function: Callable[..., Any], *args: tf.Tensor) -> tf.Tensor:
    """The function as a py_function with one result of its first argument's shape."""
    result = tf.py_function(function, args, args[0].dtype)
    result.set_shape(args[0].shape)
    return result


def inside(mode: Any, function: Callable[..., Any], x: tf.Tensor) -> Any:
    """The gradient of a function, the tape inside of the tf.function."""
    return mode(lambda x: gradient_of(function, x))(x)


def outside(mode: Any, function: Callable[..., Any], x: tf.Tensor) -> Any:
    """The same, the tape outside of the tf.function."""
    return gradient_of(mode(function), x)


each_place = pytest.mark.parametrize("place", [inside, outside])


def check(place: Any, mode: Any, program: Callable[..., Any], x: tf.Tensor) -> None:
    """`program` takes what wraps a function, and then its argument."""
    actual = place(mode, lambda x: program(wrap, x), x)
    expected = place(mode, lambda x: program(lambda f, x: f(x), x), x)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(
        tf.convert_to_tensor(actual), tf.convert_to_tensor(expected), rtol=1e-5, atol=1e-6
    )


@each_place
@each_mode
@pytest.mark.parametrize("size", SIZES)
def test_one_input_of_any_size(place: Any, mode: Any, size: int) -> None:
    x = tf.linspace(-2.0, 2.0, size) if size > 1 else tf.constant([0.5])
    check(place, mode, lambda wrap, x: wrap(lambda x: tf.sin(x) * tf.exp(x), x), x)


@each_place
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

    check(inside, mode, program, tf.constant([1.0, 2.5]))


@each_mode
@pytest.mark.parametrize("by_tape", [True, False])
def test_the_gradient_of_an_integer_is_none(mode: Any, by_tape: bool) -> None:
    @mode
    def program(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch([x])
            y = wrap(lambda x, n: x * tf.cast(n, tf.float32), x, n)
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

    gradient = inside(mode, lambda table: tf.py_function(gathered, [table], spec), table)
    np.testing.assert_array_equal(gradient, tf.convert_to_tensor(inside(plain, gathered, table)))


@each_mode
def test_the_callbacks_variables_stay_out_of_the_users_tape(mode: Any) -> None:
    hidden, own = tf.Variable(2.0), tf.Variable([3.0, 4.0])
    program = mode(lambda: wrap(lambda x: x * hidden, own * 1.0))
    with tf.GradientTape() as tape:
        y = program()
    assert [variable.ref() for variable in tape.watched_variables()] == [own.ref()]
    np.testing.assert_array_equal(tape.gradient(y, own), [2.0, 2.0])
