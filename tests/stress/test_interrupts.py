"""Ctrl-C while a callback runs: KeyboardInterrupt in the caller, and a process that is sound.

Python handles signals on the main thread alone, between two steps of Python code. Where another
thread runs the callback and the main thread waits in TensorFlow, the program goes on to its end,
and KeyboardInterrupt comes then.
"""

import signal

import pytest

from tests.support.stress import interrupt_cases as cases
from tests.support.stress.processes import Worker, finish, interrupt, start
from tests.support.stress.programs import KINDS, SIZES
from tests.support.versions import on_the_callers_thread

each_kind = pytest.mark.parametrize("kind", KINDS)
each_size = pytest.mark.parametrize("size", SIZES)

WAYS = [
    pytest.param(way, marks=[on_the_callers_thread] if way == "compiled" else [])
    for way in cases.WAYS
]


@each_size
@each_kind
@pytest.mark.parametrize("sender", cases.SENDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_call(worker: Worker, way: str, sender: str, kind: str, size: str) -> None:
    worker.run(cases.run_case, way, sender, kind, size)


@on_the_callers_thread
@each_size
@pytest.mark.parametrize("kind", ["numpy_function", "py_function", "callback"])
def test_a_loop(worker: Worker, kind: str, size: str) -> None:
    worker.run(cases.run_loop, kind, size)


@each_kind
def test_eager_execution(worker: Worker, kind: str) -> None:
    worker.run(cases.run_eagerly, kind)


@pytest.mark.parametrize("inside", [True, False], ids=["tape inside", "tape outside"])
@pytest.mark.parametrize("mode", ["compiled", "plain", "eager"])
def test_a_gradient(worker: Worker, mode: str, inside: bool) -> None:
    worker.run(cases.run_gradient, mode, inside)


@each_size
@each_kind
def test_other_threads_that_call_the_function(worker: Worker, kind: str, size: str) -> None:
    worker.run(cases.run_among_threads, kind, size)


def test_other_threads_whose_callbacks_fail(worker: Worker) -> None:
    worker.run(cases.run_among_threads_that_fail)


@pytest.mark.parametrize("gradient", [False, True], ids=["call", "gradient"])
def test_a_program_that_computes(worker: Worker, gradient: bool) -> None:
    worker.run(cases.run_in_native_code, gradient)


def test_compilation(worker: Worker) -> None:
    worker.run(cases.run_compilation)


def test_a_handler_that_calls_the_function(worker: Worker) -> None:
    worker.run(cases.run_handler)


@on_the_callers_thread
def test_signals_of_another_process() -> None:
    process = start(cases.wait_for_the_parent)
    assert process.stdout is not None
    for number, _ in enumerate(cases.FROM_THE_PARENT):
        assert process.stdout.readline() == f"{number}\n"
        interrupt(process)
        print(number, file=process.stdin, flush=True)
    assert finish(process) == ""


@on_the_callers_thread
def test_a_process_that_does_not_catch_it_ends_as_any_other() -> None:
    process = start(cases.be_ended_by_the_parent)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    interrupt(process)
    _, said = process.communicate(timeout=30.0)
    assert process.returncode == -signal.SIGINT
    assert said.endswith("\nKeyboardInterrupt\n")
