"""Locks and waiting, in a process where `fork()` and Ctrl-C may come at any time.

Python raises KeyboardInterrupt on the main thread between any two of its instructions. In
`threading` and `concurrent.futures` some of these lie between the moment a lock is taken and the
`with` that gives it back: the lock is never given back, and whoever needs it next waits for ever.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

from hostcall_runtime import _library

# An object with the interface of `concurrent.futures.Executor`, of which `submit` is needed.
Executor: TypeAlias = Any
# What its `submit` returns: an object with the interface of `concurrent.futures.Future`.
Future: TypeAlias = Any


def new_lock() -> threading.RLock:
    """A lock for the life of the process.

    Reentrant: Python may collect garbage anywhere, and a `__del__` of the user's may call back.
    Free in a forked child, whatever the parent's other threads were doing.
    """
    lock = threading.RLock()
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return lock


class Postponed:
    """A context in which Ctrl-C waits; it comes when the context ends.

    For what ends soon.
    """

    def __init__(self) -> None:
        self._handler: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python handles no signals there
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


class Flag:
    """What `threading.Event` is, for one thread that waits, by a lock that nobody else needs."""

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Lets the thread go on; once."""
        self._is_set = True
        self._lock.release()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def wait(self, seconds: float | None) -> bool:
        """Whether it was set; waits for that."""
        return self._is_set or self._lock.acquire(timeout=-1 if seconds is None else seconds)


class Ended:
    """Whether a future has a result, an exception, or was cancelled."""

    def __init__(self, future: Future) -> None:
        self._future = future
        self._flag: Flag | None = None
        if isinstance(future, concurrent.futures.Future):
            self._flag = flag = Flag()
            future.add_done_callback(lambda _: flag.set())

    def wait(self, seconds: float | None) -> bool:
        """Whether that is so; waits for it."""
        if self._flag is not None:
            return self._flag.wait(seconds)
        try:
            self._future.exception(seconds)
        except concurrent.futures.TimeoutError:
            return False
        except concurrent.futures.CancelledError:
            return True
        return True


_runtime = _library.load("hostcall_runtime._runtime")

# XLA's CPU has 32. One is left for programs without calls, which end whatever others do.
_COUNT = 31

_ALL_TAKEN = (
    f"{_COUNT} JAX programs with calls of Python functions are under way, all that XLA's CPU takes "
    "beside others, and each waits for one more: the functions that they call run such programs "
    "themselves. Let a function call Python functions directly, and not by a program, or let it "
    "call itself less often."
)


class Places:
    """Places that threads take one after another, also those that are in some already.

    Args:
      count: how many there are.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._chains = 0  # the places that are taken from outside of all others
        self._waiting = 0  # the threads in a place that wait for another one
        self._changed = threading.Condition(new_lock())
        self._depth = threading.local()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Takes one place, for which it may wait.

        Raises:
          RuntimeError: when nobody would ever leave one, since all wait for one more.
        """
        depth = getattr(self._depth, "value", 0)
        inside = depth > 0 or _runtime.on_pool_thread()
        self._enter(inside)
        self._depth.value = depth + 1
        try:
            yield
        finally:
            self._depth.value = depth
            self._leave(inside)

    def _enter(self, inside: bool) -> None:
        with self._changed:
            self._waiting += inside
            try:
                while not self._free:
                    # A thread for each chain: there is nobody left whom to wait for.
                    if inside and self._waiting >= self._chains:
                        raise RuntimeError(_ALL_TAKEN)
                    self._changed.wait()
            finally:
                self._waiting -= inside
            self._free -= 1
            self._chains += not inside

    def _leave(self, inside: bool) -> None:
        with self._changed:
            self._free += 1
            self._chains -= not inside
            self._changed.notify_all()


PLACES = Places(_COUNT)
