"""Pools all of whose threads wait in programs, and calls that would wait for such a pool for ever.

A call on a pool may run a program that makes calls on the same pool, from another thread where the
program changes threads. Nothing tells whose such a call is. So one that finds every thread of the
pool in a call, and in there waiting for a program, runs on the thread that waits for it, as it
would without an executor.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from hostcall_runtime import _interrupts

# The seconds between two looks at a pool that has not begun a call: at first, and at most.
_FIRST = 0.002
_MOST = 0.05

# Where a thread waits for a program, and through which modules of Python's own.
_PROGRAMS = (
    "tensorflow",
    "keras",
    "jax",
    "jaxlib",
    "hostcall",
    "hostcall_mlir",
    "hostcall_runtime",
)
_WAITS = ("threading", "concurrent")

# The pools whose calls run now, by the thread.
_running: dict[int, Any] = {}

os.register_at_fork(after_in_child=_running.clear)


class _Task(Protocol):
    @property
    def has_begun(self) -> bool: ...


class Running:
    """While a call runs on the current thread of a pool."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def __enter__(self) -> None:
        _running[threading.get_ident()] = self._pool

    def __exit__(self, *_: object) -> None:
        del _running[threading.get_ident()]


def gives_back(
    pool: concurrent.futures.ThreadPoolExecutor,
    future: concurrent.futures.Future[Any],
    ended: _interrupts.Ended,
    task: _Task,
    timeout: float | None,
) -> bool:
    """Waits until a call has begun, or its time is over.

    Returns:
      Whether the pool never would begin it. Then it is cancelled, for the caller to run it.
    """
    end = None if timeout is None else time.monotonic() + timeout
    before = None
    for pause in _pauses():
        left = pause if end is None else max(0.0, min(pause, end - time.monotonic()))
        if ended.wait(left) or task.has_begun or left < pause:
            return False
        now = _waiting_places(pool)
        if now is not None and now == before and future.cancel():
            return True
        before = now
    raise AssertionError("there are always more pauses")


def _pauses() -> Iterator[float]:
    return (min(_FIRST * 2.0**i, _MOST) for i in itertools.count())


def _waiting_places(pool: concurrent.futures.ThreadPoolExecutor) -> list[tuple[int, int]] | None:
    """Where each thread of the pool waits for a program; None where one does not, or is free."""
    threads = [thread for thread, its in list(_running.items()) if its is pool]
    if len(threads) < pool._max_workers:
        return None
    frames = sys._current_frames()
    places = []
    for thread in threads:
        frame = frames.get(thread)
        if frame is None:
            return None
        place = (id(frame), frame.f_lasti)
        while frame is not None and _package_of(frame) in _WAITS:
            frame = frame.f_back
        if frame is None or _package_of(frame) not in _PROGRAMS:
            return None
        places.append(place)
    return places


def _package_of(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
