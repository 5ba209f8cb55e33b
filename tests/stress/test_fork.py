"""Forks of a process that has imported hostcall: the rule is in docs/sharp-bits.md."""

import faulthandler
import functools
import gc
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall_runtime import _threads, _watchdog
from tests.support.helpers import gradient_of
from tests.support.stress import fork_targets, programs
from tests.support.stress.programs import KINDS, SIZES, check, compiled, double, like, program
from tests.support.threads import PATIENCE, running, switching_often

pytestmark = pytest.mark.runs_in("template", limit=300.0)


def run_all() -> list[Any]:
    """Programs of all kinds, and gradients, which it checks and returns."""
    functions = []
    for kind, size in itertools.product(KINDS, SIZES):
        x = programs.values(size)
        functions.append(compiled(program(lambda x: double(x), kind, size)))
        check(functions[-1](x), x)
        if kind == "py_function":
            slope = gradient_of(functions[-1], x)
            np.testing.assert_array_equal(slope, tf.fill(x.shape, 2.0 * SIZES[size][1]))
    return functions


def in_child(function: Callable[[], Any], ends_as_usual: bool = False) -> None:
    # The child, which does not have its thread, would wait for that thread when it ends.
    faulthandler.cancel_dump_traceback_later()
    gc.freeze()  # a collection in the child need not write to the memory that it shares
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))  # nothing else can end it if it hangs
        function()
        if ends_as_usual:
            sys.exit(0)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"{function} ended with {status}"


def test_before_anything_has_run() -> None:
    """Parent and children may do what they like."""
    for ends_as_usual in (False, True):
        in_child(run_all, ends_as_usual)
    run_all()


def test_with_threads_that_wait_for_work() -> None:
    """Those of functions with a time limit, which the child does not have."""
    limited = _threads.within(PATIENCE, lambda x: x + 1, "a function with a limit")
    assert limited(1) == 2
    for ends_as_usual in (False, True):
        in_child(lambda: [limited(i) for i in range(3)], ends_as_usual)
    assert limited(2) == 3


def what_hostcall_keeps() -> None:
    """Tables and locks: of functions, declarations, exceptions and names."""
    assert hostcall.last_error() is None or isinstance(hostcall.last_error(), ValueError)
    hostcall.declare(lambda x: x, result=like, timeout=1.0)
    named = hostcall.callback(double, result=like, name="named in a child")
    del named
    gc.collect()
    hostcall.callback(double, result=like, name="named in a child")


def all_but_tensorflow() -> None:
    """Do all that a child may do in any state of its parent."""
    fork_targets.load(0)
    what_hostcall_keeps()
    gc.collect()


def test_after_programs() -> None:
    functions = run_all()
    for ends_as_usual in (False, True):
        in_child(all_but_tensorflow, ends_as_usual)
    in_child(functions.clear)
    for function, (_, size) in zip(functions, itertools.product(KINDS, SIZES), strict=True):
        check(function(programs.values(size)), programs.values(size))
    run_all()


def test_with_calls_in_flight() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def wait(x: Any) -> Any:
        begun.release()
        assert go_on.wait(PATIENCE)
        return x * np.float32(2.0)

    def call(kind: str, size: str) -> None:
        x = programs.values(size)
        function = program(lambda x: wait(x), kind, size)
        check(compiled(function)(x), x)
        right.append((kind, size))

    right: list[Any] = []
    cases = list(itertools.product(KINDS, SIZES))
    with running([functools.partial(call, *case) for case in cases], go_on):
        for _ in cases:
            assert begun.acquire(timeout=PATIENCE)
        assert len(calls_that_run()) >= len(cases)
        in_child(lambda: check_running(0))
        for ends_as_usual in (False, True):
            in_child(all_but_tensorflow, ends_as_usual)
    assert sorted(right) == sorted(cases)
    assert calls_that_run() == []


def calls_that_run() -> list[Any]:
    """The calls that the log would name, if they ran for long enough."""
    return [*_watchdog._calls().values()]


def check_running(count: int) -> None:
    assert len(calls_that_run()) == count
    # New threads get the memory that the stacks of the parent's threads had.
    for _ in range(8):
        thread = threading.Thread(target=calls_that_run)
        thread.start()
        thread.join()
    assert len(calls_that_run()) == count


def test_with_a_call_that_no_program_waits_for() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @hostcall.callback(result=[], wait=False)
    def waits(x: Any) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    waits(1.0)
    assert begun.wait(PATIENCE)
    assert len(calls_that_run()) == 1
    in_child(lambda: check_running(0))
    go_on.set()
    hostcall.barrier()
    assert calls_that_run() == []


def test_with_calls_that_come_and_go() -> None:
    """Other threads fail and differentiate when this one forks: they may hold any lock."""

    def fail(x: Any) -> None:
        raise ValueError("blah")

    failing = compiled(program(fail, "numpy_function", "small"))
    doubling = compiled(program(double, "py_function", "small"))
    stateless = compiled(program(double, "stateless", "small"))
    x = programs.values("small")
    stop = threading.Event()
    failures: list[BaseException] = []

    def fail_once() -> None:
        try:
            failing(x)
        except tf.errors.InvalidArgumentError:
            return
        raise AssertionError("it has not failed")

    def work(step: Callable[[], Any]) -> None:
        try:
            while not stop.is_set():
                step()
        except BaseException as failure:
            failures.append(failure)

    steps = [fail_once, fail_once, lambda: gradient_of(doubling, x), lambda: stateless(x)]
    with switching_often(), running([functools.partial(work, step) for step in steps], stop):
        for _ in range(10):
            in_child(what_hostcall_keeps)
    assert failures == []


def test_in_a_callback() -> None:
    def forks(x: Any) -> Any:
        in_child(all_but_tensorflow)
        in_child(lambda: check_running(1))
        return x * np.float32(2.0)

    def starts(x: Any) -> Any:
        done = subprocess.run(["echo", "2"], capture_output=True, check=True)
        return x * np.float32(done.stdout)

    for kind, size in itertools.product(KINDS, SIZES):
        x = programs.values(size)
        # An object of its own for each, since each is declared differently.
        check(compiled(program(lambda x: forks(x), kind, size))(x), x)
    for size in SIZES:
        x = programs.values(size)
        check(compiled(program(starts, "numpy_function", size))(x), x)


def test_loaders_that_fork() -> None:
    """`multiprocessing` with the start method "fork", which is the default of Python 3.11."""
    run_all()
    context = multiprocessing.get_context("fork")
    expected = [fork_targets.load(seed) for seed in range(8)]
    with context.Pool(2) as pool:
        np.testing.assert_array_equal(pool.map(fork_targets.load, range(8)), expected)
        pool.close()
        pool.join()
    queue = context.Queue()
    loader = context.Process(target=fork_targets.load_into, args=(queue, range(8)))
    loader.start()
    model = compiled(program(double, "py_function", "small"))
    for i in range(8):
        x = tf.constant(queue.get(timeout=PATIENCE)[1][0])
        np.testing.assert_array_equal(x, expected[i][0])
        check(model(x), x)
    loader.join()
    assert loader.exitcode == 0


def test_other_start_methods() -> None:
    """Children of "spawn", and of "forkserver" whose server has run nothing, may use TensorFlow."""
    run_all()
    children, queues = [], []
    for method in ("spawn", "forkserver"):
        context: Any = multiprocessing.get_context(method)
        context.set_forkserver_preload(["tests.stress.test_fork"])
        for _ in range(1 if method == "spawn" else 2):
            queues.append(context.Queue())
            child = context.Process(target=fork_targets.run_programs, args=(queues[-1],))
            child.start()
            children.append(child)
    for child, queue in zip(children, queues, strict=True):
        assert queue.get(timeout=60.0) == "right"
        child.join()
        assert child.exitcode == 0
