"""hostcall.collect_stats and hostcall.stats; and what TensorFlow's profiler sees."""

from __future__ import annotations

import concurrent.futures
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
from tests.support.helpers import failure, jitted, plain, raising
from tests.support.threads import PATIENCE, in_threads

X = tf.constant([1.0, 2.0, 3.0, 4.0])


pytestmark = pytest.mark.usefixtures("collected_stats")


@pytest.fixture(params=["custom_call", "partition"])
def route(request: pytest.FixtureRequest) -> Iterator[str]:
    with hostcall.scope(route=request.param):
        yield request.param


def same(op: Any, function: Callable[..., Any] = lambda v: v) -> Any:
    return jitted(lambda x: tf.ensure_shape(op(function, [x], tf.float32), x.shape) * 2.0)


def only(rows: list[CallbackStats]) -> CallbackStats:
    [row] = rows
    return row


@pytest.mark.parametrize("name", ["numpy_function", "py_function"])
def test_calls_are_counted(name: str, route: str) -> None:
    program = same(getattr(tf, name))
    for _ in range(3):
        program(X)
    row = only(hostcall.stats())
    assert row.calls == 3
    assert row.errors == 0
    assert row.bytes >= 3 * 2 * 16  # the number of a recorded call may add to them
    assert row.function_seconds > 0.0
    assert row.copying_seconds > 0.0
    assert row.waiting_seconds >= 0.0
    assert f"tf.{name} of " in row.callback
    assert "test_call_stats.py:" in row.callback


def test_errors_are_counted(route: str) -> None:
    program = same(tf.numpy_function, raising(ValueError("blah")))
    for _ in range(2):
        failure(program, X)
    row = only(hostcall.stats())
    assert (row.calls, row.errors) == (2, 2)


def test_results_that_are_not_as_declared_are_errors(route: str) -> None:
    failure(same(tf.numpy_function, lambda v: v[1:]), X)
    row = only(hostcall.stats())
    assert (row.calls, row.errors) == (1, 1)


def test_nothing_is_counted_when_it_is_off(route: str) -> None:
    hostcall.collect_stats(False)
    program = same(tf.numpy_function)
    program(X)
    assert hostcall.stats() == []
    hostcall.collect_stats()
    program(X)
    assert only(hostcall.stats()).calls == 1


def test_counts_are_reset(route: str) -> None:
    program = same(tf.numpy_function)
    program(X)
    assert only(hostcall.stats(reset=True)).calls == 1
    assert hostcall.stats() == []
    program(X)
    assert only(hostcall.stats()).calls == 1


def test_all_threads_are_counted(route: str) -> None:
    program = same(tf.numpy_function)
    program(X)
    in_threads(4, lambda _: [program(X) for _ in range(10)] and None)
    assert only(hostcall.stats()).calls == 41


def test_the_one_that_takes_most_comes_first(route: str) -> None:
    def slow(v: Any) -> Any:
        np.linalg.eigvalsh(np.eye(200))
        return v

    quick, slow_program = same(tf.numpy_function), same(tf.numpy_function, slow)
    for program in (quick, slow_program):
        program(X)
    first, second = hostcall.stats()
    assert "slow" in first.callback
    assert first.function_seconds > second.function_seconds


def test_gradient_calls_are_counted() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.ensure_shape(tf.py_function(lambda v: v * v, [x], tf.float32), [4])
        return tape.gradient(y, x)

    np.testing.assert_array_equal(jitted(program)(X), 2.0 * X)
    assert sorted(row.calls for row in hostcall.stats()) == [1, 1]


def test_callbacks_of_plain_functions_are_not() -> None:
    plain(lambda x: tf.numpy_function(lambda v: v, [x], tf.float32))(X)
    assert hostcall.stats() == []


def test_stats_of_one_callback_add_up() -> None:
    row = CallbackStats("f", 1, 1, 0.5, 1.0, 2.0, 8)
    assert row + row == CallbackStats("f", 2, 2, 1.0, 2.0, 4.0, 16)


def test_the_profiler_shows_calls(tmp_path: Path) -> None:
    def named_in_profiles(v: Any) -> Any:
        return v

    program = same(tf.numpy_function, named_in_profiles)
    program(X)
    with tf.profiler.experimental.Profile(str(tmp_path)):
        program(X)
    profiles = b"".join(file.read_bytes() for file in tmp_path.rglob("*.xplane.pb"))
    assert b"tf.numpy_function of test_the_profiler_shows_calls.<locals>.named_in" in profiles


def test_calls_on_executors_are_counted(route: str) -> None:
    may_end = threading.Event()
    entered = threading.Event()

    def waits(x: Any) -> Any:
        entered.set()
        may_end.wait(PATIENCE)
        return x

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = hostcall.callback(waits, result=lambda x: x, executor=pool)
        program = jitted(lambda x: waiting(x))
        thread = threading.Thread(target=program, args=(X,))
        thread.start()
        assert entered.wait(PATIENCE)
        [row] = hostcall.stats(reset=True).executors
        assert (row.calls, row.unfinished) == (0, 1)
        may_end.set()
        thread.join(PATIENCE)
        failure(jitted(on_pool(pool, raising(ValueError("blah")))), X)
    failed, row = sorted(hostcall.stats().executors, key=lambda row: "waits (" in row.callback)
    assert "test_call_stats.py:" in row.callback
    assert (row.calls, row.unfinished) == (1, 0)
    assert row.running_seconds > 0.0
    assert row.waiting_seconds > 0.0
    assert (failed.calls, failed.unfinished) == (1, 0)


def on_pool(pool: Any, function: Callable[..., Any]) -> Any:
    return hostcall.callback(function, result=lambda x: x, executor=pool)


def test_times_of_other_processes_are_those_of_this_one() -> None:
    x = tf.ones([1 << 17])
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        lasts = hostcall.callback(
            functions.lasts_and_doubles, result=lambda x: x, executor=pool, stateful=False
        )
        for size in (1 << 17, 4):
            jitted(lasts)(x[:size])
            [row] = hostcall.stats(reset=True).executors
            assert row.calls == 1
            assert row.running_seconds >= 0.01
            assert row.waiting_seconds > 0.0
            assert row.sending_seconds > 0.0


def test_chunks_are_counted_together() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        double = hostcall.map(lambda x: 2 * x, executor=pool)
        double(np.ones(4))
    [row] = hostcall.stats(reset=True).executors
    assert row.calls == 2
    assert row.callback.startswith("hostcall.map of test_chunks")


def test_executors_of_other_machines_tell_how_long_calls_ran() -> None:
    class Elsewhere(concurrent.futures.Executor):
        def submit(self, function: Any, /, *args: Any, **how: Any) -> Any:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            reply = function(*args)
            reply.began -= 1e6  # by the clock of that machine
            reply.ended -= 1e6
            future.set_result(reply)
            return future

    lasts = on_pool(Elsewhere(), functions.lasts_and_doubles)
    np.testing.assert_array_equal(jitted(lasts)(X), 2.0 * X)
    [row] = hostcall.stats(reset=True).executors
    assert row.running_seconds >= 0.01
    assert 0.0 <= row.waiting_seconds < 100.0
