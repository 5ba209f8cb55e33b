"""`retries=`: calls of pure functions are made again where their worker has died."""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support import process_pools
from tests.support.helpers import MODES, failure
from tests.support.process_pools import end_pools
from tests.support.process_pools import one_process as processes

X = tf.constant([1.0, 2.0, 3.0])

each_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module", autouse=True)
def _no_processes_left() -> Iterator[None]:
    yield
    end_pools()


def like(x: Any) -> Any:
    return tf.TensorSpec(x.shape, x.dtype)


def ending_once(folder: Path) -> Any:
    return functools.partial(functions.ends_once, folder=str(folder))


@each_mode
def test_a_call_is_made_again(mode: Any, tmp_path: Path) -> None:
    double = hostcall.callback(
        ending_once(tmp_path), result=like, executor=processes, stateful=False, retries=1
    )
    np.testing.assert_array_equal(mode(lambda x: double(x))(X), 2.0 * X)
    assert len(list(tmp_path.iterdir())) == 1


@each_mode
@pytest.mark.parametrize("how", [{"pure": True}, {"memo": True}])
def test_stock_ops_of_declared_functions(how: Any, mode: Any, tmp_path: Path) -> None:
    double = ending_once(tmp_path)
    hostcall.declare(double, result=like, executor=processes, retries=2, **how)
    program = mode(lambda x: tf.numpy_function(double, [x], tf.float32))
    np.testing.assert_array_equal(program(X), 2.0 * X)


@each_mode
def test_the_last_death_is_told(mode: Any) -> None:
    before = len(process_pools.made)
    ends = hostcall.callback(
        functions.ends, result=like, executor=processes, stateful=False, retries=2
    )
    raised = hostcall.last_error(failure(mode(lambda x: ends(x)), X))
    assert isinstance(raised, hostcall.ExecutorError)
    assert "was terminated abruptly" in str(raised)
    assert "The call was made 3 times, as often as its retries allow." in str(raised)
    assert len(process_pools.made) >= before + 2


def test_without_retries_the_error_says_how_to_get_them() -> None:
    ends = hostcall.callback(functions.ends, result=like, executor=processes)
    raised = hostcall.last_error(failure(ends, X))
    assert "for pure functions alone, with retries=2" in str(raised)


@each_mode
def test_exceptions_are_no_reason(mode: Any, tmp_path: Path) -> None:
    calls = []

    def fails(x: Any) -> Any:
        calls.append(x)
        raise functions.SimulatorError(3)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        failing = hostcall.callback(fails, result=like, executor=pool, stateful=False, retries=2)
        error = failure(mode(lambda x: failing(x)), X)
    assert isinstance(hostcall.last_error(error), functions.SimulatorError)
    assert len(calls) == 1


def test_the_timeout_is_for_all_attempts_together(tmp_path: Path) -> None:
    lasts = hostcall.callback(
        functions.lasts, result=like, executor=processes, stateful=False, retries=2, timeout=0.05
    )
    raised = hostcall.last_error(failure(lasts, tf.constant(0.5)))
    assert isinstance(raised, TimeoutError)


def test_stateful_functions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"retries=2 .* stateful=False"):
        hostcall.callback(np.cumsum, result=like, executor=processes, retries=2)

    def double(x: Any) -> Any:
        return x * 2

    hostcall.declare(double, result=like, executor=processes, retries=2)
    for op in (tf.numpy_function, tf.py_function):
        with pytest.raises(ValueError, match=r"the stateful op of .*double.* pure=True"):
            op(double, [X], tf.float32)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        hostcall.declare(double, result=like, executor=pool, retries=2)
        result = tf.numpy_function(double, [X], tf.float32, stateful=False)
    np.testing.assert_array_equal(result, 2.0 * X)


@pytest.mark.parametrize("retries", [-1, 1.0, True, "2"])
def test_what_is_no_number_of_calls(retries: Any) -> None:
    with pytest.raises(ValueError, match="must be a non-negative integer"):
        hostcall.declare(executor=processes, pure=True, retries=retries)
