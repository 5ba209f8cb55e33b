"""Helpers of the tests of gradients: functions that count, ways to wrap them, places for a tape."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import eagerly as eagerly
from tests.support.helpers import jitted

# The thread that runs the callback changes with the size.
SIZES = [1, 4, 1000, 65_536, 300_000]

# The tolerances, relative to the largest magnitude.
TOLERANCES = {"float32": 1e-5, "float64": 1e-12}


def by_py_function(function: Callable[..., Any], *args: Any, result: Any = None) -> Any:
    if result is None:
        result = tf.TensorSpec(args[0].shape, args[0].dtype)
    results = tf.py_function(function, args, result)
    if isinstance(result, tf.TensorSpec):
        results.set_shape(result.shape)  # which tf.py_function says in compiled functions alone
    return results


def by_callback(function: Callable[..., Any], *args: Any, result: Any = None) -> Any:
    if result is None:
        result = tf.TensorSpec(args[0].shape, args[0].dtype)
    return hostcall.callback(function, result=result, kind="eager")(*args)


def unwrapped(function: Callable[..., Any], *args: Any, result: Any = None) -> Any:
    return function(*args)


WRAPPERS = {"py_function": by_py_function, "callback": by_callback}


def wave(factor: float, x: tf.Tensor) -> tf.Tensor:
    """A function of which no two elements, and no two factors, have the same derivatives."""
    return tf.sin(x * factor) * (1.0 + 0.5 * tf.reverse(x, [0]))


class Counted:
    """A function that counts its calls, each of which is another function of the arguments.

    So a gradient is right only where every call has a state of its own, and ran once.

    Args:
      body: takes the factor of the call, and then the arguments.
    """

    def __init__(self, body: Callable[..., Any] = wave) -> None:
        self.calls = 0
        self._body = body

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self._body(1.0 + self.calls / 8.0, *args)


def numbers(size: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Numbers between -1 and 1, the first of them positive."""
    drawn = np.random.default_rng([size, seed]).uniform(-1.0, 1.0, size)
    drawn[0] = abs(drawn[0])
    return drawn.astype(dtype)


def values(size: int, dtype: str = "float32", seed: int = 0) -> tf.Tensor:
    return tf.constant(numbers(size, dtype, seed))


def weights(y: tf.Tensor, frequency: float = 1.0) -> tf.Tensor:
    """An upstream gradient that tells the elements apart."""
    count = tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)), y.dtype)
    return tf.cos(tf.cast(frequency, y.dtype) * count)


Ask = Callable[[tf.GradientTape, Any, Sequence[tf.Tensor]], Any]


def gradient(tape: tf.GradientTape, y: Any, args: Sequence[tf.Tensor]) -> Any:
    upstream = tf.nest.map_structure(weights, y)
    return tape.gradient(y, args, output_gradients=upstream)


def recorded(function: Callable[..., Any], ask: Ask, args: Sequence[Any]) -> Any:
    with tf.GradientTape(persistent=ask is not gradient) as tape:
        tape.watch([arg for arg in args if arg.dtype.is_floating])
        y = function(*args)
    return ask(tape, y, args)


def inside(mode: Any, function: Callable[..., Any], ask: Ask = gradient) -> Callable[..., Any]:
    """Return a function of the arguments that runs `ask` with a tape inside of the tf.function."""
    return mode(lambda *args: recorded(function, ask, args))


def outside(mode: Any, function: Callable[..., Any], ask: Ask = gradient) -> Callable[..., Any]:
    """Return a function of the arguments that runs `ask` with a tape outside of the tf.function."""
    called = mode(lambda *args: function(*args))
    return lambda *args: recorded(called, ask, args)


PLACES = {"inside": inside, "outside": outside}


def derivatives(function: Callable[..., Any], orders: int, *args: Any) -> Any:
    """The values of a function, then the gradients of these, then the gradients of those."""
    if orders == 0:
        return [function(*args)]
    with tf.GradientTape() as tape:
        tape.watch(args)
        found = derivatives(function, orders - 1, *args)
    return [*found, gradient(tape, found[-1], args)]


def tapes(inner: int, orders: int) -> Callable[..., Any]:
    """As many tapes as `orders` says, as many of them in a tf.function as `inner` says."""

    def place(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        within = mode(functools.partial(derivatives, function, inner))
        if inner == orders:
            return within
        return functools.partial(derivatives, lambda *args: within(*args)[-1], orders - inner)

    return place


def once(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return call(function, tf.sin(x)) * x


def loop(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        x = 0.2 * call(function, x)
    return x


def branches(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0] > 0.0, lambda: 2.0 * call(function, x), lambda: call(function, x * x) + x)


def check(
    place: Any,
    call: Any,
    program: Callable[..., Any],
    args: Sequence[tf.Tensor],
    body: Callable[..., Any] = wave,
) -> None:
    """Compare a compiled program with the eager one that has no wrapper, in two runs each.

    Args:
      place: where the tapes are: takes a mode and a function, and returns what asks for gradients.
      call: the wrapper.
      program: takes a wrapper, the function to wrap, and then the arguments.
      args: of the first run; the second one has their negatives.
      body: of the function.
    """
    function, reference = Counted(body), Counted(body)
    compiled = place(jitted, functools.partial(program, call, function))
    expected = place(eagerly, functools.partial(program, unwrapped, reference))
    for each in (args, [-arg for arg in args]):
        assert_close(compiled(*each), expected(*each))
        assert function.calls == reference.calls


each_size = pytest.mark.parametrize("size", SIZES)
small_and_large = pytest.mark.parametrize("size", [4, 65_536])
each_place = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
each_wrapper = pytest.mark.parametrize("call", WRAPPERS.values(), ids=WRAPPERS)


def assert_close(actual: Any, expected: Any) -> None:
    """Each gradient of both is None, or equal up to the tolerance of its dtype."""
    pairs = zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True)
    for one, other in pairs:
        if one is None or other is None:
            assert one is other
            continue
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        difference, magnitude = np.max(np.abs(one - other)), np.max(np.abs(other))
        assert difference <= TOLERANCES[str(other.dtype)] * magnitude
