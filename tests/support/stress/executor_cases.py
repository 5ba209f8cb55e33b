"""Executors in processes that are interrupted, end or fork: tests/executors/test_processes.py."""

# ruff: noqa: T201 - it tells its parent how far it is

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import loky
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support import executors
from tests.support.executors import KINDS
from tests.support.stress.interrupt_cases import interrupt_main_thread

X = tf.constant([1.0, 2.0, 3.0])


in_child: list[Any] = []

MODES: dict[str, Callable[..., Any]] = {
    "plain": tf.function,
    "compiled": functools.partial(tf.function, jit_compile=True),
    "eager": lambda function: function,
}


def on(executor: Any, function: Callable[..., Any], **how: Any) -> Any:
    return hostcall.callback(function, result=lambda x: x, executor=executor, **how)


def assert_next_calls_work(kind: str) -> None:
    double = on(KINDS[kind], functions.doubled)
    for make in MODES.values():
        np.testing.assert_array_equal(make(double)(X), 2.0 * X)


def is_interrupted(kind: str, folder: str) -> None:
    """Calls in all modes that another process interrupts, and that go on until they may end."""
    gc.disable()  # Python drops a Ctrl-C that comes while a garbage collector's callback runs
    for mode, make in MODES.items():
        gate = os.path.join(folder, f"{mode}.gate")
        function = functools.partial(functions.waits_for, os.path.join(folder, mode), gate)
        program = make(on(KINDS[kind], function))
        with pytest.raises(KeyboardInterrupt):
            program(X)
        print(mode, flush=True)
        assert input() == mode  # the gate is open
        assert_next_calls_work(kind)
    with executors.none_left():
        pass


def is_interrupted_anywhere(mode: str, calls: int) -> None:
    """Calls of a pool of threads, each interrupted somewhere between its begin and its end."""
    gc.disable()
    sys.setswitchinterval(1e-6)
    gates = [threading.Event() for _ in range(calls)]

    def interrupts(i: Any) -> Any:
        end = time.perf_counter() + 1e-7 * float(i)
        while time.perf_counter() < end:
            pass
        interrupt_main_thread()
        gates[int(i)].wait()
        return i

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        program = MODES[mode](on(pool, interrupts))
        for i, gate in enumerate(gates):
            with pytest.raises(KeyboardInterrupt):
                program(tf.constant(i))
            gate.set()


def ends_with_calls_in_flight(kind: str, folder: str) -> None:
    """One call is under way and others wait, all of threads that nobody waits for."""
    pipe, gate = os.path.join(folder, "begun"), os.path.join(folder, "gate")
    program = MODES["compiled"](on(KINDS[kind], functools.partial(functions.waits_for, pipe, gate)))
    for _ in range(3):
        threading.Thread(target=failing_quietly, args=(program,), daemon=True).start()
    with open(pipe) as begun:
        assert begun.readline()
    print("ends", flush=True)


def failing_quietly(program: Callable[..., Any]) -> None:
    """Where the process ends before the call does."""
    with contextlib.suppress(tf.errors.OpError):
        program(X)


def forks(kind: str, folder: str) -> None:
    """A child has a clear error with the parent's executor; one that it makes works."""
    given, kept = KINDS[kind](), KINDS[kind]()
    programs = {
        "given": on(given, functions.doubled),
        "returned": on(lambda: kept, functions.doubled),
        "made": on(lambda: made_in_a_child(kind), functions.doubled),
    }
    for program in programs.values():
        np.testing.assert_array_equal(program(X), 2.0 * X)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # nothing else can end it if it hangs
        in_child.clear()
        np.testing.assert_array_equal(programs.pop("made")(X), 2.0 * X)
        for program in programs.values():
            with pytest.raises(tf.errors.OpError) as caught:
                program(X)
            assert "was forked from" in str(hostcall.last_error(caught.value))
        for executor in in_child:
            executor.shutdown()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for program in programs.values():
        np.testing.assert_array_equal(program(X), 2.0 * X)
    with executors.none_left():
        pass


def made_in_a_child(kind: str) -> Any:
    """New ones, none of which forks."""
    if kind == "loky":
        in_child.append(loky.ProcessPoolExecutor(1))
    else:
        in_child.append(KINDS["threads"]())
    return in_child[-1]
