"""What is said of programs that are nested deeper than Python's stack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hostcall_runtime._errors import LoweringError

_P = ParamSpec("_P")
_T = TypeVar("_T")

_TOO_DEEP = (
    "hostcall: the functions of the program call one another, or stand in one another's branches "
    "and loops, deeper than Python's stack is here. Let fewer be in one another, by a loop in the "
    "place of functions that call the next one, say; or allow more with sys.setrecursionlimit."
)


def limited(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """`work` on a program, which raises a LoweringError where it is nested too deep for it."""

    @functools.wraps(work)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return work(*args, **kwargs)
        except RecursionError:
            raise LoweringError(_TOO_DEEP) from None

    return run
