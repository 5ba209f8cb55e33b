"""Calls without side effects overlap where XLA lets them; calls with side effects never do."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted, stateless_py_func
from tests.support.stress.programs import like
from tests.support.threads import PATIENCE, Alone, in_threads

# XLA runs programs of fewer operations, or on small buffers, one operation after another.
CALLS = 12
X = tf.range(100_000, dtype=tf.float32)


def by_callback(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    return hostcall.callback(function, result=like, stateful=False, concurrent=True)(x)


def by_py_func(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    hostcall.declare(function, concurrent=True)
    return stateless_py_func(function, [x], like(x))


def by_numpy_function(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(function, [x], like(x))


def by_py_function(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(function, [x], like(x))


STATELESS = [by_callback, by_py_func]
STATEFUL = [by_numpy_function, by_py_function]


def several(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Independent calls."""
    return lambda x: [op(function, x + float(i)) for i in range(CALLS)]


class Meeting:
    """A function whose calls go on when three of them have been in it at once.

    Those of the first run do not wait: it is not known before the first call has ended whether a
    function is slow, and quick ones are not worth another thread. XLA does not let all calls
    overlap: some of them share memory.
    """

    def __init__(self) -> None:
        self.runs = 0
        self._inside = 0
        self._lock = threading.Lock()
        self._met = threading.Event()

    def begin(self) -> None:
        self.runs += 1
        self._met.clear()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        time.sleep(0.002)  # always slow: a call that was quick blocks XLA's thread the next time
        if self.runs == 1:
            return x * np.float32(2.0)
        with self._lock:
            self._inside += 1
            if self._inside == 3:
                self._met.set()
        met = self._met.wait(PATIENCE)
        with self._lock:
            self._inside -= 1
        assert met, "no other calls came in while this one waited"
        return x * np.float32(2.0)


def inside_a_plain_function(program: Callable[..., Any]) -> Callable[..., Any]:
    inner = jitted(program)
    return tf.function(lambda x: inner(x))


@pytest.mark.parametrize("mode", [jitted, inside_a_plain_function])
@pytest.mark.parametrize("op", STATELESS)
def test_slow_calls_without_side_effects_overlap(op: Any, mode: Any) -> None:
    meeting = Meeting()
    function = mode(several(op, meeting))
    for _ in range(5):
        meeting.begin()
        for i, result in enumerate(function(X)):
            np.testing.assert_array_equal(result, (X.numpy() + np.float32(i)) * np.float32(2.0))


def test_calls_of_several_runs_overlap() -> None:
    """Each run has one call, which waits for those of the other runs, stateful or not."""
    together = threading.Barrier(4)

    def meet(x: Any) -> Any:
        together.wait(PATIENCE)
        return x

    function = jitted(lambda x: by_numpy_function(meet, x))
    results: list[Any] = []
    in_threads(4, lambda i: results.append(function(X + float(i))[0].numpy()))
    assert sorted(results) == [0.0, 1.0, 2.0, 3.0]


def mixed(alone: Alone) -> Callable[..., Any]:
    return lambda x: [STATEFUL[i % 2](alone, x + float(i)) for i in range(CALLS)]


def in_branches_and_loops(alone: Alone) -> Callable[..., Any]:
    def program(x: tf.Tensor) -> list[tf.Tensor]:
        results = [by_numpy_function(alone, x + float(i)) for i in range(4)]
        y = x
        for _ in tf.range(4):
            y = by_py_function(alone, y + 1.0)
        z = by_numpy_function(alone, x) if x[1] > 0.0 else by_py_function(alone, x + 1.0)
        return [*results, y, z, *[by_py_function(alone, x - float(i)) for i in range(3)]]

    return program


@pytest.mark.parametrize(
    "program", [lambda alone: several(by_numpy_function, alone),
                lambda alone: several(by_py_function, alone), mixed,
                in_branches_and_loops],
    ids=["numpy_function", "py_function", "mixed", "branches and loops"],
)  # fmt: skip
@pytest.mark.parametrize("mode", [jitted, inside_a_plain_function])
def test_calls_with_side_effects_run_one_after_another(mode: Any, program: Any) -> None:
    alone = Alone()
    function = mode(program(alone))
    for _ in range(4):
        function(X)
    assert (alone.calls, alone.overlaps) == (4 * CALLS, 0)


def test_the_check_for_overlaps_can_fail() -> None:
    alone = Alone()
    function = jitted(several(by_callback, alone))
    for _ in range(4):
        function(X)
    assert alone.overlaps > 0
