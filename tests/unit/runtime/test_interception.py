"""hostcall_runtime._interception: what answers the calls of a target while threads come and go."""

import threading
from typing import Any

import pytest

from hostcall_runtime import _interception


class Recorder:
    """An interceptor that is never asked."""

    def call(self, *args: Any) -> object:
        raise AssertionError(args)


class Target:
    """A function that programs call; a SimpleNamespace cannot be held weakly."""

    host_function: Any = print
    title = description = "print"


def test_a_target_does_not_keep_an_interceptor_that_stops_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop_if_possible() -> None:
        if _interception._lock.acquire(blocking=False):
            _interception.stop()
            _interception._lock.release()

    def exchange(*args: Any) -> None:
        thread = threading.Thread(target=stop_if_possible)
        thread.start()
        thread.join()
        exchanged(*args)

    exchanged = _interception._exchange
    target = Target()
    monkeypatch.setattr(_interception, "_exchange", exchange)
    _interception.start(Recorder())
    try:
        _interception.know(target)
        intercepted = isinstance(target.host_function, _interception._Intercepted)
        assert intercepted == _interception.is_active()
    finally:
        _interception.stop()
    assert target.host_function is print
