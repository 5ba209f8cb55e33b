"""Locks and waiting, in a process where `fork()` and Ctrl-C may come at any time.

Python raises KeyboardInterrupt on the main thread between any two of its instructions. In
`threading` and `concurrent.futures`, some of these lie between the acquisition of a lock and the
`with` that releases it. Then the lock stays taken, and the next thread to need it waits for ever.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

from hostcall_runtime import _library

# An object with the interface of `concurrent.futures.Executor`; only `submit` is needed.
Executor: TypeAlias = Any
# The result of its `submit`: an object with the interface of `concurrent.futures.Future`.
Future: TypeAlias = Any


def new_lock() -> threading.RLock:
    """Return a lock for the life of the process, free in a forked child."""
    # It is reentrant: Python may collect garbage anywhere, and a user's `__del__` may call back.
    lock = threading.RLock()
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return lock


class Postponed:
    """A context, for short work only, that delays Ctrl-C to its end."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python handles signals on the main thread alone
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        signal.signal(signal.SIGINT, self._handler)
        came, self._came = self._came, None
        if came is not None:
            self._handler(*came)


# Seconds between two looks for a Ctrl-C. A first pause of 2 ms would cost each call 12 µs: the
# processor's next timer is often later, so Linux must set it again.
_FIRST_PAUSE, _LAST_PAUSE = 0.02, 2.0


def wait_in_parts(comes_within: Callable[[float], bool], seconds: float | None) -> bool:
    """Wait by repeated calls of `comes_within`, and return whether one has returned True.

    Python misses a Ctrl-C that comes just before a wait, or on a thread other than the main one: it
    would raise KeyboardInterrupt only when the wait is over.
    """
    end = None if seconds is None else time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while True:
        left = pause if end is None else min(pause, max(0.0, end - time.monotonic()))
        if comes_within(left):
            return True
        if left < pause:
            return False
        pause = min(2 * pause, _LAST_PAUSE)


class Flag:
    """A `threading.Event` for one waiting thread, made of a lock that no other thread needs."""

    def __init__(self) -> None:
        self._is_set = False
        self.set_at = 0.0  # by `time.monotonic`
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let the waiting thread go on; to be called once."""
        self.set_at = time.monotonic()
        self._is_set = True
        self._lock.release()

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, seconds: float | None) -> bool:
        """Wait until the flag is set, and return whether it is."""
        return self._is_set or wait_in_parts(lambda part: self._lock.acquire(timeout=part), seconds)


class Ended:
    """The end of a future: its result, its exception or its cancellation."""

    def __init__(self, future: Future) -> None:
        self._future = future
        self._flag: Flag | None = None
        if isinstance(future, concurrent.futures.Future):
            self._flag = flag = Flag()
            future.add_done_callback(lambda _: flag.set())

    def came_after(self, deadline: float) -> bool:
        """Return whether the end, which has come, came after a time of `time.monotonic`."""
        # A thread that waits may see it much later, where others keep Python busy.
        return (time.monotonic() if self._flag is None else self._flag.set_at) > deadline

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end of the future, and return whether it came."""
        if self._flag is not None:
            return self._flag.wait(seconds)
        return wait_in_parts(self._comes_within, seconds)

    def _comes_within(self, seconds: float) -> bool:
        try:
            self._future.exception(seconds)
        except concurrent.futures.TimeoutError:
            return False
        except concurrent.futures.CancelledError:
            return True
        return True


_runtime = _library.load("hostcall_runtime._runtime")

# XLA's CPU runs 32 programs at once. One place stays free for those without calls: they end.
_COUNT = 31

_ALL_TAKEN = (
    f"{_COUNT} JAX programs with calls of Python functions are under way, all that XLA's CPU takes "
    "beside others, and each waits for one more: the functions that they call run such programs "
    "themselves. Let a function call Python functions directly, and not by a program, or let it "
    "call itself less often."
)


class Places:
    """A limited number of places for threads; a thread in one place may take another one."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._chains = 0  # the places taken by threads that were in no other place
        self._waiting = 0  # the threads that are in a place and wait for another one
        self._changed = threading.Condition(new_lock())
        self._depth = threading.local()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take one place, or wait for it; raise a RuntimeError if all holders wait for one more."""
        depth = getattr(self._depth, "value", 0)
        inside = depth > 0 or _runtime.on_pool_thread()
        self._enter(inside)
        self._depth.value = depth + 1
        try:
            yield
        finally:
            self._depth.value = depth
            self._exit(inside)

    def _enter(self, inside: bool) -> None:
        with self._changed:
            self._waiting += inside
            try:
                while not self._free:
                    # One thread of each chain waits, so no chain will leave a place.
                    if inside and self._waiting >= self._chains:
                        raise RuntimeError(_ALL_TAKEN)
                    self._changed.wait(_LAST_PAUSE)
            finally:
                self._waiting -= inside
            self._free -= 1
            self._chains += not inside

    def _exit(self, inside: bool) -> None:
        with self._changed:
            self._free += 1
            self._chains -= not inside
            self._changed.notify_all()


PLACES = Places(_COUNT)
