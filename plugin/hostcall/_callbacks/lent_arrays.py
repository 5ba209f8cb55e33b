"""Functions that take and return arrays where they lie: `memory="device"`.

In a compiled program csrc/runtime/loans.cc makes the arrays, on a GPU too. Here they are made where
TensorFlow's own kernels call, whose arrays are the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hostcall._callbacks.borrowed_views import BorrowingSpec
from hostcall._callbacks.specs import Spec
from hostcall_runtime import _foreign_arrays, prepared
from hostcall_runtime._errors import ResultError


class LendingSpec(BorrowingSpec):
    """A function from arrays to arrays, which it is lent for the call."""

    def call_borrowing(
        self, function: Callable[..., Any], arrays: Sequence[Any], declared: Sequence[Spec]
    ) -> Any:
        """What the function returns, as arrays that share no memory with those that it was lent.

        Args:
          function: what to call.
          arrays: its arguments.
          declared: not looked at.

        Raises:
          ResultError: when something still has the memory of an array that was lent.
        """
        loans = prepared().Loans([np.asarray(array) for array in arrays])
        try:
            returned = _owned(_foreign_arrays.of_host(function(*loans.shown()), self.title))
            is_used = loans.any_is_used()
        finally:
            loans.end()
        if is_used:
            raise ResultError(
                f"{self.title} has returned, and something still has the memory of an array that "
                'it was lent for the call alone: it is declared with memory="device". Keep a copy '
                f"of it. This is {self.description}."
            )
        return returned


def _owned(returned: Any) -> Any:
    """What was returned, in arrays that keep nothing of the loans."""
    if isinstance(returned, list | tuple):
        return type(returned)(map(_owned, returned))
    is_view = isinstance(returned, np.ndarray) and returned.base is not None
    return returned.copy() if is_view else returned
