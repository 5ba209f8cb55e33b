"""Gradients at every size: those of the same function without a wrapper, each call made once."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.helpers import jitted

# For what takes long to compile: where the tape is makes no difference to the wrapper.
two_of_each = pytest.mark.parametrize(
    ("call", "place"), [(g.by_py_function, g.inside), (g.by_callback, g.outside)], ids=g.WRAPPERS
)


def check(
    place: Any,
    call: Any,
    program: Callable[..., Any],
    args: list[tf.Tensor],
    ask: g.Ask = g.gradient,
    body: Callable[..., Any] = g.wave,
) -> None:
    """Compares a compiled program with the eager one that has no wrapper, in two runs each.

    Args:
      place: where the tape is.
      call: the wrapper.
      program: takes a wrapper, the function to wrap, and then the arguments.
      args: of the first run; the second one has their negatives.
      ask: what to ask of the tape.
      body: of the function.
    """
    function, reference = g.Counted(body), g.Counted(body)
    compiled = place(jitted, functools.partial(program, call, function), ask)
    expected = place(g.eagerly, functools.partial(program, g.unwrapped, reference), ask)
    for each in (args, [-arg for arg in args]):
        g.assert_close(compiled(*each), expected(*each))
        assert function.calls == reference.calls


def while_loop(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, x: tf.Tensor) -> Any:
        return [i + 1, call(function, x)]

    return tf.while_loop(lambda i, x: i < 5, body, [0, x], maximum_iterations=5)[1]


def autograph_loop(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(5):
        x = call(function, x)
    return x


def branches(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0] > 0.0, lambda: 2.0 * call(function, x), lambda: call(function, x * x) + x)


def one_function_twice(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return call(function, x) * call(function, 0.5 * call(function, x) + x)


@g.each_size
@g.each_wrapper
@pytest.mark.parametrize(
    ("program", "dtype"), [(while_loop, "float64"), (autograph_loop, "float32")]
)
def test_loops(program: Any, dtype: str, call: Any, size: int) -> None:
    check(g.inside, call, program, [g.values(size, dtype)])


@g.each_size
@g.each_place
@g.each_wrapper
def test_branches(call: Any, place: Any, size: int) -> None:
    check(place, call, branches, [g.values(size)])


@pytest.mark.cpu("XLA_CPU has no zeros of a TensorList in eager mode")
@g.each_wrapper
@pytest.mark.parametrize("program", [while_loop, autograph_loop])
def test_a_tape_around_a_compiled_loop(program: Any, call: Any) -> None:
    """XLA refuses it, with a callback or without: the lists of the loop would leave the program."""
    check(g.outside, call, program, [g.values(4)])
    without = functools.partial(program, g.unwrapped, tf.sin)
    compiled, expected = g.outside(jitted, without), g.outside(g.eagerly, without)
    g.assert_close(compiled(g.values(4)), expected(g.values(4)))


@pytest.mark.cpu("XLA_CPU has no zeros of a TensorList in eager mode")
@g.each_wrapper
@pytest.mark.parametrize("program", [while_loop, autograph_loop])
def test_a_tape_around_a_loop_that_is_partitioned(program: Any, call: Any) -> None:
    with hostcall.scope(route="partition"):
        check(g.outside, call, program, [g.values(4)])


@g.each_size
@g.each_place
@g.each_wrapper
def test_one_function_used_twice_under_a_persistent_tape_used_twice(
    call: Any, place: Any, size: int
) -> None:
    def ask(tape: tf.GradientTape, y: Any, args: Any) -> Any:
        return [
            tape.gradient(y, args, output_gradients=g.weights(y, frequency))
            for frequency in (1.0, 2.0)
        ]

    check(place, call, one_function_twice, [g.values(size, "float64")], ask)


def once(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return 2.0 * call(function, x)


def three_numbers(factor: float, x: tf.Tensor) -> tf.Tensor:
    first = factor * tf.reduce_mean(tf.sin(x))
    return tf.stack([first, x[0] * tf.reduce_mean(x * x), x[-1] ** 3])


def jacobian(vectorized: bool) -> g.Ask:
    return lambda tape, y, args: tape.jacobian(y, args, experimental_use_pfor=vectorized)


def batch_jacobian(vectorized: bool) -> g.Ask:
    return lambda tape, y, args: tape.batch_jacobian(y, args[0], experimental_use_pfor=vectorized)


def to_three_numbers(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return 2.0 * call(function, x, result=tf.TensorSpec([3], x.dtype))


def row_by_row(factor: float, x: tf.Tensor) -> tf.Tensor:
    return tf.sin(factor * x) * tf.reverse(x, [1])


def rows(size: int) -> tf.Tensor:
    return tf.reshape(g.values(size, "float64"), [-1, min(size, 4)])


@g.each_size
@two_of_each
def test_a_jacobian(call: Any, place: Any, size: int) -> None:
    x = g.values(size)
    check(place, call, to_three_numbers, [x], jacobian(True), three_numbers)


@g.each_size
@two_of_each
def test_a_batch_jacobian(call: Any, place: Any, size: int) -> None:
    check(place, call, once, [rows(size)], batch_jacobian(True), row_by_row)


@two_of_each
@g.small_and_large
def test_jacobians_by_a_loop(call: Any, place: Any, size: int) -> None:
    check(place, call, to_three_numbers, [g.values(size)], jacobian(False), three_numbers)
    check(place, call, once, [rows(size)], batch_jacobian(False), row_by_row)


@g.each_size
@g.each_place
@g.each_wrapper
def test_integers_beside_floats_and_inputs_that_are_not_used(
    call: Any, place: Any, size: int
) -> None:
    def body(factor: float, x: tf.Tensor, n: tf.Tensor, unused: tf.Tensor) -> tf.Tensor:
        return tf.sin(factor * x) ** tf.cast(n, x.dtype)

    def ask(tape: tf.GradientTape, y: Any, args: Any) -> Any:
        by_x, by_n, by_z = g.gradient(tape, y, args)
        assert by_n is None
        # Without a wrapper there is no path to it.
        return by_x, tf.zeros_like(args[2]) if by_z is None else by_z

    args = [g.values(size), tf.range(size) % 3 + 1, g.values(size, "float64")[None]]
    check(place, call, lambda call, function, x, n, z: call(function, x, n * n, z), args, ask, body)


@g.each_size
@g.each_place
@g.each_wrapper
def test_several_results_of_which_one_is_used(call: Any, place: Any, size: int) -> None:
    def body(factor: float, x: tf.Tensor) -> Any:
        return tf.size(x), x * x, tf.sin(factor * x) * x, tf.reduce_sum(x)

    def program(call: Any, function: Any, *args: tf.Tensor) -> list[tf.Tensor]:
        return [third(call, function, x) for x in args]

    def third(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
        specs = [
            tf.TensorSpec([], tf.int32), tf.TensorSpec(x.shape, x.dtype),
            tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec([], x.dtype),
        ]  # fmt: skip
        return call(function, x, result=specs)[2]

    check(place, call, program, [g.values(size, dtype) for dtype in g.TOLERANCES], body=body)


@g.each_size
@g.each_wrapper
def test_captured_variables(call: Any, size: int) -> None:
    captured, given = tf.Variable(3.0), tf.Variable(g.values(size, seed=1))

    def program(x: tf.Tensor) -> tf.Tensor:
        return call(lambda x, v: tf.sin(x) * captured * v, x, given)

    def slopes(function: Any, x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        assert [variable.ref() for variable in tape.watched_variables()] == [given.ref()]
        by_x, by_captured, by_given = tape.gradient(y, [x, captured, given])
        assert by_captured is None
        return by_x, by_given

    x = g.values(size)
    expected = 3.0 * tf.cos(x) * given, 3.0 * tf.sin(x)
    g.assert_close(jitted(lambda x: slopes(program, x))(x), expected)
    g.assert_close(slopes(jitted(program), x), expected)


@g.each_size
@g.each_wrapper
@pytest.mark.parametrize("mode", [g.eagerly, jitted], ids=["in the graph", "in a function"])
def test_tf_gradients_in_a_graph_of_v1(mode: Any, call: Any, size: int) -> None:
    """The function is used twice; sessions run the graph twice, with other values."""

    def slope(call: Any, x: tf.Tensor) -> tf.Tensor:
        square = mode(lambda x: call(tf.square, x))
        return tf.gradients(square(tf.sin(x)) * square(x), x, g.weights(x))[0]

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float64, [size])
        actual, expected = slope(call, x), slope(g.unwrapped, x)
        for seed in range(2):
            fed = {x: g.numbers(size, "float64", seed)}
            g.assert_close(*session.run([actual, expected], fed))
            assert np.any(session.run(expected, fed))
