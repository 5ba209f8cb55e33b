"""The log of calls that run for long, such as those that wait for one another.

A call adds itself to a list, which costs it some nanoseconds. A thread looks at the list now and
then; it begins with the first callback of a process.
"""

from __future__ import annotations

import itertools
import logging
import numbers
import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from hostcall_runtime import _library, _locks

_log = logging.getLogger("hostcall")
_runtime = _library.load("hostcall_runtime._runtime")

_VARIABLE = "HOSTCALL_WARN_AFTER"
_SECONDS = 30.0
_FRAMES = 12  # the most that the log shows
_LOOKS = 4  # the list is looked at so often in the time after which calls are logged

# What follows for other calls.
IN_PROGRAM = (
    "If it waits for another call of the same program, that one begins only when this one has ended"
)
IN_QUEUE = (
    "No program waits for it (wait=False). Those that were handed over after it wait until it has "
    "ended, and programs wait where the queue is full"
)

_RUNS_LONG = (
    "hostcall: a call has run for more than {seconds:g} s: {call}. {consequence}. "
    f"hostcall.configure(warn_after=...), or {_VARIABLE}, sets the time; 0 logs none. "
    "The call is here:\n"
    "{stack}"
)


def checked(value: object, what: str) -> float:
    """Return a number of seconds, or raise a ValueError, which names `what`."""
    seconds = -1.0
    if isinstance(value, str | numbers.Real) and not isinstance(value, bool):
        with suppress(ValueError):
            seconds = float(value)
    if not seconds >= 0:  # not a number is neither
        raise ValueError(
            f"hostcall: {what}={value!r} is not a number of seconds, or 0 to log no call."
        )
    return seconds


_after = checked(os.environ.get(_VARIABLE) or _SECONDS, _VARIABLE)
_thread: threading.Thread | None = None
_lock = _locks.new_lock()
_changed = threading.Event()


def warn_after(seconds: float) -> None:
    """Set after how many seconds a call is logged; 0 for never."""
    global _after
    _after = seconds
    _changed.set()
    start()


def seconds() -> float:
    """Return after how many seconds a call is logged; 0 for never."""
    return _after


def start() -> None:
    """Start the thread, if none runs."""
    global _thread
    with _lock:
        if _thread is None and _after:
            # A daemon: Python does not wait for it.
            thread = threading.Thread(target=_watch, name="hostcall-watchdog", daemon=True)
            thread.start()
            _thread = thread


class _LongCall(NamedTuple):
    """A call that runs now."""

    description: str
    thread: int
    consequence: str = IN_PROGRAM
    # Returns the thread that has taken the call over, or 0.
    taken_by: Callable[[], int] = int

    def stack(self) -> str:
        """Return the innermost lines of its stack."""
        frames = _runtime.stack_of(self.taken_by() or self.thread)[:_FRAMES]
        summary = traceback.StackSummary.extract(iter(frames))  # the innermost come first
        summary.reverse()
        return "".join(summary.format()) or "(no line of Python)"


# The calls that the runtime does not see, by number.
_others: dict[int, _LongCall] = {}
_numbers = itertools.count()


def begin(
    description: str, consequence: str = IN_PROGRAM, taken_by: Callable[[], int] = int
) -> int:
    """Add a call that Python code makes for a program; return the number for `end`."""
    # Another thread may make the call, while this one waits for it: `taken_by` returns that one.
    start()
    number = next(_numbers)
    _others[number] = _LongCall(description, threading.get_ident(), consequence, taken_by)
    return number


def end(number: int) -> None:
    """Remove the call that `begin` has added."""
    del _others[number]


def _after_fork() -> None:
    """Forget the thread and the calls of other threads, which a forked child does not have."""
    global _thread, _changed
    _thread, _changed = None, threading.Event()
    here = threading.get_ident()
    for number in [number for number, call in _others.items() if call.thread != here]:
        del _others[number]
    _runtime.forget_calls_of_other_threads()


os.register_at_fork(after_in_child=_after_fork)


def _watch() -> None:
    began: dict[tuple[str, int], float] = {}  # when each call was seen first
    told: set[tuple[str, int]] = set()
    while True:
        _changed.wait(_after / _LOOKS if _after else None)
        _changed.clear()
        now = time.monotonic()
        calls = _calls()
        began = {key: began.get(key, now) for key in calls}
        told &= began.keys()
        for key, call in calls.items():
            if _after and now - began[key] >= _after and key not in told:
                told.add(key)
                _tell(call)


def _calls() -> dict[tuple[str, int], _LongCall]:
    """Return the calls that run now."""
    seen = {("runtime", n): _LongCall(label, at) for n, label, at in _runtime.running_calls()}
    return seen | {("python", number): call for number, call in [*_others.items()]}


def _tell(call: _LongCall) -> None:
    text = _RUNS_LONG.format(
        seconds=_after, call=call.description, consequence=call.consequence, stack=call.stack()
    )
    _log.warning("%s", text)
