"""Executors in processes that are interrupted, end or fork. None of these processes is a fork."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.executors import KINDS
from tests.support.stress import executor_cases as cases
from tests.support.stress.processes import finish, interrupt, run_alone, start
from tests.support.versions import on_the_callers_thread

each_kind = pytest.mark.parametrize("kind", ["threads", "forkserver", "loky", "dask"])


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def read(process: subprocess.Popen[str]) -> str:
    """The next line of a process, which has something to say if it ends before that."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line or finish(process), "it ended well, but too early"
    return line


@on_the_callers_thread
@each_kind
def test_ctrl_c_of_the_process(kind: str, tmp_path: Path) -> None:
    """As from a notebook: the workers go on."""
    for mode in cases.MODES:
        os.mkfifo(tmp_path / mode)
    process = start(cases.is_interrupted, kind, str(tmp_path), limit=45.0)
    for mode in cases.MODES:
        assert (tmp_path / mode).read_text()
        interrupt(process)
        gate = tmp_path / f"{mode}.gate"
        if mode == "plain":  # the main thread waits in TensorFlow, which waits for the call
            gate.touch()
        assert read(process) == mode
        gate.touch()
        say(process, mode)
    finish(process)


@on_the_callers_thread
@pytest.mark.parametrize("kind", ["threads", "forkserver", "loky"])
def test_ctrl_c_in_a_terminal(kind: str, tmp_path: Path) -> None:
    """The workers get it, too."""
    for mode in cases.MODES:
        os.mkfifo(tmp_path / mode)
    process = start(cases.is_interrupted, kind, str(tmp_path), limit=45.0, group=True)
    for mode in cases.MODES:
        assert (tmp_path / mode).read_text()
        if kind == "threads" and mode == "plain":
            (tmp_path / f"{mode}.gate").touch()
        os.killpg(process.pid, signal.SIGINT)
        assert read(process) == mode
        (tmp_path / f"{mode}.gate").touch()
        say(process, mode)
    process.communicate(timeout=60.0)
    assert process.returncode == 0


@pytest.mark.parametrize("mode", [pytest.param("compiled", marks=on_the_callers_thread), "eager"])
def test_ctrl_c_anywhere(mode: str) -> None:
    """Python's pools of threads may keep a lock for ever that they hold when it comes."""
    run_alone(cases.is_interrupted_anywhere, mode, 3000, limit=100.0)


@each_kind
def test_a_process_that_ends_with_calls_in_flight(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    process = start(cases.ends_with_calls_in_flight, kind, str(tmp_path), limit=45.0)
    assert read(process) == "ends"
    (tmp_path / "gate").touch()  # Python waits for calls on threads and processes
    finish(process)


@each_kind
def test_forks(kind: str, tmp_path: Path) -> None:
    run_alone(cases.forks, kind, str(tmp_path), limit=45.0)


def test_all_kinds_are_here() -> None:
    assert {*KINDS} == {"threads", "spawn", "forkserver", "loky", "dask"}
