"""Calls that run for long are logged, once, with their line and the stack of their thread."""

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from tests.support.helpers import assert_says, jitted, partitioned

X = tf.constant([1.0, 2.0])
SPEC = tf.TensorSpec([2], tf.float32)
LIMIT = 60.0  # seconds, for what is sure to come
FILE = Path(__file__).name


class Log(logging.Handler):
    """The records of hostcall's log so far, and waiting for those that name a function."""

    def __init__(self) -> None:
        super().__init__()
        self._more = threading.Condition()
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self._more:
            self._messages.append(record.getMessage())
            self._more.notify_all()

    def of(self, name: str) -> list[str]:
        return [message for message in self._messages if f" of {name} (" in message]

    def wait_for(self, name: str, count: int = 1) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.of(name)) >= count, LIMIT)


@pytest.fixture
def log() -> Iterator[Log]:
    log, logger = Log(), logging.getLogger("hostcall")
    logger.addHandler(log)
    hostcall.configure(warn_after=0.01)
    yield log
    hostcall.configure(warn_after=30.0)
    logger.removeHandler(log)


def compiled(function: Callable[..., Any]) -> Any:
    return jitted(lambda x: tf.numpy_function(function, [x], SPEC))(X)


def in_clusters(function: Callable[..., Any]) -> Any:
    return partitioned(lambda x: tf.numpy_function(function, [x], SPEC))(X)


def in_jax(function: Callable[..., Any]) -> Any:
    struct = jax.ShapeDtypeStruct((2,), jnp.float32)
    return jax.jit(lambda x: hostcall.jax.call(function, struct, x))(jnp.array(X))


@pytest.mark.parametrize("run", [compiled, in_clusters, in_jax])
def test_the_log_names_the_call_its_line_and_where_it_is(run: Any, log: Log) -> None:
    def waits(x: Any) -> Any:
        log.wait_for(waits.__qualname__)
        return x

    np.testing.assert_array_equal(run(waits), X)
    (message,) = log.of(waits.__qualname__)
    line = waits.__code__.co_firstlineno
    assert_says(message, f"{FILE}:{line}), called at ", "more than 0.01 s", "warn_after=...")
    assert_says(message, f'{FILE}", line {line + 1}, in waits', "log.wait_for(waits.")


def test_each_call_is_logged_once(log: Log) -> None:
    calls = 0

    def later(x: Any) -> Any:
        log.wait_for(later.__qualname__, calls)
        return x

    def waits(x: Any) -> Any:
        log.wait_for(waits.__qualname__, calls)
        compiled(later)  # when that is logged, the log has looked at this call again
        return x

    for calls in (1, 2):
        compiled(waits)
        assert len(log.of(waits.__qualname__)) == calls


def test_a_call_that_waits_for_the_next_one_is_logged(log: Log) -> None:
    second_runs = threading.Event()
    met = []

    def first(x: Any) -> Any:
        log.wait_for(first.__qualname__)
        met.append(second_runs.is_set())
        return x

    def second(x: Any) -> Any:
        second_runs.set()
        return x

    def program(x: tf.Tensor) -> Any:
        y = tf.numpy_function(first, [x], SPEC)
        return y, tf.numpy_function(second, [x], SPEC)

    jitted(program)(X)
    assert met == [False]
    (message,) = log.of(first.__qualname__)
    assert_says(message, "begins only when this one has ended")


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_call_that_no_program_waits_for_is_logged(
    workers: int, is_compiled: bool, log: Log
) -> None:
    def waits(x: Any) -> None:
        log.wait_for(waits.__qualname__)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        executor = pool if workers else None
        handed_over = hostcall.callback(waits, result=[], wait=False, executor=executor)
        (jitted(lambda x: [handed_over(x), x][1]) if is_compiled else handed_over)(X)
        hostcall.barrier()
    (message,) = log.of(waits.__qualname__)
    line = waits.__code__.co_firstlineno
    assert_says(message, f"{FILE}:{line}", "No program waits for it (wait=False)")
    assert_says(message, f'{FILE}", line {line + 1}, in waits', "log.wait_for(waits.")


@pytest.mark.parametrize("wrong", [-1.0, "soon", True, float("nan")])
def test_no_other_values_are_taken(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"warn_after=.* is not a number of seconds"):
        hostcall.configure(warn_after=wrong)


SCRIPT = """
import logging, threading
import jax, jax.numpy as jnp, numpy as np
import hostcall.jax

told = threading.Event()
class Log(logging.Handler):
    def emit(self, record):
        print(record.getMessage().splitlines()[0])
        told.set()
logging.getLogger("hostcall").addHandler(Log())

def waits(x):
    assert told.wait(60.0)
    return np.asarray(x)

struct = jax.ShapeDtypeStruct((), jnp.float32)
jax.jit(lambda x: hostcall.jax.call(waits, struct, x))(1.0).block_until_ready()
"""


def test_the_environment_sets_the_time(run_python: Callable[..., str]) -> None:
    printed = run_python(SCRIPT, HOSTCALL_WARN_AFTER="0.01")
    assert_says(printed, "a call has run for more than 0.01 s: hostcall.jax.call of waits")
