"""Gradients at every size: those of a function without a wrapper, and those that are given."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.helpers import eagerly, gradient_of, jitted, like

# For what takes long to compile: where the tape is makes no difference to the wrapper.
two_of_each = pytest.mark.parametrize(
    ("call", "place"), [(g.by_py_function, g.inside), (g.by_callback, g.outside)], ids=g.WRAPPERS
)


def while_loop(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, x: tf.Tensor) -> Any:
        return [i + 1, call(function, x)]

    return tf.while_loop(lambda i, x: i < 5, body, [0, x], maximum_iterations=5)[1]


@pytest.mark.pairwise
@g.each_size
@g.each_wrapper
@pytest.mark.parametrize(
    ("program", "place", "dtype"),
    [
        *((while_loop, g.inside, "float64"), (g.loop, g.inside, "float32")),
        *((g.branches, place, "float32") for place in g.PLACES.values()),
    ],
)
def test_loops_and_branches(program: Any, place: Any, dtype: str, call: Any, size: int) -> None:
    g.check(place, call, program, [g.values(size, dtype)])


@pytest.mark.cpu("XLA_CPU has no zeros of a TensorList in eager mode")
@g.each_wrapper
@pytest.mark.parametrize("route", ["auto", "partition"])
@pytest.mark.parametrize("program", [while_loop, g.loop])
def test_a_tape_around_a_compiled_loop(program: Any, route: Any, call: Any) -> None:
    """XLA refuses it, with a callback or without: the lists of the loop would leave the program."""
    with hostcall.scope(route=route):
        g.check(g.outside, call, program, [g.values(4)])
        without = functools.partial(program, g.unwrapped, tf.sin)
        compiled, expected = g.outside(jitted, without), g.outside(g.eagerly, without)
        g.assert_close(compiled(g.values(4)), expected(g.values(4)))


def three_numbers(factor: float, x: tf.Tensor) -> tf.Tensor:
    first = factor * tf.reduce_mean(tf.sin(x))
    return tf.stack([first, x[0] * tf.reduce_mean(x * x), x[-1] ** 3])


def to_three_numbers(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return 2.0 * call(function, x, result=tf.TensorSpec([3], x.dtype))


def row_by_row(factor: float, x: tf.Tensor) -> tf.Tensor:
    return tf.sin(factor * x) * tf.reverse(x, [1])


# Rows in turn and at once have sizes of their own.
@two_of_each
@pytest.mark.parametrize(
    ("vectorized", "size"), [(True, 4), (False, 1), (True, 65_536), (False, 1000)]
)
def test_a_jacobian(vectorized: bool, call: Any, place: Any, size: int) -> None:
    how = {"experimental_use_pfor": vectorized}
    whole = functools.partial(place, ask=lambda tape, y, args: tape.jacobian(y, args, **how))
    by_rows = functools.partial(
        place, ask=lambda tape, y, args: tape.batch_jacobian(y, args[0], **how)
    )
    x = g.values(size, "float64")
    g.check(whole, call, to_three_numbers, [x], three_numbers)
    g.check(by_rows, call, g.once, [tf.reshape(x, [-1, min(size, 4)])], row_by_row)


@pytest.mark.each_value
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


@pytest.mark.each_value
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


@pytest.mark.each_value
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


# `grad=` of hostcall.callback: TensorFlow code or a callback.


def uneven(x: Any) -> Any:
    """Compute results of two elements each, for arrays or tensors; the gradients depend on both."""
    if isinstance(x, np.ndarray):
        return np.exp(np.sin(x) + x[::-1])
    return tf.exp(tf.sin(x) + tf.reverse(x, [0]))


def slope_in_numpy(x: np.ndarray, upstream: np.ndarray) -> np.ndarray:
    flow = upstream * uneven(x)
    return flow * np.cos(x) + flow[::-1]


def slope_by_results(inputs: Any, results: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    (x,) = inputs
    flow = upstream * results
    return flow * tf.cos(x) + tf.reverse(flow, [0])


def slope_by_inputs(inputs: Any, results: Any, upstream: tf.Tensor) -> tf.Tensor:
    return slope_by_results(inputs, uneven(*inputs), upstream)


def by_host(function: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    slope = hostcall.callback(function, result=like, kind=kind)
    return lambda inputs, results, upstream: slope(*inputs, upstream)


# The gradients that can be differentiated once more come first.
SLOPES: dict[str, Callable[..., Any]] = {
    "TensorFlow code": slope_by_inputs,
    "TensorFlow code that takes the results": slope_by_results,
    "an eager callback": by_host(lambda x, upstream: slope_by_inputs([x], None, upstream), "eager"),
    "a numpy callback": by_host(slope_in_numpy, "numpy"),
    "a callback in its place": hostcall.callback(
        lambda inputs, results, upstream: slope_in_numpy(inputs[0], upstream),
        result=lambda inputs, results, upstream: like(*inputs),
    ),
}
each_slope = pytest.mark.parametrize("slope", SLOPES)
each_differentiable_slope = pytest.mark.parametrize("slope", list(SLOPES)[:3])
each_kind = pytest.mark.parametrize("kind", ["numpy", "eager"])


def given(slope: str, kind: Any) -> Callable[..., Any]:
    """A wrapper, as those of `g.check`."""
    make = functools.partial(hostcall.callback, result=like, kind=kind, grad=SLOPES[slope])
    return lambda function, x: make(function)(x)


def check_given(place: Any, call: Any, program: Any, size: int) -> None:
    g.check(place, call, program, [g.values(size, "float64")], lambda factor, x: uneven(x))


@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("program", "place", "kind", "size"),
    [
        *((g.once, g.inside, "numpy", size) for size in (1, 65_536)),
        *((g.once, g.outside, kind, size) for kind, size in (("numpy", 300_000), ("eager", 4))),
        (g.loop, g.inside, "numpy", 4),
        *((g.branches, place, "numpy", 1000) for place in g.PLACES.values()),
    ],
)
@each_slope
def test_a_given_gradient(slope: str, program: Any, place: Any, kind: Any, size: int) -> None:
    check_given(place, given(slope, kind), program, size)


@pytest.mark.parametrize(
    ("slope", "place"), [*zip(SLOPES, itertools.cycle(g.PLACES.values()), strict=False)]
)
def test_a_persistent_tape_and_a_jacobian_of_given_gradients(slope: str, place: Any) -> None:
    def ask(tape: tf.GradientTape, y: Any, args: Any) -> Any:
        again = tape.gradient(y, args, output_gradients=g.weights(y, 2.0))
        return g.gradient(tape, y, args), again, tape.jacobian(y, args)

    check_given(functools.partial(place, ask=ask), given(slope, "numpy"), g.once, 4)


@pytest.mark.pairwise
@each_differentiable_slope
@pytest.mark.parametrize(
    ("program", "kind", "inner", "size"),
    [
        (g.once, "eager", 2, 65_536),
        (g.branches, "numpy", 2, 65_536),
        (g.once, "eager", 0, 4),
        (g.once, "numpy", 0, 4),
    ],
)
def test_the_second_derivative_is_that_of_the_given_gradient(
    program: Any, slope: str, kind: str, inner: int, size: int
) -> None:
    check_given(g.tapes(inner, 2), given(slope, kind), program, size)


@each_kind
@pytest.mark.parametrize("inner", [2, 0])
@pytest.mark.parametrize("slope", ["a numpy callback", "a callback in its place"])
def test_the_second_derivative_of_what_has_one_gradient_is_none(
    slope: str, kind: Any, inner: int
) -> None:
    call = functools.partial(given(slope, kind), uneven)
    assert g.tapes(inner, 2)(jitted, call)(g.values(4))[-1] == (None,)


@g.small_and_large
@g.each_place
def test_structures_and_arguments_without_a_gradient(place: Any, size: int) -> None:
    """Differentiate a function of a dict and an integer; one entry's gradient is None."""

    def run(d: Any, n: Any) -> Any:
        return {"product": d["x"] ** int(n), "sum": d["x"] + d["y"]}

    def slope(inputs: Any, results: Any, upstream: Any) -> Any:
        d, n = inputs
        power = tf.cast(n, d["x"].dtype) * results["product"] / d["x"]
        return {"x": upstream["product"] * power + upstream["sum"], "y": None}, None

    def program(call: Any, x: tf.Tensor, y: tf.Tensor) -> Any:
        results = call({"x": x, "y": y}, tf.constant(3))
        return results["product"], results["sum"] * 2.0

    result = lambda d, n: {"product": d["x"], "sum": d["x"]}  # noqa: E731
    call = hostcall.callback(run, result=result, grad=slope)
    args = [g.values(size, "float64") + 2.0, g.values(size, "float64", seed=1)]
    found = place(jitted, functools.partial(program, call))(*args)
    expected = place(g.eagerly, functools.partial(program, run))(*args)
    g.assert_close(found[0], expected[0])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ([], r"0 gradients for 1 argument\."),
        ([1.0, 2.0], r"2 gradients for 1 argument\."),
        (tf.zeros([7]), r"_sizes.py:.*float32\(7,\) for input 0, which is float32\(4,\)"),
        (
            tf.zeros([4], tf.float64),
            r"_sizes.py:.*float64\(4,\) for input 0, which is float32\(4,\)",
        ),
        (np.zeros([4]), r"_sizes.py:.*float64\(4,\) for input 0, which is float32\(4,\)"),
    ],
    ids=["none", "two", "shape", "dtype", "array"],
)
@pytest.mark.parametrize("mode", [jitted, tf.function, eagerly])
def test_gradients_of_another_number_shape_or_dtype_are_an_error(
    mode: Any, wrong: Any, text: str
) -> None:
    call = hostcall.callback(np.sin, result=like, grad=lambda *_: wrong)
    with pytest.raises(ValueError, match=text):
        mode(lambda x: gradient_of(call, x))(tf.ones([4]))
