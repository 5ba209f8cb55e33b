"""Ctrl-C while a callback runs: KeyboardInterrupt in the caller, and a process that is sound.

Python handles signals on the main thread alone, between two steps of Python code. Where another
thread runs the callback and the main thread waits in TensorFlow, the program goes on to its end,
and KeyboardInterrupt comes then.
"""

import functools
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.errors import raising
from tests.support.helpers import failure, gradient_of
from tests.support.stress import programs
from tests.support.stress.processes import interrupt, interrupt_main_thread, start
from tests.support.stress.programs import KINDS, SIZES, WAYS, check, compiled, program
from tests.support.threads import PATIENCE, running
from tests.support.versions import on_the_callers_thread

in_worker = pytest.mark.runs_in("worker")
each_kind = pytest.mark.parametrize("kind", KINDS)
each_size = pytest.mark.parametrize("size", SIZES)
each_way = pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[on_the_callers_thread] if way == "compiled" else []) for way in WAYS],
)


def raise_here() -> None:
    """Python raises it here on the main thread, and there alone."""
    gc.callbacks.clear()  # Python drops one that comes while one of them runs, as JAX's
    signal.raise_signal(signal.SIGINT)


def from_another_thread() -> None:
    """Is interrupted while it waits, or lets the main thread be interrupted wherever that is."""
    sent = threading.Event()

    def send() -> None:
        interrupt_main_thread()
        sent.set()

    threading.Thread(target=send).start()
    assert sent.wait(PATIENCE)


SENDERS = {sender.__name__: sender for sender in (raise_here, from_another_thread)}


class Interrupted:
    """Twice its argument; the call with that number is interrupted.

    Afterwards `on_main` tells whether the main thread ran it, and `went_on` whether it went on.
    """

    def __init__(self, send: Callable[[], None], at: int = 1) -> None:
        self.calls = 0
        self.on_main = False
        self.went_on = threading.Event()
        self._send = send
        self._at = at
        self._lock = threading.Lock()

    def __call__(self, x: Any) -> Any:
        with self._lock:
            self.calls += 1
            interrupted = self.calls == self._at
        if interrupted:
            self.on_main = threading.current_thread() is threading.main_thread()
            self._send()
            self.went_on.set()
        return x * np.float32(2.0)


@functools.cache
def others(size: str) -> tuple[Any, Any]:
    """A function that nobody has interrupted, and its gradient in a compiled program."""
    run = program(lambda x: x * np.float32(2.0), "py_function", size)
    return compiled(run), compiled(lambda x: gradient_of(run, x))


def assert_sound(function: Callable[..., Any], size: str) -> None:
    """Values and gradients are right, and no states are left for gradients."""
    x = programs.values(size)
    for i in range(3):
        check(function(x + float(i)), x + float(i))
    call, slope = others(size)
    expected = np.full(x.shape, 2.0 * programs.SIZES[size][1], np.float32)
    np.testing.assert_array_equal(slope(x), expected)
    np.testing.assert_array_equal(gradient_of(call, x), expected)
    programs.assert_no_states()


@pytest.mark.pairwise
@in_worker
@each_size
@each_kind
@pytest.mark.parametrize("sender", SENDERS)
@each_way
def test_a_call(way: str, sender: str, kind: str, size: str) -> None:
    interrupted = Interrupted(SENDERS[sender], at=2 if size == "large" else 1)
    make, options = WAYS[way]
    function = make(program(interrupted, kind, size, **options))
    x = programs.values(size)
    with pytest.raises(KeyboardInterrupt):
        function(x)
    # A call on another thread may end after the program that made it.
    if not interrupted.on_main and way not in ("with a limit", "under a tape"):
        assert interrupted.went_on.wait(PATIENCE)
    if way == "compiled" and size == "small":
        assert interrupted.on_main
    if interrupted.on_main:
        assert not interrupted.went_on.is_set()
    if way == "inside a plain function":
        # The main thread waits in TensorFlow for the program, which runs to its end.
        assert not interrupted.on_main
        assert interrupted.calls == programs.SIZES[size][1]
    assert_sound(function, size)


class Unready:
    """An array that is ready when the program that waits for it has ended."""

    def __init__(self, x: np.ndarray) -> None:
        self._x = x
        self.is_waited_for, self.ended_first = False, False
        self.ended, self.is_ready = threading.Event(), threading.Event()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # Ctrl-C ends what the main thread converts itself, in any program.
        if threading.current_thread() is not threading.main_thread() and not self.is_waited_for:
            self.is_waited_for = True
            interrupt_main_thread()
            self.ended_first = self.ended.wait(PATIENCE)
            self.is_ready.set()
        return self._x


@in_worker
def test_a_result_that_becomes_ready_too_late() -> None:
    x = programs.values("large")
    unready = Unready(np.asarray(x))
    # These calls are independent: XLA makes them on several threads.
    function = compiled(program(lambda _: unready, "stateless", "large"))
    with pytest.raises(KeyboardInterrupt):
        [function(x) for _ in range(1000)]
    unready.ended.set()
    assert unready.is_ready.wait(PATIENCE)
    assert unready.ended_first
    np.testing.assert_array_equal(function(x)[0], x)


@in_worker
@on_the_callers_thread
@each_size
@pytest.mark.parametrize("kind", ["numpy_function", "py_function", "callback"])
def test_a_loop(kind: str, size: str) -> None:
    """The third iteration is interrupted: the others do not come to pass."""
    interrupted = Interrupted(raise_here, at=3)

    def run(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(5):
            x = KINDS[kind](interrupted, x) / 2.0 + 1.0
        return x

    function = tf.function(run, jit_compile=True)
    x = programs.values(size)
    with pytest.raises(KeyboardInterrupt):
        function(x)
    calls = interrupted.calls
    assert calls == 3 if interrupted.on_main else 3 <= calls <= 5
    assert interrupted.on_main or size == "large"
    np.testing.assert_array_equal(function(x), x + 5.0)
    assert interrupted.calls == calls + 5


@in_worker
@each_kind
def test_eager_execution(kind: str) -> None:
    interrupted = Interrupted(raise_here)
    x = programs.values("small")
    function = program(interrupted, kind, "small")
    with pytest.raises(KeyboardInterrupt):
        function(x)
    assert_sound(function, "small")


@in_worker
@pytest.mark.parametrize("inside", [True, False], ids=["tape inside", "tape outside"])
@pytest.mark.parametrize("mode", ["compiled", "plain", "eager"])
def test_a_gradient(mode: str, inside: bool) -> None:
    interrupts = [True]

    @tf.custom_gradient
    def double(x: tf.Tensor) -> Any:
        def grad(upstream: tf.Tensor) -> tf.Tensor:
            if interrupts:
                interrupts.pop()
                raise_here()
            return 2.0 * upstream

        return 2.0 * x, grad

    make: Callable[..., Any] = {
        "compiled": compiled,
        "plain": programs.plain,
        "eager": lambda run: run,
    }[mode]
    run = program(double, "py_function", "small")
    call = run if inside else make(run)
    slope: Callable[..., Any] = lambda x: gradient_of(call, x)  # noqa: E731
    slope = make(slope) if inside else slope
    x = programs.values("small")
    with pytest.raises(KeyboardInterrupt):
        slope(x)
    np.testing.assert_array_equal(slope(x), tf.fill([4], 2.0))
    assert_sound(call, "small")


@in_worker
@each_size
@each_kind
def test_other_threads_that_call_the_function(kind: str, size: str) -> None:
    def body(x: Any) -> Any:
        # One call of each program: a stateless call may go on when another has ended its program.
        if x[0] == -10.0:
            interrupt_main_thread()
        return x * np.float32(2.0)

    function = compiled(program(body, kind, size))
    x = programs.values(size)
    check(function(x), x)
    stop, started = threading.Event(), threading.Barrier(5)
    right: list[int] = []

    def work(number: int) -> None:
        started.wait(PATIENCE)
        calls = 0
        while not stop.is_set() or calls < 10:
            check(function(x + float(number + calls)), x + float(number + calls))
            calls += 1
        right.append(number)

    with running([functools.partial(work, number) for number in range(4)], stop):
        started.wait(PATIENCE)
        for _ in range(10):
            with pytest.raises(KeyboardInterrupt):
                function(-10.0 * x)
    assert sorted(right) == [0, 1, 2, 3]
    assert_sound(function, size)


def be_ended_by_the_parent() -> None:
    def wait(x: Any) -> None:
        os.write(1, b"waiting\n")
        threading.Event().wait(PATIENCE)

    compiled(program(wait, "numpy_function", "small"))(programs.values("small"))


@on_the_callers_thread
def test_a_process_that_does_not_catch_it_ends_as_any_other() -> None:
    process = start(be_ended_by_the_parent)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    interrupt(process)
    _, said = process.communicate(timeout=30.0)
    assert process.returncode == -signal.SIGINT
    assert said.endswith("\nKeyboardInterrupt\n")


@in_worker
@pytest.mark.parametrize("gradient", [False, True], ids=["call", "gradient"])
def test_a_program_that_computes(gradient: bool) -> None:
    """The interrupt comes when the callback has returned, and the program computes by itself."""
    main = threading.main_thread().ident or 0
    returned, sent = threading.Event(), threading.Event()

    def body(x: Any) -> Any:
        returned.set()
        return x * np.float32(2.0)

    def call(x: tf.Tensor) -> tf.Tensor:
        y = programs.py_function(body, x)
        for _ in range(12):
            y = tf.tanh(y @ y)
        return y

    def send() -> None:
        assert returned.wait(PATIENCE)
        # Wait until the main thread calls the program, below which it runs no more Python code.
        while sys._current_frames()[main].f_code.co_name != "quick_execute":
            pass
        interrupt_main_thread()
        sent.set()

    def call_and_wait() -> None:
        function(x)
        assert sent.wait(PATIENCE)  # should the program be quicker than the sender

    function = compiled((lambda x: gradient_of(call, x)) if gradient else call)
    x = tf.random.stateless_uniform([700, 700], [1, 2])
    expected = function(x)
    returned.clear()
    with running([send], threading.Event()), pytest.raises(KeyboardInterrupt):
        call_and_wait()
    np.testing.assert_array_equal(function(x), expected)
    programs.assert_no_states()


@in_worker
def test_compilation() -> None:
    traced: list[bool] = []

    def rule(x: tf.TensorSpec) -> tf.TensorSpec:
        if traced:
            traced.clear()
            raise_here()
        return programs.like(x)

    double = hostcall.callback(lambda x: x * np.float32(2.0), result=rule)
    function = compiled(lambda x: [double(x)])
    concrete = function.get_concrete_function(tf.TensorSpec([4], tf.float32))
    traced.append(True)
    with pytest.raises(KeyboardInterrupt):
        concrete(programs.values("small"))
    assert_sound(function, "small")


@in_worker
def test_other_threads_whose_callbacks_fail() -> None:
    """More callbacks fail than exceptions are kept, while the interrupt is on its way."""

    def fail(x: Any) -> None:
        raise ValueError("blah")

    failing = compiled(program(fail, "numpy_function", "small"))
    x = programs.values("small")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with pytest.raises(tf.errors.InvalidArgumentError):
                failing(x)

    with running([work] * 8, stop):
        interrupted = Interrupted(raise_here, at=1)
        function = compiled(program(interrupted, "numpy_function", "small"))
        for _ in range(60):
            interrupted.calls = 0
            with pytest.raises(KeyboardInterrupt):
                function(x)
    check(function(x), x)


@in_worker
def test_a_handler_that_calls_the_function() -> None:
    """A handler that runs TensorFlow itself, and returns: the call goes on."""
    results: list[Any] = []
    x = programs.values("small")

    def handle(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        results.append(function(x))
        assert isinstance(hostcall.last_error(failure(failing, x)), ValueError)

    failing = compiled(program(raising(ValueError("blah")), "numpy_function", "small"))
    interrupted = Interrupted(raise_here)
    function = compiled(program(interrupted, "py_function", "small"))
    signal.signal(signal.SIGINT, handle)
    check(function(x), x)
    assert interrupted.went_on.wait(PATIENCE)
    check(results[0], x)
