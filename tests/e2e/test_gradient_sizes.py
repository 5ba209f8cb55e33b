"""Gradients at every size: those of the same function without a wrapper, each call made once."""

import functools
from typing import Any

import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.helpers import jitted

# For what takes long to compile: where the tape is makes no difference to the wrapper.
two_of_each = pytest.mark.parametrize(
    ("call", "place"), [(g.by_py_function, g.inside), (g.by_callback, g.outside)], ids=g.WRAPPERS
)


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
    g.check(g.inside, call, program, [g.values(size, dtype)])


@g.each_size
@g.each_place
@g.each_wrapper
def test_branches(call: Any, place: Any, size: int) -> None:
    g.check(place, call, branches, [g.values(size)])


@pytest.mark.cpu("XLA_CPU has no zeros of a TensorList in eager mode")
@g.each_wrapper
@pytest.mark.parametrize("route", ["auto", "partition"])
@pytest.mark.parametrize("program", [while_loop, autograph_loop])
def test_a_tape_around_a_compiled_loop(program: Any, route: str, call: Any) -> None:
    """XLA refuses it, with a callback or without: the lists of the loop would leave the program."""
    with hostcall.scope(route=route):
        g.check(g.outside, call, program, [g.values(4)])
        without = functools.partial(program, g.unwrapped, tf.sin)
        compiled, expected = g.outside(jitted, without), g.outside(g.eagerly, without)
        g.assert_close(compiled(g.values(4)), expected(g.values(4)))


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

    asking = functools.partial(place, ask=ask)
    g.check(asking, call, one_function_twice, [g.values(size, "float64")])


def once(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return 2.0 * call(function, x)


def three_numbers(factor: float, x: tf.Tensor) -> tf.Tensor:
    first = factor * tf.reduce_mean(tf.sin(x))
    return tf.stack([first, x[0] * tf.reduce_mean(x * x), x[-1] ** 3])


def to_three_numbers(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return 2.0 * call(function, x, result=tf.TensorSpec([3], x.dtype))


def row_by_row(factor: float, x: tf.Tensor) -> tf.Tensor:
    return tf.sin(factor * x) * tf.reverse(x, [1])


@g.each_size
@two_of_each
@pytest.mark.parametrize("vectorized", [True, False])
def test_a_jacobian(vectorized: bool, call: Any, place: Any, size: int) -> None:
    def jacobian(tape: tf.GradientTape, y: Any, args: Any) -> Any:
        return tape.jacobian(y, args, experimental_use_pfor=vectorized)

    def batch_jacobian(tape: tf.GradientTape, y: Any, args: Any) -> Any:
        return tape.batch_jacobian(y, args[0], experimental_use_pfor=vectorized)

    x = g.values(size, "float64")
    of_rows = functools.partial(place, ask=batch_jacobian)
    g.check(functools.partial(place, ask=jacobian), call, to_three_numbers, [x], three_numbers)
    g.check(of_rows, call, once, [tf.reshape(x, [-1, min(size, 4)])], row_by_row)


@g.each_size
@two_of_each
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

    def program(call: Any, function: Any, x: tf.Tensor, n: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
        return call(function, x, n * n, z)

    args = [g.values(size), tf.range(size) % 3 + 1, g.values(size, "float64")[None]]
    g.check(functools.partial(place, ask=ask), call, program, args, body)


@g.each_size
@two_of_each
def test_several_results_of_which_one_is_used(call: Any, place: Any, size: int) -> None:
    def body(factor: float, x: tf.Tensor) -> Any:
        return tf.size(x), x * x, tf.sin(factor * x) * x, tf.reduce_sum(x)

    def program(call: Any, function: Any, *args: tf.Tensor) -> list[tf.Tensor]:
        return [third(call, function, x) for x in args]

    def third(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
        count, total = tf.TensorSpec([], tf.int32), tf.TensorSpec([], x.dtype)
        like = tf.TensorSpec(x.shape, x.dtype)
        return call(function, x, result=[count, like, like, total])[2]

    g.check(place, call, program, [g.values(size, dtype) for dtype in g.TOLERANCES], body)


@g.each_size
@g.each_wrapper
def test_captured_variables(call: Any, size: int) -> None:
    captured, given = tf.Variable(3.0), tf.Variable(g.values(size, seed=1))

    def program(x: tf.Tensor) -> tf.Tensor:
        return call(lambda x, v: tf.sin(x) * captured * v, x, given)

    def ask(tape: tf.GradientTape, y: Any, args: Any) -> Any:
        assert [variable.ref() for variable in tape.watched_variables()] == [given.ref()]
        by_x, by_captured, by_given = tape.gradient(y, [*args, captured, given])
        assert by_captured is None
        return by_x, by_given

    x = g.values(size)
    expected = 3.0 * tf.cos(x) * given, 3.0 * tf.sin(x)
    for place in g.PLACES.values():
        g.assert_close(place(jitted, program, ask)(x), expected)
