"""What a process has in flight when it ends: when the function has returned."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.stress import programs
from tests.support.stress.programs import check, compiled, gradient, inside_plain, like, program
from tests.support.threads import PATIENCE

X = np.arange(1.0, 5.0, dtype=np.float32)


class EndsSlowly:
    """Holds the interpreter's end up, so that other threads meet it for certain."""

    def __del__(self, sleep: Any = time.sleep) -> None:
        sleep(0.3)


def keep(*values: Any) -> None:
    """Keeps values until the interpreter clears its modules."""
    sys.kept_until_the_end = values  # type: ignore[attr-defined]


Ready = Callable[[], Any]


def linger(ready: Ready) -> Any:
    """Takes and releases the GIL for as long as Python lets this thread live."""
    ready()
    while True:
        time.sleep(0.001)


def compute(ready: Ready) -> None:
    numbers = itertools.count()
    ready()
    while True:
        next(numbers)


def multiply(ready: Ready) -> None:
    matrix = np.ones([300, 300])
    ready()
    while True:
        matrix @ matrix


def wait_for_a_lock(ready: Ready) -> None:
    lock = threading.Lock()
    with lock:
        ready()
        lock.acquire()


def wait_in_tensorflow(ready: Ready) -> None:
    queue = tf.queue.FIFOQueue(1, tf.float32)

    @tf.function
    def wait() -> tf.Tensor:
        tf.numpy_function(ready, [], [])
        return queue.dequeue()

    wait()


def wait_in_a_compiled_function(ready: Ready) -> None:
    compiled(program(lambda x: linger(ready), "numpy_function", "small"))(X)


# What runs no more than a moment in TensorFlow before it waits, and hands the GIL over in Python:
# a daemon thread that does so within an eager op, or while it traces, ends the process with
# "FATAL: exception not rethrown", with stock TensorFlow as well.
DOINGS = {
    doing.__name__: doing
    for doing in (
        linger,
        compute,
        multiply,
        wait_for_a_lock,
        wait_in_tensorflow,
        wait_in_a_compiled_function,
    )
}

WAYS = {
    "compiled": (compiled, {}),
    "inside a plain function": (inside_plain, {}),
    "under a tape": (programs.under_a_tape, {}),
    "with a limit": (compiled, {"timeout": 600.0}),
}


class Begins:
    """Functions that begin what never ends when each of `count` functions has been called."""

    def __init__(self, do: Callable[[Ready], Any], count: int) -> None:
        self._do = do
        self._count = count
        self._together = threading.Barrier(count)
        self._ready = threading.Semaphore(0)

    def function(self) -> Callable[[Any], None]:
        first = threading.Semaphore(1)

        def begin(x: Any) -> None:
            if first.acquire(blocking=False):
                self._together.wait(PATIENCE)
                self._do(self._ready.release)
            self._do(lambda: None)  # calls without side effects overlap

        return begin

    def wait(self) -> None:
        """Until all of them have begun."""
        for _ in range(self._count):
            assert self._ready.acquire(timeout=PATIENCE)


def in_flight(doing: str) -> None:
    """A call of each kind in small and large programs, each on a thread of its own."""
    cases = list(itertools.product(programs.KINDS, programs.SIZES))
    ways = itertools.cycle(WAYS.values())
    for _ in range(list(DOINGS).index(doing)):
        next(ways)
    begins = Begins(DOINGS[doing], len(cases))
    for (kind, size), (way, options) in zip(cases, ways, strict=False):
        function = way(program(begins.function(), kind, size, **options))
        threading.Thread(target=function, args=(programs.values(size),), daemon=True).start()
    begins.wait()
    keep(EndsSlowly())


def in_flight_when_the_main_thread_fails(raised: str) -> None:
    in_flight("linger")
    raise {"SystemExit": SystemExit(7), "ValueError": ValueError("the end")}[raised]


def late() -> None:
    """Calls that have overrun their limit, and still run."""
    begun = threading.Semaphore(0)
    for kind, size in itertools.product(programs.KINDS, programs.SIZES):
        overrun = lambda x: linger(begun.release)  # noqa: E731 - each is declared anew
        function = compiled(program(overrun, kind, size, timeout=0.05))
        with pytest.raises(tf.errors.DeadlineExceededError):
            function(programs.values(size))
        assert begun.acquire(timeout=PATIENCE)
    keep(EndsSlowly())


def waited_for() -> None:
    """A thread that is no daemon: Python waits for it."""
    main = threading.current_thread()
    begun = threading.Event()

    def wait_for_main(x: Any) -> Any:
        begun.set()
        main.join()
        return x * np.float32(2.0)

    def call() -> None:
        for size in programs.SIZES:
            x = programs.values(size)
            check(compiled(program(wait_for_main, "numpy_function", size))(x), x)
        sys.stdout.write("right\n")

    threading.Thread(target=call).start()
    assert begun.wait(PATIENCE)


def in_background(function: Callable[..., Any], *args: Any) -> None:
    threading.Thread(target=function, args=args, daemon=True).start()
    assert entered.wait(PATIENCE)
    keep(EndsSlowly())


entered = threading.Event()


def enter_and_linger(*_: Any) -> Any:
    linger(entered.set)


def compiling() -> None:
    traced = threading.Event()

    def rule(x: tf.TensorSpec) -> tf.TensorSpec:
        if traced.is_set():
            enter_and_linger()
        return like(x)

    negative = hostcall.callback(np.negative, result=rule)
    concrete = compiled(lambda x: negative(x)).get_concrete_function(like(X))
    traced.set()
    in_background(concrete, tf.constant(X))


def dropping_what_a_gradient_kept() -> None:
    def square(x: tf.Tensor) -> tf.Tensor:
        weakref.finalize(x, enter_and_linger).atexit = False
        return x * x

    function = compiled(lambda x: gradient(lambda x: programs.py_function(square, x), x))
    in_background(function, tf.constant(X))


def dropping_a_result() -> None:
    def square(x: tf.Tensor) -> tf.Tensor:
        result = x * x
        weakref.finalize(result, enter_and_linger).atexit = False
        return result

    in_background(compiled(lambda x: programs.py_function(square, x)), tf.constant(X))


def differentiating() -> None:
    @tf.custom_gradient
    def square(x: tf.Tensor) -> Any:
        return x * x, enter_and_linger

    function = compiled(lambda x: gradient(lambda x: programs.py_function(square, x), x))
    in_background(function, tf.constant(X))


def describing_an_error() -> None:
    class TellsSlowlyError(Exception):
        def __str__(self) -> str:
            return enter_and_linger()

    def fail(x: Any) -> None:
        raise TellsSlowlyError

    in_background(compiled(lambda x: programs.callback(fail, x)), tf.constant(X))


def waiting_in_a_plain_function() -> None:
    inner = programs.plain(program(enter_and_linger, "py_function", "small"))
    in_background(
        compiled(program(lambda x: inner(x), "callback", "large")), programs.values("large")
    )


MOMENTS = {
    moment.__name__: moment
    for moment in (
        compiling,
        dropping_what_a_gradient_kept,
        dropping_a_result,
        differentiating,
        describing_an_error,
        waiting_in_a_plain_function,
    )
}


def at_a_moment(moment: str) -> None:
    MOMENTS[moment]()


def sys_exit_in_a_callback() -> None:
    compiled(lambda x: programs.callback(lambda x: sys.exit(3), x))(tf.constant(X))
