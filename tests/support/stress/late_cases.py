"""Late calls, for processes of their own."""

from __future__ import annotations

import gc
import threading

import pytest

from hostcall_runtime import DeadlineExceededError, within


def among_garbage_of_threads() -> None:
    """A collection of thread-local objects while the error looks where the call is."""
    go_on, over = threading.Event(), threading.Event()
    slow = within(0.001, go_on.wait, "a call")

    def leave_garbage() -> None:
        while not over.is_set():
            cycle = [threading.local()]
            cycle.append(cycle)  # type: ignore[arg-type]

    gc.freeze()
    gc.set_threshold(3)
    leaving = threading.Thread(target=leave_garbage, daemon=True)
    leaving.start()
    places: list[str] = []
    for _ in range(400):
        with pytest.raises(DeadlineExceededError) as caught:
            slow()
        places.append(str(caught.value))
    assert any("self._returned = function(*args)" in place for place in places)
    over.set()
    leaving.join()
    go_on.set()
    assert gc.isenabled()
    assert within(600.0, lambda: "in time", "a call")() == "in time"
