"""Tests that a function with a gradient is called once per forward pass, unless it is pure."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.helpers import each_mode, jitted, plain


def loop_and_branch(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    """Four calls."""
    for _ in tf.range(3):
        x = call(function, x)
    return x + tf.cond(x[0] > 7.0, lambda: call(tf.exp, x), lambda: call(function, x))


@each_mode
@g.small_and_large
@g.each_wrapper
def test_without_a_gradient(mode: Any, call: Any, size: int) -> None:
    """A tape inside that is not asked, and one outside that watches nothing."""
    function, x = g.Counted(), g.values(size)

    @mode
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            return loop_and_branch(call, function, x)

    without = contextlib.nullcontext()
    for runs, tape in enumerate([without, without, tf.GradientTape()], 1):
        with tape:
            program(x)
        assert function.calls == 4 * runs


@each_mode
@g.each_wrapper
def test_under_a_tape_that_is_not_asked(mode: Any, call: Any) -> None:
    function, x = g.Counted(), g.values(4)
    program = mode(lambda x: call(function, call(function, x)))
    for runs in (1, 2, 3):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            program(x)
        assert function.calls == 2 * runs


@each_mode
@g.each_place
@g.each_wrapper
def test_a_gradient_that_does_not_go_through_the_call(mode: Any, place: Any, call: Any) -> None:
    function, x = g.Counted(), g.values(4)

    def through_another(x: tf.Tensor) -> tf.Tensor:
        call(function, x)
        return call(tf.square, x) + tf.stop_gradient(call(function, x))

    (slope,) = place(mode, through_another)(x)
    g.assert_close(slope, 2.0 * x * g.weights(x))
    assert function.calls == 2


@each_mode
@g.each_wrapper
def test_a_training_loop_in_a_function(mode: Any, call: Any) -> None:
    """A tape in each iteration of a loop of the program."""
    function, x = g.Counted(lambda factor, x: x * x * factor), g.values(4, "float64")

    @mode
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(5):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = call(function, x)
            x -= 0.1 * tape.gradient(y, x)
        return x

    found = program(x)
    assert function.calls == 5
    for i in range(5):
        x -= 0.2 * x * (1.0 + (i + 1) / 8.0)
    g.assert_close(found, x)


def pure(function: Callable[..., Any], wrapper: Any) -> tuple[Callable[..., Any], list[int]]:
    """The function as a pure one, for this wrapper, and a list with an entry for each call."""
    calls: list[int] = []

    def counted(x: tf.Tensor) -> tf.Tensor:
        calls.append(1)
        return function(x)

    if wrapper is g.by_py_function:
        hostcall.declare(counted, pure=True)
        return functools.partial(wrapper, counted), calls
    return hostcall.callback(counted, result=lambda x: x, kind="eager", pure=True), calls


def uneven(x: tf.Tensor) -> tf.Tensor:
    return tf.sin(x) * tf.reverse(x, [0])


def loop(call: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(5):
        x = call(x) + x
    return x


@g.small_and_large
@g.each_place
@g.each_wrapper
def test_a_pure_function_may_run_once_more(call: Any, place: Any, size: int) -> None:
    once, calls = pure(uneven, call)
    x = g.values(size, "float64")
    slope = place(jitted, lambda x: once(x) * once(2.0 * x))(x)
    g.assert_close(slope, place(g.eagerly, lambda x: uneven(x) * uneven(2.0 * x))(x))
    assert len(calls) <= 4


@g.each_wrapper
@g.small_and_large
def test_a_pure_function_in_a_loop_and_its_second_derivative(call: Any, size: int) -> None:
    def second(function: Callable[..., Any], x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            slope = g.recorded(functools.partial(loop, function), g.gradient, [x])
        return slope, tape.gradient(slope, x)

    once, calls = pure(uneven, call)
    x = g.values(size, "float64")
    g.assert_close(jitted(functools.partial(second, once))(x), second(uneven, x))
    assert len(calls) <= 3 * 5


@pytest.mark.parametrize("mode", [g.eagerly, plain, jitted])
@g.each_wrapper
def test_a_pure_function_without_a_gradient_runs_once(mode: Any, call: Any) -> None:
    once, calls = pure(uneven, call)
    x = g.values(4)
    g.assert_close(mode(lambda x: once(x))(x), uneven(x))
    assert len(calls) == 1
