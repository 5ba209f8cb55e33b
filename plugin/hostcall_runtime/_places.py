"""The places of programs under way, of which XLA's CPU has a few."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hostcall_runtime import _library, _locks

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
        self._changed = threading.Condition(_locks.new_lock())
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
