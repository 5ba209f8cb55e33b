"""`executor=` and `retries=`: each kind of executor gives what calls give here."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from tests.support import executor_functions as functions
from tests.support.executors import BY_NAME, BY_VALUE, KINDS, OF_PROCESSES, X
from tests.support.helpers import MODES, assert_says, eagerly, failure, jitted, partitioned
from tests.support.stress.programs import like

each_mode = pytest.mark.parametrize("mode", [*MODES, partitioned, eagerly])
each_kind = pytest.mark.parametrize("kind", KINDS)
each_kind_of_processes = pytest.mark.parametrize("kind", OF_PROCESSES)


def on(kind: str, function: Callable[..., Any], result: Any = like, **how: Any) -> Any:
    return hostcall.callback(function, result=result, executor=KINDS[kind], **how)


@pytest.mark.each_value
@each_kind
@each_mode
def test_values_come_from_the_executor(mode: Any, kind: str) -> None:
    place = on(kind, functions.place, tf.TensorSpec([3], tf.float64))
    process, has_tensorflow, total = mode(lambda x: 1.0 * place(2.0 * x))(X).numpy()
    assert total == 12.0
    if kind == "threads":
        assert process == os.getpid()
    else:
        assert (process != os.getpid(), has_tensorflow) == (True, False)


@pytest.mark.each_value
@each_kind
@each_mode
def test_functions_may_write_to_their_arguments(mode: Any, kind: str) -> None:
    increment = on(kind, functions.makes_its_own)
    program = mode(lambda x: increment(x) + 0.0 * x)
    for size in (3, 1 << 19):
        x = tf.range(float(size))
        np.testing.assert_array_equal(program(x), np.arange(1.0, size + 1.0, dtype=np.float32))
        np.testing.assert_array_equal(x, np.arange(size, dtype=np.float32))


class Lending(concurrent.futures.Executor):
    """Lends what it sends, as Ray does: arrays that nobody may write to."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        buffers: list[pickle.PickleBuffer] = []
        sent = pickle.dumps((fn, args, kwargs), protocol=5, buffer_callback=buffers.append)
        fn, args, kwargs = pickle.loads(sent, buffers=[bytes(buffer) for buffer in buffers])
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_result(fn(*args, **kwargs))
        return future


@each_mode
def test_functions_may_write_to_what_an_executor_lends(mode: Any) -> None:
    increment = hostcall.callback(functions.makes_its_own, result=like, executor=Lending())
    np.testing.assert_array_equal(mode(lambda x: increment(x) + 0.0 * x)(X), X + 1.0)


@pytest.mark.each_value
@each_kind
@each_mode
def test_each_stateful_call_runs_once(mode: Any, kind: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    noted = on(kind, functools.partial(functions.noted, str(journal)))

    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            noted(x)  # equal arguments, and nobody wants the result
        return x

    mode(program)(X)
    assert len(journal.read_text().splitlines()) == 3


@pytest.mark.each_value
@each_kind
@each_mode
def test_exceptions_are_those_of_the_function(mode: Any, kind: str) -> None:
    fails = on(kind, functions.fails)
    error = failure(mode(lambda x: fails(x)), tf.constant(5.0))
    assert isinstance(error, tf.errors.InvalidArgumentError)  # as for any ValueError
    assert_says(error.message, "in fails\n", "executor_functions.py")
    raised = hostcall.last_error(error)
    assert isinstance(raised, functions.SimulatorError)
    assert raised.sensor == 5


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["threads", *BY_VALUE, *BY_NAME])
@each_mode
def test_functions_without_a_name(mode: Any, kind: str) -> None:
    scale = 3.0
    program = mode(on(kind, lambda x: x * scale))
    if kind in BY_NAME:
        raised = hostcall.last_error(failure(program, X))
        assert isinstance(raised, hostcall.ExecutorError)
        assert_says(raised, "cannot send the function of", "<lambda>", "at the top of a module")
    else:
        np.testing.assert_array_equal(program(X), 3.0 * X)


@pytest.mark.each_value
@each_kind
@each_mode
def test_calls_that_are_late(mode: Any, kind: str) -> None:
    wait = on(kind, functions.lasts, timeout=0.05)
    error = failure(mode(lambda x: wait(x)), tf.constant(0.2))
    assert isinstance(hostcall.last_error(error), TimeoutError)
    assert "within its timeout of 0.05 s" in error.message
    double = on(kind, functions.doubled)
    np.testing.assert_array_equal(mode(double)(X), 2.0 * X)


@each_kind_of_processes
def test_pure_calls_are_made_again(kind: str, tmp_path: Path) -> None:
    once = functools.partial(functions.ends_once, folder=str(tmp_path))
    double = on(kind, once, stateful=False, retries=2)
    np.testing.assert_array_equal(jitted(double)(X), 2.0 * X)
