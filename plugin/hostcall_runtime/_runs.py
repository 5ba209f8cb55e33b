"""The runs of programs, at whose ends nothing is left of what they have begun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hostcall_runtime import _library, _starters
from hostcall_runtime._starters import Program, Starter

_runtime = _library.load("hostcall_runtime._runtime")


@contextmanager
def under_way(program: Program) -> Iterator[None]:
    """Inside of it a program runs, to its end.

    Of one that fails nobody takes the results of calls that have begun early.
    """
    run = _runtime.begin_run()
    starter = Starter(program)
    try:
        _starters.under_way.add(starter)
        yield
    finally:
        _starters.under_way.discard(starter)
        _runtime.end_run(run)
