"""hostcall.collect_stats and hostcall.stats; and what TensorFlow's profiler sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import CallbackStats
from tests.support.helpers import failure, jitted, plain, raising
from tests.support.threads import in_threads

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
