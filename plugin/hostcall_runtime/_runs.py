"""The runs of programs, at whose ends nothing is left of what they have begun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hostcall_runtime import _library
from hostcall_runtime._starters import Program

_runtime = _library.load("hostcall_runtime._runtime")


@contextmanager
def under_way(program: Program) -> Iterator[None]:
    """Inside of it a program runs, to its end.

    Of one that fails nobody takes the results of calls that have begun early.
    """
    run, starter = _runtime.begin_run(), program.begin()
    try:
        yield
    finally:
        program.end(starter)
        _runtime.end_run(run)
