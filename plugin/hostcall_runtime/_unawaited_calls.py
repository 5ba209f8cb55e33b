"""Calls that nobody waits for, and what has become of those of one function."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from hostcall_runtime import _error_texts, _locks

WAIT = "wait"
DROP_OLDEST = "drop_oldest"

# Of the queues too.
lock = _locks.new_lock()


class Line:
    """The calls of one function.

    Attributes:
      size: how many of them may wait.
      when_full: what becomes of one more: `WAIT` or `DROP_OLDEST`.
      label: the function, with its file and line.
      handed_over, run, errors, dropped: how many calls there were, how many have ended, how many of
        those have failed, and how many will never run.
      waiting: those that have not begun, the oldest first.
      thread: the id of the thread of this process on which the latest has begun, or 0.
    """

    def __init__(self, size: int, when_full: str) -> None:
        self.size = size
        self.when_full = when_full
        self.label = ""
        self.handed_over = self.run = self.errors = self.dropped = 0
        self.waiting: dict[Call, None] = {}
        self.thread = 0
        with lock:
            _lines.add(self)

    def __reduce__(self) -> Any:
        # With a declaration it may get into a pickle, where nothing was called yet.
        return Line, (self.size, self.when_full)

    def counts(self) -> tuple[str, int, int, int, int, int]:
        """See `counts` of this module."""
        waiting = len(self.waiting)
        return self.label, self.handed_over, self.run, self.errors, self.dropped, waiting

    def leave_calls_behind(self) -> None:
        """In a forked child: the parent's calls are the parent's."""
        self.handed_over = self.run + self.dropped
        self.waiting = {}
        self.thread = 0


class Call:
    """A call that is to be made.

    Attributes:
      line: those of the same function.
      description: what errors call it.
      number: in the order in which calls were handed over.
      has_begun: whether it runs, or has run.
    """

    def __init__(
        self, line: Line, function: Callable[..., Any], args: tuple[Any, ...], description: str
    ) -> None:
        self.line = line
        self.description = description
        self.number = 0
        self._work: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, args)

    @property
    def has_begun(self) -> bool:
        return self._work is None

    def run(self) -> BaseException | None:
        """Makes it; what it raises, if anything."""
        assert self._work is not None
        function, args = self._work
        self._work = None  # the arguments are the function's alone
        try:
            function(*args)
        except BaseException as error:
            error.__traceback__ = _error_texts.without_own_frames(error.__traceback__)
            return error
        return None


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def _after_fork() -> None:
    for line in _lines:
        line.leave_calls_behind()


os.register_at_fork(after_in_child=_after_fork)


def counts(reset: bool) -> list[tuple[str, int, int, int, int, int]]:
    """What has become of the calls, for each function.

    Args:
      reset: whether to count from zero again; calls that have not ended count as new ones.

    Returns:
      For each line its label, and how many calls were handed over, have run, have failed, were
      dropped, and wait.
    """
    with lock:
        found = [line.counts() for line in _lines]
        if reset:
            for line in _lines:
                line.handed_over -= line.run + line.dropped
                line.run = line.errors = line.dropped = 0
        return found
