"""What a call has come to, and calls of functions that are lent their arrays."""

from __future__ import annotations

import dataclasses
import gc
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.specs import Spec
from hostcall_runtime import _foreign_arrays, prepared

# From flat arguments to those that the user's function takes.
Pack = Callable[[Sequence[Any]], Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Called:
    """What a call has come to.

    Attributes:
      error: what the function has raised, or None.
      returned: what it has returned.
      outs: the arrays that it was to write its results into.
      kept: whether something still refers to an array that the function was lent.
      wrong_out: whether the function has returned something else than what it was to write to.
      arguments: the arrays or tensors that it was called with, flat.
    """

    error: Exception | None = None
    returned: Any = None
    outs: tuple[np.ndarray, ...] = ()
    kept: bool = False
    wrong_out: bool = False
    arguments: tuple[Any, ...] = ()

    @property
    def raised(self) -> str:
        """The exception in one line."""
        lines = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {lines[0][:300] if lines else ''}"


class Lent:
    """Arrays that a function has for the length of a call.

    Attributes:
      outs: those that it is to write its results into.
      out: the same, as it gets them.
    """

    def __init__(self, views: Sequence[np.ndarray], outs: tuple[np.ndarray, ...], out: Any) -> None:
        for view in views:
            view.flags.writeable = False
        self.outs = outs
        self.out = out
        self._all: list[np.ndarray] = [*views, *outs]

    def to(
        self, function: Callable[..., Any], pack: Pack, values: Sequence[Any], collects: bool
    ) -> Called:
        """Calls the function.

        Args:
          function: what to call.
          pack: makes its arguments.
          values: the arguments, flat.
          collects: whether cycles that the function has left behind count for nothing.
        """
        before = self._references()
        returned = function(*pack(values))
        wrong_out = False
        if self.outs:
            wrong_out = not (returned is None or _are_same(returned, self.out))
            returned = None
        else:
            returned = tf.nest.map_structure(self._detached, returned)
        kept = self._references() > before
        if kept and collects:
            gc.collect()
            kept = self._references() > before
        return Called(None, returned, self.outs, kept, wrong_out, tuple(values))

    def _references(self) -> int:
        return sum(sys.getrefcount(array) for array in self._all)

    def _detached(self, value: Any) -> Any:
        lent = isinstance(value, np.ndarray) and any(
            np.may_share_memory(value, array) for array in self._all
        )
        return value.copy() if lent else value


def on_loan(
    function: Callable[..., Any], pack: Pack, values: Sequence[Any], description: str
) -> Called:
    """Calls a function that takes arrays where they lie."""
    loans = prepared().Loans([np.asarray(value) for value in values])
    try:
        returned = _foreign_arrays.of_host(function(*pack(loans.shown())), description)
        returned = tf.nest.map_structure(_copied, returned)
        return Called(None, returned, (), bool(loans.any_is_used()), False, tuple(values))
    finally:
        loans.end()


def poisoned(spec: Spec, poison: int) -> np.ndarray:
    """A new array full of one byte; of None, where it is for strings."""
    array = np.empty(spec.shape.as_list(), spec.dtype.as_numpy_dtype)
    if array.dtype == object:
        return array
    if array.dtype == bool:
        array[...] = bool(poison & 1)
    else:
        array.reshape(-1).view(np.uint8)[...] = poison
    return array


def _are_same(returned: object, out: object) -> bool:
    if returned is out:
        return True
    ones, others = tf.nest.flatten(returned), tf.nest.flatten(out)
    return len(ones) == len(others) and all(map(operator.is_, ones, others))


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
