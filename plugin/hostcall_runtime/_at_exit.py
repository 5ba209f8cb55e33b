"""At exit: what was handed over is called before the process ends."""

from __future__ import annotations

import atexit
import collections
import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from hostcall_runtime import _call_queue, _late_errors, _threads
from hostcall_runtime._call_queue import Queue
from hostcall_runtime._unawaited_calls import Call

# Seconds after which it is said what the end of the process waits for: at first, and then again.
_NOTICES = (5.0, 60.0)

# What has programs end that run in the background, each of which may hand over calls.
programs_end: list[Callable[[], object]] = []

# Python waits for executors and threads before it calls what `atexit` has.
_register_early: Callable[[Callable[[], object]], object] = getattr(
    threading, "_register_atexit", atexit.register
)
_is_registered = False
_is_given_up = False


def prepare(queue: Queue, provider: Any) -> None:
    """Has the queue's calls made before the process ends, and its executor lives as long.

    Handlers run in the reverse order of their registration, so that it comes after those of what
    the executor consists of: making an executor imports that.
    """
    global _is_registered
    if queue.is_prepared:
        return
    if provider is not None:
        provider.executor()
    if not _is_registered:
        # Threads that Python waits for may hand over calls after the first.
        atexit.register(_drain)
        _is_registered = True
    with contextlib.suppress(RuntimeError):  # where the process is about to end
        _register_early(_drain)
    queue.is_prepared = True


def finish_programs() -> None:
    """Waits for programs that run in the background."""
    for end in programs_end:
        end()


def described(unfinished: Sequence[Call]) -> str:
    """What is being waited for: the call that runs, where it is, and how many come after it."""
    first = unfinished[0]
    others = collections.Counter(call.line.label for call in unfinished[1:])
    text = f"It waits for a call of {first.description}"
    text += ", which runs" if first.has_begun else ""
    text += "".join(f"; {count} of {label}" for label, count in others.items())
    if first.has_begun and first.line.thread:
        text += f". This is where it is:\n{_threads.stack_of(first.line.thread, has_ended=False)}"
    return text


def _drain() -> None:
    global _is_given_up
    try:
        if not _is_given_up:
            finish_programs()
            _wait()
    except KeyboardInterrupt:
        _is_given_up = True
        _give_up()
    except Exception as error:
        _late_errors.say([error])
    _late_errors.say(_late_errors.take())


def _wait() -> None:
    patience, later = _NOTICES
    while unfinished := _call_queue.wait_for(sys.maxsize, patience):
        _late_errors.write(
            "the process ends when the calls have ended that nobody has waited for "
            f"(wait=False), or at Ctrl-C. {described(unfinished)}"
        )
        patience = later


def _give_up() -> None:
    dropped = _call_queue.abandon()
    counts = collections.Counter(call.line.label for call in dropped)
    left = ", ".join(f"{count} of {label}" for label, count in counts.items())
    _late_errors.write(
        f"Ctrl-C: the process ends without waiting for the call that runs; calls that were never "
        f"made: {left or 'none'}."
    )
