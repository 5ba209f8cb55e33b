"""What calls on executors cost, while somebody wants to know."""

from __future__ import annotations

import dataclasses
import time

from hostcall_runtime import _library, _locks

_runtime = _library.load("hostcall_runtime._runtime")


@dataclasses.dataclass
class Row:
    """Of one function, in seconds.

    Attributes:
      calls: how many calls have ended.
      unfinished: how many have not.
      waiting, running, sending: the sums of their parts.
    """

    calls: int = 0
    unfinished: int = 0
    waiting: float = 0.0
    running: float = 0.0
    sending: float = 0.0


_lock = _locks.new_lock()
_rows: dict[str, Row] = {}


def rows(*, reset: bool) -> dict[str, Row]:
    """By the description of the function."""
    with _lock:
        found = {label: dataclasses.replace(row) for label, row in _rows.items()}
        if reset:
            for label, row in list(_rows.items()):
                if row.unfinished:
                    _rows[label] = Row(unfinished=row.unfinished)
                else:
                    del _rows[label]
    return found


def watch(label: str) -> NoWatch:
    """What measures a call that begins now; nothing where nobody wants to know."""
    return Watch(label) if _runtime.collects_stats() else NO_WATCH


class NoWatch:
    """Measures nothing."""

    counts = False

    def hand_over(self) -> None:
        """The call is ready for the executor."""

    def ran(self, began: float, ended: float) -> None:
        """When the function was called and has returned, by the clock of its own machine."""

    def end(self) -> None:
        """The call has ended, or nobody waits for it."""


NO_WATCH = NoWatch()


class Watch(NoWatch):
    """Measures one call."""

    counts = True

    def __init__(self, label: str) -> None:
        self._label = label
        self._has_ended = False
        self._start = self._handed_over = time.monotonic()
        self._waiting = self._running = 0.0
        with _lock:
            _rows.setdefault(label, Row()).unfinished += 1

    def hand_over(self) -> None:
        self._handed_over = time.monotonic()

    def ran(self, began: float, ended: float) -> None:
        self._running += ended - began
        elapsed = time.monotonic() - self._handed_over
        waited = began - self._handed_over
        is_same_clock = 0.0 <= waited <= elapsed - (ended - began)
        self._waiting += waited if is_same_clock else elapsed - (ended - began)

    def end(self) -> None:
        total = time.monotonic() - self._start
        with _lock:
            if self._has_ended:
                return
            self._has_ended = True
            row = _rows.setdefault(self._label, Row(unfinished=1))
            row.calls += 1
            row.unfinished -= 1
            row.waiting += self._waiting
            row.running += self._running
            row.sending += max(0.0, total - self._waiting - self._running)
