"""Gradients of whole programs with py_functions: loops, branches, functions, training."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
from tests.support.gradients import half_sine, unwrapped, wrapped
from tests.support.helpers import MODES, jitted, plain

X = tf.constant([0.5, -0.25])

each_mode = pytest.mark.parametrize("mode", MODES)


def loop(call: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(5):
        x = call(half_sine, x) * 1.5
    return x


def loop_with_break(call: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(8):
        x = call(half_sine, x) * 1.5
        if x[0] > 3.0:
            break
    return x


def nested_loops(call: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        for _ in tf.range(2):
            x = call(half_sine, x)
        x = x * call(tf.cos, x)
    return x


def branch_taken(call: Any, x: tf.Tensor) -> tf.Tensor:
    return call(half_sine, x) if x[0] > 0.0 else call(tf.cos, x)


def branch_not_taken(call: Any, x: tf.Tensor) -> tf.Tensor:
    return call(half_sine, x) if x[0] < 0.0 else call(tf.cos, x) * x


def branch_without_a_call(call: Any, x: tf.Tensor) -> tf.Tensor:
    return call(half_sine, x) if x[0] < 0.0 else x * x


def branches_in_a_loop(call: Any, x: tf.Tensor) -> tf.Tensor:
    for i in tf.range(5):
        x = call(half_sine, x) if i % 2 == 0 else x * call(tf.cos, x)
    return x


def inner_function(call: Any, x: tf.Tensor) -> tf.Tensor:
    inner = tf.function(lambda x: call(half_sine, x) * 2.0)
    return inner(inner(x)) + inner(x)


def inner_jitted_function(call: Any, x: tf.Tensor) -> tf.Tensor:
    inner = tf.function(lambda x: call(half_sine, x) * 2.0, jit_compile=True)
    return inner(inner(x)) + inner(x)


def function_in_a_loop(call: Any, x: tf.Tensor) -> tf.Tensor:
    inner = tf.function(lambda x: call(half_sine, call(tf.cos, x)))
    for _ in tf.range(3):
        x = inner(x)
    return x


def mapped(call: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda row: call(half_sine, row), tf.stack([x, 2.0 * x, x + 1.0]))


def switched(call: Any, x: tf.Tensor) -> tf.Tensor:
    branches = [lambda: call(half_sine, x), lambda: call(tf.cos, x), lambda: x]
    return tf.switch_case(tf.size(x) - 1, branches)


def recomputed(call: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.recompute_grad(lambda x: call(half_sine, call(tf.cos, x)))(x)


LOOPS = [
    loop, loop_with_break, nested_loops, branches_in_a_loop, function_in_a_loop, mapped,
]  # fmt: skip
OTHERS = [
    branch_taken, branch_not_taken, branch_without_a_call, inner_function, inner_jitted_function,
    switched, recomputed,
]  # fmt: skip


def value_and_gradient(function: Any, x: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x)


@pytest.mark.parametrize("program", LOOPS + OTHERS)
def test_with_the_tape_inside(program: Any) -> None:
    def run(mode: Any, call: Any) -> Any:
        function = functools.partial(program, call)
        return mode(functools.partial(value_and_gradient, function))(X)

    for actual, expected in zip(run(jitted, wrapped), run(plain, unwrapped), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


# XLA has no way out of a compiled program for what a loop keeps for its gradient.
@pytest.mark.parametrize("program", OTHERS)
def test_with_the_tape_outside(program: Any) -> None:
    def run(mode: Any, call: Any) -> Any:
        return value_and_gradient(mode(functools.partial(program, call)), X)

    for actual, expected in zip(run(jitted, wrapped), run(plain, unwrapped), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("program", LOOPS + OTHERS)
def test_in_plain_graph_mode(program: Any) -> None:
    def run(call: Any) -> Any:
        return value_and_gradient(plain(functools.partial(program, call)), X)

    for actual, expected in zip(run(wrapped), run(unwrapped), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@each_mode
def test_training_steps_are_those_of_the_unwrapped_layer(mode: Any) -> None:
    data = np.random.default_rng(0).normal(size=[32, 4]).astype(np.float32)
    target = np.tanh(data @ np.array([[1.0], [-2.0], [0.5], [3.0]], np.float32))

    def train(call: Any) -> list[float]:
        weights, bias = tf.Variable(tf.zeros([4, 1])), tf.Variable([0.1])
        losses = []

        @mode
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                prediction = call(tf.tanh, tf.linalg.matmul(x, weights) + bias)
                loss = tf.reduce_mean((prediction - y) ** 2)
            for variable, slope in zip(
                [weights, bias], tape.gradient(loss, [weights, bias]), strict=True
            ):
                variable.assign_sub(0.5 * slope)
            return loss

        for _ in range(20):
            losses.append(float(step(data, target)))
        return losses

    losses = train(wrapped)
    np.testing.assert_allclose(losses, train(unwrapped), rtol=1e-4)
    assert losses[-1] < 0.2 * losses[0]
