"""hostcall.collect_stats and hostcall.stats; and what TensorFlow's profiler sees."""

import concurrent.futures
import dataclasses
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import CallbackStats
from tests.support import executor_functions as functions
from tests.support.helpers import assert_says, failure, gradient_of, jitted, like, plain, raising
from tests.support.native_code.programs import NEXT, of
from tests.support.threads import PATIENCE, in_threads, running

X = tf.constant([1.0, 2.0, 3.0, 4.0])


pytestmark = pytest.mark.usefixtures("collected_stats")


@pytest.fixture(params=["custom_call", "partition"])
def route(request: pytest.FixtureRequest) -> Iterator[str]:
    with hostcall.scope(route=request.param):
        yield request.param


def same(op: Any, function: Callable[..., Any] = lambda v: v) -> Any:
    return jitted(lambda x: tf.ensure_shape(op(function, [x], tf.float32), x.shape) * 2.0)


def test_a_repl_and_a_notebook_show_stats_as_tables() -> None:
    assert_says(repr(hostcall.stats()), "no functions have been called")
    same(tf.numpy_function, np.negative)(X)
    shown = hostcall.stats()
    assert repr(shown) == str(shown)
    assert_says(repr(shown), "Calls\n", "function seconds", "negative", " 32 ")
    assert_says(shown._repr_html_(), "<h3>Calls</h3>", "<th>bytes</th>", "<td>32</td>")
    hostcall.collect_stats(False)
    assert_says(repr(type(shown)()), "collect_stats() counts")


@pytest.mark.parametrize("name", ["numpy_function", "py_function"])
def test_calls_are_counted(name: str, route: str) -> None:
    program = same(getattr(tf, name))
    for _ in range(3):
        program(X)
    [row] = hostcall.stats()
    assert (row.calls, row.errors) == (3, 0)
    assert row.bytes >= 3 * 2 * 16  # the number of a recorded call may add to them
    assert row.function_seconds > 0.0
    assert row.copying_seconds > 0.0
    assert row.waiting_seconds >= 0.0
    assert_says(row.callback, f"tf.{name} of ", "test_call_stats.py:")
    twice = dataclasses.astuple(row)[1:]
    assert row + row == CallbackStats(row.callback, *(2 * value for value in twice))


@pytest.mark.parametrize("wrong", [raising(ValueError("blah")), lambda v: v[1:]])
def test_errors_are_counted(wrong: Any, route: str) -> None:
    program = same(tf.numpy_function, wrong)
    for _ in range(2):
        failure(program, X)
    [row] = hostcall.stats()
    assert (row.calls, row.errors) == (2, 2)


def test_calls_of_all_threads_are_counted_until_the_next_reset(route: str) -> None:
    plain(lambda x: tf.numpy_function(lambda v: v, [x], tf.float32))(X)
    hostcall.collect_stats(False)
    program = same(tf.numpy_function)
    program(X)
    assert hostcall.stats() == []
    hostcall.collect_stats()
    in_threads(4, lambda _: [program(X) for _ in range(10)])
    assert [row.calls for row in hostcall.stats(reset=True)] == [40]
    assert hostcall.stats() == []


def test_the_one_that_takes_most_comes_first(route: str) -> None:
    def slow(v: Any) -> Any:
        np.linalg.eigvalsh(np.eye(200))
        return v

    for function in (lambda v: v, slow):
        same(tf.numpy_function, function)(X)
    first, second = hostcall.stats()
    assert "slow" in first.callback
    assert first.function_seconds > second.function_seconds


def test_gradient_calls_are_counted() -> None:
    square = lambda x: tf.py_function(lambda v: v * v, [x], tf.TensorSpec([4], tf.float32))  # noqa: E731
    np.testing.assert_array_equal(jitted(lambda x: gradient_of(square, x))(X), 2.0 * X)
    assert sorted(row.calls for row in hostcall.stats()) == [1, 1]


def named_in_profiles(v: Any) -> Any:
    return v


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: named_in_profiles, b"tf.numpy_function of named_in_profiles"),
        (lambda: of("next_float32", *NEXT), b"<hostcall.native next_float32>"),
    ],
)
def test_the_profiler_shows_calls(make: Any, shown: bytes, tmp_path: Path) -> None:
    program = same(tf.numpy_function, make())
    program(X)
    with tf.profiler.experimental.Profile(str(tmp_path)):
        program(X)
    assert shown in b"".join(file.read_bytes() for file in tmp_path.rglob("*.xplane.pb"))


def test_calls_on_executors_are_counted(route: str) -> None:
    may_end, entered = threading.Event(), threading.Event()

    def waits(x: Any) -> Any:
        entered.set()
        may_end.wait(PATIENCE)
        return x

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        program = jitted(hostcall.callback(waits, result=like, executor=pool))
        with running([lambda: program(X)], may_end):
            assert entered.wait(PATIENCE)
            [row] = hostcall.stats(reset=True).executors
            assert (row.calls, row.unfinished) == (0, 1)
        fails = hostcall.callback(raising(ValueError("blah")), result=like, executor=pool)
        failure(jitted(fails), X)
    failed, row = sorted(hostcall.stats().executors, key=lambda row: "waits (" in row.callback)
    assert "test_call_stats.py:" in row.callback
    assert (row.calls, row.unfinished) == (failed.calls, failed.unfinished) == (1, 0)
    assert row.running_seconds > 0.0
    assert row.waiting_seconds > 0.0


def test_times_of_other_processes_are_those_of_this_one() -> None:
    x = tf.ones([1 << 17])
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        lasts = hostcall.callback(
            functions.lasts_and_doubles, result=like, executor=pool, stateful=False
        )
        for size in (1 << 17, 4):
            jitted(lasts)(x[:size])
            [row] = hostcall.stats(reset=True).executors
            assert row.calls == 1
            assert row.running_seconds >= 0.01
            assert row.waiting_seconds > 0.0
            assert row.sending_seconds > 0.0


def test_executors_of_other_machines_tell_how_long_calls_ran() -> None:
    class Elsewhere(concurrent.futures.Executor):
        def submit(self, function: Any, /, *args: Any, **how: Any) -> Any:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            reply = function(*args)
            reply.began -= 1e6  # by the clock of that machine
            reply.ended -= 1e6
            future.set_result(reply)
            return future

    lasts = hostcall.callback(functions.lasts_and_doubles, result=like, executor=Elsewhere())
    np.testing.assert_array_equal(jitted(lasts)(X), 2.0 * X)
    [row] = hostcall.stats(reset=True).executors
    assert row.running_seconds >= 0.01
    assert 0.0 <= row.waiting_seconds < 100.0
