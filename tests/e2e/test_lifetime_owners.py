"""A Python function dies with the last program that can call it, and with an eager call."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.factors import Factor, living, none_from_before, quick_collector  # noqa: F401
from tests.support.helpers import MODES, jitted

SPEC = tf.TensorSpec([2], tf.float32)
X = tf.constant([1.0, -2.0])


class Times(Factor):
    def __call__(self, x: Any) -> Any:
        return self.times(x)


def multiply(factor: Factor, x: Any) -> Any:
    return x * factor.value


# Each makes a function from a Factor, and is what alone holds it.
HELD_BY: dict[str, Callable[[], Callable[..., Any]]] = {
    "bound method": lambda: Factor().times,
    "callable": Times,
    "partial": lambda: functools.partial(multiply, Factor()),
    "partial of a method": lambda: functools.partial(Factor().times),
    "closure": lambda: (lambda factor: lambda x: x * factor.value)(Factor()),
    "default": lambda: lambda x, factor=Factor(): x * factor.value,  # noqa: B008
}


def by_py_function(function: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(function, [x], SPEC)


def by_numpy_function(function: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(function, [x], SPEC)


def by_py_func(function: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.compat.v1.py_func(function, [x], SPEC)


def by_declared_function(function: Any, x: tf.Tensor) -> tf.Tensor:
    result: Callable[..., Any] = lambda x: x  # noqa: E731
    if hasattr(function, "__self__"):
        result = function.__self__.spec  # the declaration holds what it is a declaration of
    hostcall.declare(function, result=result, timeout=60.0)
    return tf.numpy_function(function, [x], tf.float32)


def by_callback(function: Any, x: tf.Tensor) -> tf.Tensor:
    return hostcall.callback(function, result=SPEC)(x)


def by_eager_callback(function: Any, x: tf.Tensor) -> tf.Tensor:
    return hostcall.callback(function, result=SPEC, kind="eager")(x)


def by_gradient(function: Any, x: tf.Tensor) -> tf.Tensor:
    """The gradient of an identity, which is said to be `function` of its upstream."""
    called_back = hostcall.callback(function, result=SPEC)
    identity = hostcall.callback(
        lambda x: x, result=SPEC, grad=lambda inputs, results, upstream: called_back(upstream)
    )
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = identity(x)
    return tape.gradient(y, x, output_gradients=x)


def in_a_loop(function: Any, x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        called = lambda: tf.ensure_shape(by_py_function(function, x), x.shape)  # noqa: E731
        return i + 1, tf.cond(x[0] > 0.0, called, lambda: y)

    return tf.while_loop(lambda i, y: i < 2, body, (0, x))[1]


def in_an_inner_function(function: Any, x: tf.Tensor) -> tf.Tensor:
    return jitted(functools.partial(by_py_function, function))(x)


USES = [
    by_py_function,
    by_numpy_function,
    by_py_func,
    by_declared_function,
    by_callback,
    by_eager_callback,
    by_gradient,
    in_a_loop,
    in_an_inner_function,
]


# Every way to hold a function where it costs little, and two of them everywhere.
CASES = [(use, held_by) for use in USES[:2] for held_by in HELD_BY]
CASES += [(use, held_by) for use in USES[2:] for held_by in ("bound method", "closure")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("use", "held_by"), CASES)
def test_what_only_a_program_holds(mode: Any, use: Any, held_by: str) -> None:
    def build() -> Any:
        function = HELD_BY[held_by]()
        program = mode(lambda x: use(function, x))
        program.get_concrete_function(SPEC)
        return program

    program = build()
    for _ in range(2):
        assert living() == 1
        np.testing.assert_array_equal(program(X), 3.0 * X)
    del program
    assert living() == 0


@pytest.mark.parametrize(("use", "held_by"), CASES)
def test_what_only_an_eager_call_holds(use: Any, held_by: str) -> None:
    np.testing.assert_array_equal(use(HELD_BY[held_by](), X), 3.0 * X)
    assert living() == 0
