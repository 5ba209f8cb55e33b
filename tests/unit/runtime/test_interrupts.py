"""Ctrl-C that waits until Python's library has given its locks back."""

import concurrent.futures
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hostcall_runtime._locks import Ended, Flag, Postponed
from tests.support.threads import in_threads

pytestmark = pytest.mark.full_run("sends signals")

INTERRUPT = signal.SIGINT


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Python's own handler of Ctrl-C."""
    before = signal.signal(INTERRUPT, signal.default_int_handler)
    yield
    signal.signal(INTERRUPT, before)


def interrupted(error: Exception | None = None) -> None:
    with Postponed():
        signal.raise_signal(INTERRUPT)
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [None, ValueError("blah")])
def test_ctrl_c_comes_when_the_context_ends_and_tells_of_its_exception(error: Any) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted(error)
    assert caught.value.__context__ is error
    assert signal.getsignal(INTERRUPT) is signal.default_int_handler


def test_the_users_own_handler_is_called_once() -> None:
    seen: list[int] = []
    signal.signal(INTERRUPT, lambda number, frame: seen.append(number))
    with Postponed():
        with Postponed():
            signal.raise_signal(INTERRUPT)
            signal.raise_signal(INTERRUPT)
        assert not seen
    assert seen == [INTERRUPT]


@pytest.mark.parametrize("action", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_not_handled_in_python_is_left_alone(action: Any) -> None:
    signal.signal(INTERRUPT, action)
    with Postponed():
        assert signal.getsignal(INTERRUPT) is action


def test_other_threads_leave_it_alone() -> None:
    def run(_: int) -> None:
        with Postponed():
            seen.append(signal.getsignal(INTERRUPT))

    seen: list[Any] = []
    in_threads(1, run)
    assert seen == [signal.default_int_handler]


def test_flag() -> None:
    flag = Flag()
    assert not flag.wait(0.0)
    assert not flag.is_set()
    flag.set()
    assert flag.is_set()
    assert flag.wait(0.0)
    assert flag.wait(None)


class Foreign:
    """A future of a library's own."""

    def __init__(self, future: concurrent.futures.Future[int]) -> None:
        self.exception = future.exception


@pytest.mark.parametrize("kind", [lambda future: future, Foreign])
def test_ended(kind: Any) -> None:
    running, cancelled = concurrent.futures.Future[int](), concurrent.futures.Future[int]()
    has_ended = Ended(kind(running))
    assert not has_ended.wait(0.0)
    running.set_result(3)
    assert has_ended.wait(None)
    has_ended = Ended(kind(cancelled))
    cancelled.cancel()
    assert has_ended.wait(None)
