"""Threads that share a function get the gradients of their own calls."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.helpers import jitted
from tests.support.stress.programs import like
from tests.support.threads import PATIENCE, in_threads


class Square:
    """A function whose gradient tells the inputs apart, and that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []  # appending is atomic

    def __call__(self, x: Any) -> Any:
        self.calls.append(1)
        return x * x[::-1]


def by_given_gradient(function: Any, x: tf.Tensor) -> tf.Tensor:
    def slope(x: np.ndarray, upstream: np.ndarray) -> np.ndarray:
        return upstream * x[::-1] + (upstream * x)[::-1]

    host_slope = hostcall.callback(slope, result=lambda x, upstream: like(x))
    return hostcall.callback(
        function, result=like, grad=lambda inputs, results, dy: host_slope(inputs[0], dy)
    )(x)


WRAPPERS: dict[str, Callable[..., Any]] = {**g.WRAPPERS, "grad=": by_given_gradient}


def twice(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return call(function, tf.sin(call(function, x)))


def loop(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = tf.sin(call(function, x))
    return x


PROGRAMS = {"twice": twice, "loop": loop}
CALLS = 2

pytestmark = pytest.mark.runs_in("worker")
each_size = pytest.mark.parametrize("size", [4, 65_536])
# XLA has no way out of a compiled program for what a loop keeps for its gradient.
each_program = pytest.mark.parametrize(
    ("wrapper", "program", "place"),
    [
        ("py_function", "twice", "inside"),
        ("py_function", "twice", "outside"),
        ("py_function", "loop", "inside"),
        ("callback", "twice", "inside"),
        ("grad=", "twice", "outside"),
        ("grad=", "loop", "inside"),
    ],
)

# Of each thread, which it takes in turn.
INPUTS = 3


@functools.cache
def inputs_and_gradients(program: str, size: int, number: int) -> list[Any]:
    """Inputs of one thread's own, and what the gradients are without a wrapper."""
    unwrapped = functools.partial(PROGRAMS[program], g.unwrapped, Square())
    slope = g.inside(g.eagerly, unwrapped)
    inputs = [g.values(size, "float64", seed=INPUTS * number + i) for i in range(INPUTS)]
    return [(x, slope(x)) for x in inputs]


@pytest.mark.pairwise
@each_program
@each_size
@pytest.mark.parametrize("threads", [4, 16], ids=["when warm", "at the first compilation"])
def test_threads_that_share_a_function(
    wrapper: str, program: str, place: str, size: int, threads: int
) -> None:
    function = Square()
    slope = g.PLACES[place](
        jitted, functools.partial(PROGRAMS[program], WRAPPERS[wrapper], function)
    )
    expected = [inputs_and_gradients(program, size, number) for number in range(threads)]
    times = 2
    if threads == 4:
        times = 100
        slope(g.values(size, "float64"))
        function.calls.clear()

    def work(number: int) -> None:
        for i in range(times):
            x, gradient = expected[number][i % INPUTS]
            g.assert_close(slope(x), gradient)

    in_threads(threads, work)
    assert len(function.calls) == threads * times * CALLS


@pytest.mark.parametrize("wrapper", WRAPPERS)
@each_size
def test_a_tape_that_is_asked_on_another_thread(wrapper: str, size: int) -> None:
    function = Square()
    compiled = jitted(functools.partial(twice, WRAPPERS[wrapper], function))
    expected = [inputs_and_gradients("twice", size, number)[0] for number in range(4)]
    tapes: list[Any] = [None] * 4

    def record(number: int) -> None:
        x, _ = expected[number]
        with tf.GradientTape() as tape:
            tape.watch(x)
            tapes[number] = tape, compiled(x)

    def ask(number: int) -> None:
        tape, y = tapes[3 - number]
        x, gradient = expected[3 - number]
        g.assert_close(g.gradient(tape, y, [x]), [gradient])

    for _ in range(5):
        in_threads(4, record)
        in_threads(4, ask)
    assert len(function.calls) == 5 * 4 * CALLS


@pytest.mark.parametrize("wrapper", g.WRAPPERS)
def test_tracing_beside_a_recorded_run(wrapper: str) -> None:
    """One thread traces nested gradients while the recorded run of another has not ended."""
    entered, leave = threading.Event(), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        entered.set()
        assert leave.wait(PATIENCE)
        return x

    def forward(x: tf.Tensor) -> tf.Tensor:
        y = twice(WRAPPERS[wrapper], Square(), x)
        return tf.numpy_function(wait, [y], like(y)) * 0.0 + y

    def second(program: Callable[..., Any], x: tf.Tensor) -> Any:
        inner = g.eagerly(program) if tf.executing_eagerly() else tf.function(program)
        with tf.GradientTape() as tape:
            tape.watch(x)
            (slope,) = g.recorded(lambda x: inner(inner(x)), g.gradient, [x])
        return tape.gradient(slope, x)

    x = g.values(4, "float64")
    unwrapped = functools.partial(twice, g.unwrapped, Square())
    slope = g.outside(jitted, forward)

    def work(number: int) -> None:
        if number == 0:
            g.assert_close(slope(x), g.inside(g.eagerly, unwrapped)(x))
            return
        try:
            assert entered.wait(PATIENCE)
            program = functools.partial(twice, WRAPPERS[wrapper], Square())
            found = jitted(functools.partial(second, program))(x)
            g.assert_close(found, second(unwrapped, x))
        finally:
            leave.set()

    in_threads(2, work)
