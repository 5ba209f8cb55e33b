"""Executors in processes that are interrupted, end or fork. None of these processes is a fork."""

# ruff: noqa: T201 - they tell this one how far they are

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loky
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support import executors
from tests.support.executors import KINDS, X, assert_next_call_works, on
from tests.support.helpers import eagerly, jitted
from tests.support.stress.processes import (
    finish,
    interrupt,
    interrupt_main_thread,
    run_alone,
    start,
)
from tests.support.versions import on_the_callers_thread

in_child: list[Any] = []

MODES: dict[str, Callable[..., Any]] = {"plain": tf.function, "compiled": jitted, "eager": eagerly}

KINDS_HERE = ["threads", "forkserver", "loky", "dask"]
each_kind = pytest.mark.parametrize("kind", KINDS_HERE)


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def read(process: subprocess.Popen[str]) -> str:
    """The next line of a process, which has something to say if it ends before that."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line or finish(process), "it ended well, but too early"
    return line


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
        assert_next_call_works(kind)
    with executors.none_left():
        pass


@on_the_callers_thread
@pytest.mark.parametrize(
    ("kind", "in_a_terminal"),
    [*((kind, False) for kind in KINDS_HERE), *((kind, True) for kind in KINDS_HERE[:-1])],
)
def test_ctrl_c(kind: str, in_a_terminal: bool, tmp_path: Path) -> None:
    """The workers get it too in a terminal, and go on elsewhere, as in a notebook."""
    for mode in MODES:
        os.mkfifo(tmp_path / mode)
    process = start(is_interrupted, kind, str(tmp_path), group=in_a_terminal)
    for mode in MODES:
        assert (tmp_path / mode).read_text()
        gate = tmp_path / f"{mode}.gate"
        if in_a_terminal:
            if kind == "threads" and mode == "plain":
                gate.touch()
            os.killpg(process.pid, signal.SIGINT)
        else:
            interrupt(process)
            if mode == "plain":  # the main thread waits in TensorFlow, which waits for the call
                gate.touch()
        assert read(process) == mode
        gate.touch()
        say(process, mode)
    if in_a_terminal:
        process.communicate(timeout=60.0)
        assert process.returncode == 0
    else:
        finish(process)


@pytest.mark.parametrize("mode", [pytest.param("compiled", marks=on_the_callers_thread), "eager"])
def test_ctrl_c_anywhere(mode: str) -> None:
    """Python's pools of threads may keep a lock for ever that they hold when it comes."""
    run_alone(is_interrupted_anywhere, mode, 1000)


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
    """Run a program, and ignore its error, as the process may end before the call does."""
    with contextlib.suppress(tf.errors.OpError):
        program(X)


@each_kind
def test_a_process_that_ends_with_calls_in_flight(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    process = start(ends_with_calls_in_flight, kind, str(tmp_path))
    assert read(process) == "ends"
    (tmp_path / "gate").touch()  # Python waits for calls on threads and processes
    finish(process)


def forks(kind: str) -> None:
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


@each_kind
def test_forks(kind: str) -> None:
    run_alone(forks, kind)
