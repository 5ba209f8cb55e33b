"""A `__del__` that calls back: it runs wherever Python drops the object, within hostcall, too."""

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import gradient_of, jitted, on_two

pytestmark = pytest.mark.runs_in("template")

X = tf.constant([1.0, 2.0])


def failing(jit: bool, held: Any = None) -> Any:
    def fail(x: Any) -> Any:
        mine = held() if held else None  # dies with the frame, and so with the exception
        raise ValueError(f"on purpose {mine}")

    return tf.function(
        lambda x: tf.numpy_function(fail, [x], tf.TensorSpec([2], tf.float32)), jit_compile=jit
    )


def fails(function: Any) -> None:
    try:  # what `pytest.raises` gives would be in a cycle with the error
        function(X)
    except tf.errors.InvalidArgumentError as error:
        assert "on purpose" in str(error)  # noqa: PT017
        assert isinstance(hostcall.last_error(error), ValueError)  # noqa: PT017
    else:
        raise AssertionError("the callback did not fail")


class FailsWhenDropped:
    """The end of the first one is one more call that fails.

    Only of the first: TensorFlow by itself crashes when such ends bring about each other.
    """

    dropped = 0

    def __init__(self, jit: bool) -> None:
        self.function = failing(jit)

    def __del__(self) -> None:
        FailsWhenDropped.dropped += 1
        if FailsWhenDropped.dropped == 1:
            fails(self.function)


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "jitted"])
def test_exceptions_that_fail_when_forgotten(jit: bool) -> None:
    function = failing(jit, lambda: FailsWhenDropped(jit))
    while FailsWhenDropped.dropped < 3:  # an exception goes with the error that tells of it
        fails(function)
    assert hostcall.last_error() is None


class Differentiates:
    """Its end is a program that is compiled and differentiated, by hand or by the collector."""

    dropped = 0

    def __del__(self) -> None:
        Differentiates.dropped += 1
        slope = slope_of(lambda x: x * x)
        np.testing.assert_allclose(slope(X), 2.0 * X)


def slope_of(function: Any) -> Any:
    return jitted(lambda x: gradient_of(on_two(tf.py_function, function), x))


def test_garbage_that_differentiates() -> None:
    """Collections come in the middle of everything: after each object that is made."""
    slope = slope_of(lambda x: x**3)
    slope(X)
    gc.set_threshold(1, 1, 1)
    for _ in range(3):
        cycle: list[Any] = [Differentiates()]
        cycle.append(cycle)
        del cycle
        np.testing.assert_allclose(slope(X), 3.0 * X**2)
        np.testing.assert_allclose(slope_of(lambda x: x**3)(X), 3.0 * X**2)
    gc.set_threshold(700, 10, 10)
    gc.collect()
    assert Differentiates.dropped == 3
