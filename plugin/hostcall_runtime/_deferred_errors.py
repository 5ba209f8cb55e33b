"""Errors of calls that nobody has waited for, kept until somebody can be told."""

from __future__ import annotations

import contextlib
import dataclasses
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


@dataclasses.dataclass
class _LateError:
    line: Any
    error: BaseException


_lock = _locks.new_lock()
_kept: list[_LateError] = []


def keep(line: Any, description: str, error: BaseException) -> None:
    """Keeps what a call has raised.

    Args:
      line: the calls of the same function.
      description: the function and the call.
      error: what it has raised; gets a note that says so.
    """
    note = (
        f"hostcall: raised by an earlier call, which nobody has waited for (wait=False), of "
        f"{description}"
    )
    notes = _errors.notes_of(error)
    if isinstance(notes, list) and note not in notes:
        error.add_note(note)
    with _lock:
        _kept.append(_LateError(line, error))


def take(line: Any = None) -> list[BaseException]:
    """The errors of one function's calls, or of all, in the order of the calls; only once."""
    if not _kept:
        return []
    with _lock:
        taken = [late.error for late in _kept if line is None or late.line is line]
        _kept[:] = [late for late in _kept if line is not None and late.line is not line]
        return taken


def raise_all(errors: Sequence[BaseException]) -> None:
    """Raises the error, if there is one, or a group of several.

    What would end the process, as a SystemExit of the function does, is raised in a group, too.
    """
    if not errors:
        return
    try:
        if len(errors) == 1 and isinstance(errors[0], Exception):
            raise errors[0]
        calls = counted(len(errors), "failed call")
        raise BaseExceptionGroup(f"hostcall: {calls} that nobody has waited for", errors)
    finally:
        del errors  # which refer to this frame


def say(errors: Sequence[BaseException]) -> None:
    """Writes errors to the standard error: at exit nobody else can be told."""
    for error in errors:
        text = "".join(traceback.format_exception(error))
        write(f"a call that nobody has waited for has failed, and no call came after it:\n{text}")


def write(text: str) -> None:
    """Writes to the standard error, if there is one left."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"hostcall: {_errors.encodable(text)}\n")
        sys.stderr.flush()
