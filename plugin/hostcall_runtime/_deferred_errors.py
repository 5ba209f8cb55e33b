"""Errors of fire-and-forget calls, held until the next call or barrier."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from hostcall_runtime import _errors, _locks
from hostcall_runtime._errors import counted

INSIDE = (
    "hostcall.barrier() waits for all calls that were handed over, and was called by a function "
    "that is one of these (wait=False): it would wait for itself. Call it where the program is "
    "called."
)


_lock = _locks.new_lock()
# With the line of the call, which stands for its function.
_kept: list[tuple[Any, BaseException]] = []


def keep(line: Any, description: str, error: BaseException) -> None:
    """Hold the error that a call has raised, with a note that an earlier call has raised it."""
    note = (
        f"hostcall: raised by an earlier call, which no program waited for (wait=False), of "
        f"{description}"
    )
    notes = _errors.notes_of(error)
    if isinstance(notes, list) and note not in notes:
        error.add_note(note)
    with _lock:
        _kept.append((line, error))


def take(line: Any = None) -> list[BaseException]:
    """Return and forget the held errors of one line, or of all lines, in the order of the calls."""
    if not _kept:
        return []
    with _lock:
        taken = [error for of, error in _kept if line is None or of is line]
        _kept[:] = [late for late in _kept if line is not None and late[0] is not line]
        return taken


def raise_all(errors: Sequence[BaseException]) -> None:
    """Raise the error, if any, or a group of several.

    An exception that would end the process, as SystemExit does, is also raised in a group.
    """
    if not errors:
        return
    try:
        if len(errors) == 1 and isinstance(errors[0], Exception):
            raise errors[0]
        calls = counted(len(errors), "failed call")
        raise BaseExceptionGroup(f"hostcall: {calls} that no program waited for", errors)
    finally:
        del errors  # they refer to this frame


def say(errors: Sequence[BaseException]) -> None:
    """Write errors to the standard error: at exit, no caller is left that could get them."""
    for error in errors:
        text = "".join(traceback.format_exception(error))
        write(f"a call that no program waited for has failed, and no call came after it:\n{text}")


def write(text: str) -> None:
    """Write to the standard error, if it is still open."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"hostcall: {_errors.encodable(text)}\n")
        sys.stderr.flush()
