"""hostcall._frontend.gradients: first derivatives are those of a function without script ops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
from tests.support.helpers import MODES, jitted, plain

SIZES = [1, 4, 1000, 65_536, 300_000]

each_mode = pytest.mark.parametrize("mode", MODES)


def wrap(function: Callable[..., Any], *args: tf.Tensor) -> tf.Tensor:
    """The function as a py_function with one result of its first argument's shape."""
    result = tf.py_function(function, args, args[0].dtype)
    result.set_shape(args[0].shape)
    return result


def inside(mode: Any, function: Callable[..., Any], *args: Any) -> Any:
    """The gradients of the sum of `function`, the tape inside of the tf.function."""

    @mode
    def program(*args: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(args)
            y = tf.reduce_sum(function(*args) * 3.0)
        return tape.gradient(y, args)

    return program(*args)


def outside(mode: Any, function: Callable[..., Any], *args: Any) -> Any:
    """The same, the tape outside of the tf.function."""
    program = mode(lambda *args: tf.reduce_sum(function(*args) * 3.0))
    with tf.GradientTape() as tape:
        tape.watch(args)
        y = program(*args)
    return tape.gradient(y, args)


each_place = pytest.mark.parametrize("place", [inside, outside])


def check(place: Any, mode: Any, program: Callable[..., Any], *args: Any) -> None:
    """`program` takes what wraps a function, and then its arguments."""
    wrapped = place(mode, lambda *args: program(wrap, *args), *args)
    unwrapped = place(mode, lambda *args: program(lambda f, *args: f(*args), *args), *args)
    for actual, expected in zip(wrapped, unwrapped, strict=True):
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
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
def test_several_inputs(place: Any, mode: Any) -> None:
    x, y = tf.constant([1.0, 2.0]), tf.constant([[3.0, 4.0], [5.0, 6.0]])
    check(place, mode, lambda wrap, x, y: wrap(lambda x, y: tf.linalg.matvec(y, x) * x, x, y), x, y)


@each_place
@each_mode
def test_a_chain_of_calls_of_one_function(place: Any, mode: Any) -> None:
    def half_sine(x: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.sin(x)

    def program(wrap: Any, x: tf.Tensor) -> tf.Tensor:
        y = wrap(half_sine, x)
        z = wrap(half_sine, y * 2.0) + wrap(half_sine, x * 3.0)
        return wrap(half_sine, z) * y

    check(place, mode, program, tf.constant([0.3, -1.0]))


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


@each_place
@each_mode
def test_integers_beside_floats_have_no_gradient(place: Any, mode: Any) -> None:
    n = tf.constant([2, 3])

    def program(x: tf.Tensor) -> tf.Tensor:
        return wrap(lambda x, n: x ** tf.cast(n, tf.float32), x, n)

    (gradient,) = place(mode, program, tf.constant([2.0, 2.0]))
    np.testing.assert_array_equal(gradient, [3 * 2 * 2.0, 3 * 3 * 4.0])


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


@each_place
@each_mode
def test_an_unused_input_has_zeros(place: Any, mode: Any) -> None:
    x, y = tf.constant([1.0, 2.0]), tf.constant([[3.0, 4.0]])
    gradients = place(mode, lambda x, y: wrap(lambda x, y: x * x, x, y), x, y)
    np.testing.assert_array_equal(gradients[0], 6.0 * x)
    np.testing.assert_array_equal(gradients[1], tf.zeros([1, 2]))


@each_mode
@pytest.mark.parametrize("used", [0, 1, 2])
def test_one_of_several_results(mode: Any, used: int) -> None:
    def three(x: tf.Tensor) -> Any:
        return x * x, tf.stack([x, x**3]), tf.reduce_sum(tf.sin(x))

    x = tf.constant([1.0, 2.0])

    def program(x: tf.Tensor) -> tf.Tensor:
        specs = [tf.TensorSpec(shape, tf.float32) for shape in ([2], [2, 2], [])]
        return tf.py_function(three, [x], specs)[used]

    expected = inside(plain, lambda x: three(x)[used], x)
    np.testing.assert_allclose(inside(mode, program, x), expected, rtol=1e-6)
    np.testing.assert_allclose(outside(mode, program, x), expected, rtol=1e-6)


@each_mode
def test_a_result_of_integers_beside_one_of_floats(mode: Any) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.float32)]
        count, square = tf.py_function(lambda x: (tf.size(x), x * x), [x], specs)
        return square * tf.cast(count, tf.float32)

    (gradient,) = inside(mode, program, tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(gradient, [12.0, 24.0])


@each_mode
def test_slices_become_a_tensor(mode: Any) -> None:
    table, rows = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tf.constant([2, 0, 2])

    def program(table: tf.Tensor) -> tf.Tensor:
        spec = tf.TensorSpec([3, 2], tf.float32)
        return tf.py_function(lambda table: tf.gather(table, rows) ** 2, [table], spec)

    expected = inside(plain, lambda table: tf.gather(table, rows) ** 2, table)[0]
    (gradient,) = inside(mode, program, table)
    np.testing.assert_array_equal(gradient, tf.convert_to_tensor(expected))


@each_place
@each_mode
def test_a_custom_gradient_inside_the_function(place: Any, mode: Any) -> None:
    @tf.custom_gradient
    def clipped(x: tf.Tensor) -> Any:
        return x * x, lambda upstream: tf.clip_by_value(upstream, -1.0, 1.0) * 7.0

    check(place, mode, lambda wrap, x: wrap(clipped, x), tf.constant([1.0, 2.0]))


@each_mode
def test_numpy_function_has_none(mode: Any) -> None:
    @mode
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.ensure_shape(tf.numpy_function(np.square, [x], tf.float32), [2])
        assert tape.gradient(y, x) is None
        return y

    np.testing.assert_array_equal(program(tf.constant([1.0, 2.0])), [1.0, 4.0])


@each_mode
def test_no_path_no_gradient(mode: Any) -> None:
    @mode
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            stopped = wrap(tf.square, tf.stop_gradient(x))
            counted = tf.py_function(tf.size, [x], tf.TensorSpec([], tf.int32))
        assert tape.gradient(stopped, x) is None
        return counted

    assert int(program(tf.constant([1.0, 2.0]))) == 2


@each_mode
def test_the_callbacks_variables_stay_out_of_the_users_tape(mode: Any) -> None:
    hidden, own = tf.Variable(2.0), tf.Variable([3.0, 4.0])
    program = mode(lambda: wrap(lambda x: x * hidden, own * 1.0))
    with tf.GradientTape() as tape:
        y = program()
    assert [variable.ref() for variable in tape.watched_variables()] == [own.ref()]
    np.testing.assert_array_equal(tape.gradient(y, own), [2.0, 2.0])


def test_mode_and_place_agree_with_a_difference_quotient() -> None:
    x, step = np.array([0.3, 1.7, -0.4]), 1e-6

    def function(x: Any) -> Any:
        return tf.math.log1p(x * x) * tf.atan(x)

    quotient = (function(x + step).numpy() - function(x - step).numpy()) / (2.0 * step)
    for place in (inside, outside):
        (gradient,) = place(jitted, lambda x: 0.0 + wrap(function, x), tf.constant(x))
        np.testing.assert_allclose(gradient, 3.0 * quotient, rtol=1e-8)
