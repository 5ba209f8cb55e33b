"""hostcall_runtime._watchdog: its thread, where the system has none left."""

import threading

import pytest

from hostcall_runtime import _watchdog


class Refused(threading.Thread):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_it_starts_later_where_it_could_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watchdog, "_thread", None)
    monkeypatch.setattr(threading, "Thread", Refused)
    with pytest.raises(RuntimeError, match="new thread"):
        _watchdog.start()
    assert _watchdog._thread is None
