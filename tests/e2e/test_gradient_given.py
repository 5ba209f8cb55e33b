"""`grad=` of hostcall.callback: TensorFlow code or a callback, at every size."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.helpers import eagerly, gradient_of, jitted, like, raising


def function(x: Any) -> Any:
    """Compute results of two elements each, for arrays or tensors; the gradients depend on both."""
    if isinstance(x, np.ndarray):
        return np.exp(np.sin(x) + x[::-1])
    return tf.exp(tf.sin(x) + tf.reverse(x, [0]))


def slope_in_numpy(x: np.ndarray, upstream: np.ndarray) -> np.ndarray:
    flow = upstream * function(x)
    return flow * np.cos(x) + flow[::-1]


def slope_by_results(inputs: Any, results: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    (x,) = inputs
    flow = upstream * results
    return flow * tf.cos(x) + tf.reverse(flow, [0])


def slope_by_inputs(inputs: Any, results: Any, upstream: tf.Tensor) -> tf.Tensor:
    return slope_by_results(inputs, function(*inputs), upstream)


def host_slope(kind: str) -> Callable[..., Any]:
    slope = hostcall.callback(
        slope_in_numpy
        if kind == "numpy"
        else lambda x, upstream: slope_by_inputs([x], None, upstream),
        result=like,
        kind=kind,
    )
    return lambda inputs, results, upstream: slope(*inputs, upstream)


def structured_host_slope() -> Callable[..., Any]:
    """A callback in the place of `grad` itself."""
    return hostcall.callback(
        lambda inputs, results, upstream: slope_in_numpy(inputs[0], upstream),
        result=lambda inputs, results, upstream: like(*inputs),
    )


# The gradients that can be differentiated once more come first.
SLOPES: dict[str, Callable[..., Any]] = {
    "TensorFlow code": slope_by_inputs,
    "TensorFlow code that takes the results": slope_by_results,
    "an eager callback": host_slope("eager"),
    "a numpy callback": host_slope("numpy"),
    "a callback in its place": structured_host_slope(),
}
each_slope = pytest.mark.parametrize("slope", SLOPES)
each_differentiable_slope = pytest.mark.parametrize("slope", list(SLOPES)[:3])
each_kind = pytest.mark.parametrize("kind", ["numpy", "eager"])


def callback(slope: str, kind: str = "numpy") -> tuple[Callable[..., Any], list[int]]:
    """The callback, and a list that has an entry for each of its calls."""
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return function(x)

    called = hostcall.callback(counted, result=like, kind=kind, grad=SLOPES[slope])
    return called, calls


def once(call: Any, x: tf.Tensor) -> tf.Tensor:
    return call(2.0 * x)


def loop(call: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(5):
        x = 0.1 * call(x)
    return x


def branches(call: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0] > 0.0, lambda: 2.0 * call(x), lambda: call(x * x) + x)


def check(
    place: Any, program: Any, call: Any, dtype: str, size: int, ask: g.Ask = g.gradient
) -> None:
    compiled = place(jitted, functools.partial(program, call), ask)
    expected = place(g.eagerly, functools.partial(program, function), ask)
    for x in (g.values(size, dtype), -g.values(size, dtype)):
        g.assert_close(compiled(x), expected(x))


@pytest.mark.parametrize(
    ("program", "place", "kind", "size", "runs"),
    [
        *((once, g.inside, "numpy", size, 1) for size in g.SIZES),
        *((once, g.outside, kind, size, 1) for size in (4, 65_536) for kind in ("numpy", "eager")),
        *((loop, g.inside, "numpy", size, 5) for size in (4, 65_536)),
        *((branches, place, "numpy", 1000, 1) for place in g.PLACES.values()),
    ],
)
@each_slope
def test_a_callback_is_differentiable(
    slope: str, program: Any, place: Any, kind: str, size: int, runs: int
) -> None:
    call, calls = callback(slope, kind)
    check(place, program, call, "float64", size)
    assert len(calls) == 2 * runs


@g.each_place
@each_slope
def test_a_persistent_tape_and_a_jacobian(slope: str, place: Any) -> None:
    def ask(tape: tf.GradientTape, y: Any, args: Any) -> Any:
        again = tape.gradient(y, args, output_gradients=g.weights(y, 2.0))
        return g.gradient(tape, y, args), again, tape.jacobian(y, args)

    call, calls = callback(slope)
    check(place, once, call, "float64", 4, ask)
    assert len(calls) == 2


def second(function: Callable[..., Any], x: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        (slope,) = g.recorded(function, g.gradient, [x])
    return tape.gradient(slope, x, output_gradients=g.weights(slope, 2.0))


def second_of(program: Callable[..., Any], inside: bool) -> Callable[..., Any]:
    """The second derivative of a compiled program, with both tapes inside of it or outside."""
    if inside:
        return jitted(functools.partial(second, program))
    return functools.partial(second, jitted(lambda x: program(x)))


@each_differentiable_slope
@pytest.mark.parametrize(
    ("program", "kind", "inside", "size"),
    [
        (once, "eager", True, 65_536),
        (branches, "numpy", True, 65_536),
        (once, "eager", False, 4),
        (once, "numpy", False, 4),
    ],
)
def test_the_second_derivative_is_that_of_grad(
    program: Any, slope: str, kind: str, inside: bool, size: int
) -> None:
    call, calls = callback(slope, kind)
    compiled = second_of(functools.partial(program, call), inside)
    for x in (g.values(size, "float64"), -g.values(size, "float64")):
        g.assert_close(compiled(x), second(functools.partial(program, function), x))
    assert len(calls) == 2


@each_kind
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("slope", ["a numpy callback", "a callback in its place"])
def test_the_second_derivative_of_what_has_one_gradient_is_none(
    slope: str, kind: str, inside: bool
) -> None:
    call, _ = callback(slope, kind)
    assert second_of(call, inside)(g.values(4)) is None


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


@pytest.mark.parametrize("given", [[], [1.0, 2.0]], ids=["none", "two"])
def test_another_number_of_gradients_is_an_error(given: Any) -> None:
    call = hostcall.callback(np.sin, result=like, grad=lambda *args: given)
    with pytest.raises(ValueError, match=f"{len(given)} gradients? for 1 argument\\."):
        jitted(lambda x: gradient_of(call, x))(g.values(4))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (tf.zeros([7]), r"float32\(7,\) for input 0, which is float32\(4,\)"),
        (tf.zeros([4], tf.float64), r"float64\(4,\) for input 0, which is float32\(4,\)"),
        (np.zeros([4]), r"float64\(4,\) for input 0, which is float32\(4,\)"),
    ],
    ids=["shape", "dtype", "array"],
)
@pytest.mark.parametrize("mode", [jitted, tf.function, eagerly])
def test_a_gradient_of_another_shape_or_dtype_is_an_error(mode: Any, given: Any, text: str) -> None:
    called = hostcall.callback(np.sin, result=like, grad=lambda *_: given)

    with pytest.raises(ValueError, match=f"test_gradient_given.py:.*{text}"):
        mode(lambda x: gradient_of(called, x))(tf.ones([4]))


def test_what_grad_raises_comes_out() -> None:
    slope = hostcall.callback(raising(ValueError("no gradient here")), result=like)
    call = hostcall.callback(
        np.sin, result=like, grad=lambda inputs, results, upstream: slope(upstream)
    )
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: no gradient here"):
            jitted(lambda x: gradient_of(call, x))(g.values(4))
