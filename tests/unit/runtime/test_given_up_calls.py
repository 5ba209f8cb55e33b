"""Tests of the calls that Ctrl-C gives up: those of the main thread's programs running then."""

import itertools
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from hostcall_runtime import _runs
from hostcall_runtime._runs import Waiting, choose

MAIN = threading.main_thread().ident or 0
NO_CALLBACK = -1
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run() -> Iterator[int]:
    """A run of TensorFlow's that this thread begins. No other one has a number like it."""
    run = -1000 - next(_numbers)
    _runs.begin(run)
    yield run
    del _runs.runs[run]


def _call(run: int = -1, thread: int = MAIN) -> Waiting:
    return next(_numbers), NO_CALLBACK, run, thread, time.monotonic_ns()


def test_calls_of_a_run_that_has_begun_before(run: int) -> None:
    call = _call(run)
    numbers, _, text, again = choose([call], time.monotonic_ns())
    assert numbers == [call[0]]
    assert "KeyboardInterrupt" in text
    assert again
    later = _call(run)  # which XLA begins before it lets the program fail
    assert choose([later], 0)[0] == [later[0]]


def test_not_those_of_a_run_that_has_begun_since(run: int) -> None:
    long_before = 1
    assert choose([_call(run)], long_before) == ([], 0, "", False)


def test_calls_whose_run_nobody_knows() -> None:
    before = _call()
    came = time.monotonic_ns()
    since = _call()
    of_another_thread = (*_call(thread=MAIN + 1)[:4], came)
    numbers, *_ = choose([before, of_another_thread, since], came)
    assert numbers == [before[0]]
    assert choose([before], 0)[0] == []


def test_nothing_where_the_user_has_another_handler(run: int) -> None:
    signal.signal(signal.SIGINT, lambda *_: None)
    assert choose([_call(run), _call()], time.monotonic_ns()) == ([], 0, "", False)
