"""Calls that have ended, but too late, when the thread that waits for them sees their end."""

import concurrent.futures
import time

import pytest

from hostcall_runtime import _threads
from hostcall_runtime._errors import DeadlineExceededError
from hostcall_runtime._executors import Callee, Provider

LIMIT = 0.01


def late() -> str:
    """Compute until the limit is over."""
    begin = time.monotonic()
    while time.monotonic() - begin <= LIMIT:
        pass
    return "late"


def test_on_a_thread_of_its_own() -> None:
    call = _threads.ThreadCall(late)
    assert call._done.wait(None)
    with pytest.raises(DeadlineExceededError, match=r"It took 0.* s, and its result is thrown"):
        call.result(LIMIT, "late")


def test_in_time() -> None:
    call = _threads.ThreadCall(late)
    assert call._done.wait(None)
    assert call.result(600.0, "late") == "late"


def test_on_an_executor() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = Callee(Provider(pool), late, "late", timeout=LIMIT).start()
        call.wait()
        with pytest.raises(DeadlineExceededError, match=r"It took 0.* s, and its result is thrown"):
            call.result()
