"""What a recorded call of a py_function keeps: asked for twice, by many threads, or never."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.gradients import half_sine, unwrapped, wrapped
from tests.support.helpers import MODES, jitted, plain
from tests.support.threads import in_threads

X = tf.constant([0.5, -0.25])

each_mode = pytest.mark.parametrize("mode", MODES)


def gradient(function: Any, x: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


def value_or_refusal(call: Callable[[], Any]) -> Any:
    """None where the gradient is refused, as a plain graph may: a wrong one it may not give."""
    try:
        return call()
    except tf.errors.OpError as error:
        if "compute all of them at once there, or compile the function" not in str(error):
            raise
        return None


@each_mode
@pytest.mark.parametrize("tape_inside", [True, False])
def test_a_persistent_tape_gives_the_same_gradient_twice(mode: Any, tape_inside: bool) -> None:
    def twice(x: tf.Tensor) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = call(x)
            thrice, first = 3.0 * y, y[0]
        return tape.gradient(y, x), tape.gradient(thrice, x), tape.gradient(first, x)

    inner = functools.partial(wrapped, half_sine)
    call = inner if tape_inside else mode(inner)
    slope = 0.5 * np.cos(X) + 1.0
    expected = [slope, 3.0 * slope, slope * [1.0, 0.0]]

    program = mode(twice) if tape_inside else twice
    slopes = value_or_refusal(lambda: program(X))
    if slopes is None:
        assert mode is plain
    else:
        np.testing.assert_allclose(slopes, expected, rtol=1e-6)


@each_mode
@pytest.mark.parametrize("vectorized", [True, False])
def test_a_jacobian(mode: Any, vectorized: bool) -> None:
    def jacobian(call: Any) -> Any:
        def program(x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = call(lambda x: tf.reverse(x, [0]) * x * x, x)
            return tape.jacobian(y, x, experimental_use_pfor=vectorized)

        return mode(program)(X)

    actual = value_or_refusal(lambda: jacobian(wrapped))
    if actual is None:
        assert mode is plain
    else:
        np.testing.assert_allclose(actual, jacobian(unwrapped), rtol=1e-6)


@each_mode
def test_threads_that_share_a_function_do_not_mix_their_gradients(mode: Any) -> None:
    def sixth_power(x: tf.Tensor) -> tf.Tensor:
        return wrapped(lambda x: x**3, wrapped(lambda x: x**2, x))

    slope = mode(functools.partial(gradient, sixth_power))
    slope(tf.zeros([3]))

    def work(seed: int) -> None:
        for i in range(20):
            x = tf.fill([3], 1.0 + seed + i / 10.0)
            np.testing.assert_allclose(slope(x), 6.0 * x**5, rtol=1e-5)

    in_threads(8, work)


@each_mode
def test_a_callback_that_runs_a_gradient_program_itself(mode: Any) -> None:
    inner = mode(lambda x: gradient(functools.partial(wrapped, tf.square), x))

    @mode
    def outer(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = wrapped(lambda x: x**3, x)
        between = tf.numpy_function(lambda y: inner(y).numpy(), [y], tf.TensorSpec([2], tf.float32))
        return tape.gradient(y, x), between

    for _ in range(3):
        slope, between = outer(X)
        np.testing.assert_allclose(slope, 3.0 * X**2, rtol=1e-6)
        np.testing.assert_allclose(between, 2.0 * X**3, rtol=1e-6)


class Kept:
    """Something that a recorded call keeps."""


def square_that_keeps() -> tuple[Any, "weakref.WeakSet[Kept]"]:
    """A square whose gradient holds a Kept, and those that are alive."""
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    @tf.custom_gradient
    def square(x: tf.Tensor) -> Any:
        kept = Kept()
        alive.add(kept)
        return x * x, lambda upstream: [kept, 2.0 * x * upstream][1]

    return square, alive


@each_mode
@pytest.mark.parametrize("asked", ["inside", "outside", "never"])
def test_nothing_is_kept_once_a_gradient_can_no_longer_be_asked_for(mode: Any, asked: str) -> None:
    square, alive = square_that_keeps()

    def forward(x: tf.Tensor) -> tf.Tensor:
        return wrapped(square, wrapped(square, x))

    def program(x: tf.Tensor) -> Any:
        if asked != "inside":
            return forward(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
        return tape.gradient(y, x)

    function = mode(program)
    for _ in range(5):
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = function(X)
        if asked == "outside":
            np.testing.assert_allclose(tape.gradient(y, X), 4.0 * X**3)
        del tape, y
        gc.collect()
        assert not alive


@each_mode
def test_nothing_is_kept_where_a_branch_decides_not_to_ask(mode: Any) -> None:
    square, alive = square_that_keeps()

    @mode
    def program(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = wrapped(square, x)
            if x[0] > 0.0:
                y = tf.stop_gradient(y) * x
        return tape.gradient(y, x)

    for _ in range(3):
        np.testing.assert_array_equal(program(X), X**2)
        np.testing.assert_array_equal(program(-X), -2.0 * X)
    gc.collect()
    assert not alive


# A plain graph keeps what a failed run has recorded, as in stock TensorFlow.
def test_nothing_is_kept_of_a_compiled_run_that_failed() -> None:
    square, alive = square_that_keeps()

    def checked(x: np.ndarray) -> np.ndarray:
        if x[0] < 0.0:
            raise ValueError("negative")
        return x

    @jitted
    def program(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = wrapped(square, x)
        tf.numpy_function(checked, [x], tf.TensorSpec([2], tf.float32))
        return tape.gradient(y, x)

    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: negative"):
            program(-X)
        np.testing.assert_array_equal(program(X), 2.0 * X)
    gc.collect()
    assert not alive
