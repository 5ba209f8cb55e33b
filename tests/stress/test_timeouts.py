"""Callbacks that overrun their declared time: an error, and no harm done."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall_runtime import DeadlineExceededError, _threads, within
from tests.support.helpers import assert_says, eagerly, failure, gradient_of
from tests.support.stress import programs
from tests.support.stress.programs import KINDS, SIZES, check, compiled, double, plain, program
from tests.support.threads import PATIENCE, in_threads, running

# Seconds. Only calls that are late for certain take so long; the others are trivial.
LIMIT = 0.2
LIMIT_OF_MANY_THREADS = 0.4
NO_LIMIT = 600.0

each_kind = pytest.mark.parametrize("kind", KINDS)
each_size = pytest.mark.parametrize("size", SIZES)
each_mode = pytest.mark.parametrize("mode", [compiled, plain])
X = [1.0, 2.0, 3.0]


class Gate:
    """A gate at which late calls wait until the test opens it."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._changed = threading.Condition()
        self._inside = 0
        self.threads: set[int] = set()  # of the calls that are late

    def wait(self) -> None:
        with self:
            pass

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1
        self.threads.add(threading.get_ident())
        assert self._open.wait(PATIENCE)

    def __exit__(self, *_: object) -> None:
        self.threads.discard(threading.get_ident())
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def open(self) -> None:
        """Lets all calls go on, and waits until they have."""
        self._open.set()
        self.threads.clear()
        with self._changed:
            assert self._changed.wait_for(lambda: self._inside == 0, PATIENCE)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate from which on a limit counts: a busy machine may not even begin a call in time."""
    gate = Gate()
    result_within = _threads.ThreadCall.result

    def result(
        call: _threads.ThreadCall, timeout: float | None = None, description: str = ""
    ) -> Any:
        while timeout and call._thread not in gate.threads and not call._done.wait(0.01):
            pass
        call._began = time.monotonic()
        return result_within(call, timeout, description)

    monkeypatch.setattr(_threads.ThreadCall, "result", result)
    yield gate
    gate.open()


class Late:
    """Twice its argument; a call is late from the one with that number on."""

    def __init__(self, gate: Gate, late_from: int = 1) -> None:
        self.calls = 0
        self.returned: list[np.ndarray] = []
        self._gate = gate
        self._late_from = late_from

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.calls >= self._late_from:
            with self._gate:
                self.returned.append(np.asarray(x) * np.float32(2.0))
        return x * np.float32(2.0)


def assert_late(error: tf.errors.OpError, compiled: bool = True) -> None:
    kind = tf.errors.DeadlineExceededError if compiled else tf.errors.UnknownError
    assert type(error) is kind, error
    assert f"has not returned within its timeout of {LIMIT} s" in error.message
    # The stack of the late call.
    assert_says(error.message, "with self._gate:", "self._open.wait(PATIENCE)")
    assert isinstance(hostcall.last_error(error), TimeoutError)


@pytest.mark.pairwise
@pytest.mark.parametrize("mode", [compiled, plain, eagerly])
@each_size
@each_kind
def test_a_late_call_fails_and_the_next_one_is_right(
    gate: Gate, kind: str, size: str, mode: Any
) -> None:
    x = programs.values(size)
    function = mode(program(Late(gate), kind, size, timeout=LIMIT))
    assert_late(failure(function, x), mode is compiled)
    gate.open()
    for _ in range(3):
        check(function(x), x)


@each_size
@pytest.mark.parametrize("kind", ["numpy_function", "py_function", "callback"])
def test_what_comes_after_a_late_call_in_a_loop_does_not_run(
    gate: Gate, kind: str, size: str
) -> None:
    late = Late(gate, late_from=3)

    def run(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(5):
            x = KINDS[kind](late, x, timeout=LIMIT) / 2.0 + 1.0
        return x

    function = tf.function(run, jit_compile=True)
    x = programs.values(size)
    assert_late(failure(function, x))
    assert late.calls == 3
    gate.open()
    np.testing.assert_array_equal(function(x), x + 5.0)


@each_kind
def test_a_call_in_time_is_as_without_a_limit(kind: str) -> None:
    def odd(x: Any) -> Any:
        if x[0] < 0.0:
            raise ValueError(f"{x[0]} is negative")
        return x * np.float32(2.0)

    for size in SIZES:
        x = programs.values(size)
        function = compiled(program(odd, kind, size, timeout=NO_LIMIT))
        check(function(x), x)
        error = failure(function, -x)
        assert type(error) is tf.errors.InvalidArgumentError
        assert "is negative" in error.message
        check(function(x), x)


def slow_backwards(gate: Gate) -> Callable[[Any], Any]:
    @tf.custom_gradient
    def function(x: tf.Tensor) -> Any:
        def grad(upstream: tf.Tensor) -> tf.Tensor:
            gate.wait()
            return 2.0 * upstream

        return 2.0 * x, grad

    return function


def slow_when_run_again(gate: Gate) -> Callable[[Any], Any]:
    late = Late(gate, late_from=2)
    return lambda x: late(x)


# The makers of functions, and the declarations besides the limit.
BACKWARDS = {"recorded": (slow_backwards, {}), "pure": (slow_when_run_again, {"pure": True})}


@pytest.mark.parametrize("inside", [True, False], ids=["tape inside", "tape outside"])
@each_mode
@pytest.mark.parametrize("how", BACKWARDS)
def test_a_late_gradient(gate: Gate, how: str, mode: Any, inside: bool) -> None:
    make, declared = BACKWARDS[how]
    run = program(make(gate), "py_function", "small", timeout=LIMIT, **declared)
    outer, inner = (mode, lambda run: run) if inside else (lambda run: run, mode)
    call = inner(run)
    slope = outer(lambda x: gradient_of(call, x))
    x = programs.values("small")

    error = failure(slope, x)
    assert type(error) is (tf.errors.DeadlineExceededError if mode is compiled
                           else tf.errors.UnknownError)  # fmt: skip
    assert_says(error.message, "the gradient of tf.py_function", "self._open.wait(PATIENCE)")
    gate.open()
    for _ in range(2):
        np.testing.assert_array_equal(slope(x), tf.fill([4], 2.0))


@each_kind
def test_threads_of_which_some_are_late(gate: Gate, kind: str) -> None:
    def late_where_negative(x: Any) -> Any:
        if x[0] < 0.0:
            gate.wait()
        return x * np.float32(2.0)

    run = program(late_where_negative, kind, "large", timeout=LIMIT_OF_MANY_THREADS)
    function = compiled(run)
    x = programs.values("large")
    check(function(x), x)

    def work(number: int) -> None:
        if number % 2:
            late = failure(function, -10.0 * x)
            assert type(late) is tf.errors.DeadlineExceededError
        for i in range(20):
            check(function(x + float(number + i)), x + float(number + i))

    in_threads(6, work)
    gate.open()
    check(function(-10.0 * x), -10.0 * x)


@pytest.mark.pairwise
@each_mode
@each_size
@each_kind
def test_a_late_call_keeps_its_arguments_and_its_result_is_thrown_away(
    gate: Gate, kind: str, size: str, mode: Any
) -> None:
    late = Late(gate)
    function = mode(program(late, kind, size, timeout=LIMIT))
    doubling = compiled(program(lambda x: double(x), kind, size))
    x = programs.values(size)
    failure(function, x)
    for i in range(10):  # may use the memory that the failed program had
        check(doubling(x + float(i)), x + float(i))
    results = doubling(x)
    gate.open()
    check(results, x)
    # Of the large program one call at least has begun; it was given x, x + 1 or x + 2.
    assert late.returned
    for returned in late.returned:
        assert any(np.array_equal(returned, 2.0 * (x + float(i))) for i in range(3))


@each_size
def test_a_late_call_within_a_callback_that_goes_on_without_it(gate: Gate, size: str) -> None:
    inner = compiled(program(Late(gate), "numpy_function", size, timeout=LIMIT))
    caught: list[tf.errors.OpError] = []

    def careful(x: Any) -> Any:
        caught.append(failure(inner, tf.constant(x)))
        return x * np.float32(2.0)

    x = programs.values(size)
    function = compiled(program(careful, "py_function", size, timeout=NO_LIMIT))
    check(function(x), x)
    for error in caught:
        assert_late(error)


@each_size
def test_a_callback_that_is_late_because_of_another_one(gate: Gate, size: str) -> None:
    inner = compiled(program(Late(gate), "numpy_function", size, timeout=NO_LIMIT))

    def waiting(x: Any) -> Any:
        if not gate._open.is_set():
            gate.threads.add(threading.get_ident())
        return inner(tf.constant(x))[0].numpy()

    x = programs.values(size)
    function = compiled(program(waiting, "callback", size, timeout=LIMIT))
    error = failure(function, x)
    assert type(error) is tf.errors.DeadlineExceededError
    assert "return inner(tf.constant(x))[0].numpy()" in error.message
    gate.open()
    check(function(x), x)


@pytest.mark.parametrize("raises", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_late_call_that_fails_in_the_end(
    gate: Gate, capfd: pytest.CaptureFixture[str], raises: type[BaseException]
) -> None:
    def fail(x: Any) -> Any:
        gate.wait()
        raise raises("too late to tell")

    function = compiled(lambda x: programs.callback(fail, x, timeout=LIMIT))
    assert type(failure(function, tf.constant(X))) is tf.errors.DeadlineExceededError
    gate.open()
    ok = compiled(lambda x: programs.callback(lambda x: -x, x, timeout=NO_LIMIT))
    np.testing.assert_array_equal(ok(tf.constant(X)), [-1.0, -2.0, -3.0])
    assert capfd.readouterr() == ("", "")


@pytest.mark.runs_in("template")
def test_late_calls_while_garbage_is_collected() -> None:
    """A collection of thread-local objects while the error looks where the call is."""
    go_on, over = threading.Event(), threading.Event()
    slow = within(0.001, go_on.wait, "a call")

    def leave_garbage() -> None:
        while not over.is_set():
            cycle = [threading.local()]
            cycle.append(cycle)  # type: ignore[arg-type]

    gc.freeze()
    gc.set_threshold(3)
    places: list[str] = []
    with running([leave_garbage], over):
        for _ in range(400):
            with pytest.raises(DeadlineExceededError) as caught:
                slow()
            places.append(str(caught.value))
    assert any("self._cond.wait(timeout)" in place for place in places)
    go_on.set()
    assert gc.isenabled()
    assert within(600.0, lambda: "in time", "a call")() == "in time"


@each_mode
def test_a_late_call_keeps_nothing_for_a_gradient(gate: Gate, mode: Any) -> None:
    function = mode(program(Late(gate), "py_function", "small", timeout=LIMIT))
    x = programs.values("small")
    with pytest.raises(tf.errors.OpError):
        gradient_of(function, x)
    gate.open()
    slope = gradient_of(function, x)
    np.testing.assert_array_equal(slope, tf.fill([4], 2.0))
    programs.assert_no_states()
