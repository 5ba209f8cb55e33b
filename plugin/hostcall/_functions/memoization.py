"""`memo=`: results of pure functions, kept for calls with equal inputs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import numbers
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

_USUAL_SIZE = 128  # the number of results that memo=True keeps

# Longer inputs are kept as a digest of this size, since a table of images would use much memory.
_DIGEST_BYTES = 32


@dataclasses.dataclass(unsafe_hash=True)
class _Question:
    """The inputs of one call, and the function that computes its results until they are known."""

    content: Hashable
    find: Callable[[], Any] | None = dataclasses.field(compare=False)

    def answer(self) -> object:
        # The table keeps this object, and must not keep the function alive.
        find, self.find = self.find, None
        assert find is not None
        return private_copy(find())


class MemoTable:
    """A table of the results for the latest inputs; no lock is held while a function runs."""

    def __init__(self, size: int) -> None:
        self._answers = functools.lru_cache(size)(_Question.answer)
        self._key: Hashable = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoTable):
            return NotImplemented
        return self._answers is other._answers and self._key == other._key

    def __hash__(self) -> int:
        return hash((id(self._answers), self._key))

    def part(self, key: Hashable) -> MemoTable:
        """Return a view of this table for the calls that `key` distinguishes from others."""
        part = copy.copy(self)
        part._key = key
        return part

    def remembering(self, function: Callable[..., Any], form: Hashable) -> Callable[..., Any]:
        """Wrap `function` so that it is called for new inputs only."""
        # It takes arrays, scalars and strings. `form` has the structures that these stand for,
        # which distinguish calls with equal arrays. Its results are read-only.

        def call(*arrays: Any) -> object:
            content = (self._key, form, *map(_content, arrays))
            return self._answers(_Question(content, functools.partial(function, *arrays)))

        return call


def table_for(memo: bool | int) -> MemoTable | None:
    """Return a new table for `memo=`, or None for False."""
    if memo is False:
        return None
    if memo is not True and (not isinstance(memo, numbers.Integral) or memo <= 0):
        raise ValueError(
            f"hostcall: memo={memo!r} is neither True (which keeps the results of the "
            f"{_USUAL_SIZE} inputs that were used last) nor a positive number of results to keep."
        )
    return MemoTable(_USUAL_SIZE if memo is True else int(memo))


def private_copy(returned: object) -> object:
    """Copy the return value of a function, so that no other code can write to its arrays."""
    if isinstance(returned, list | tuple):
        return [private_copy(value) for value in returned]
    if isinstance(returned, np.ndarray):
        return returned.copy(order="K")
    if returned is None or isinstance(returned, numbers.Number | np.generic | str | bytes):
        return returned
    return np.array(returned)  # as the op would read it


def _content(value: np.ndarray | np.generic | bytes) -> Hashable:
    """Return a key that is equal for inputs that are equal bit for bit."""
    if isinstance(value, bytes):
        return value
    if value.dtype.hasobject:
        return value.shape, *value.ravel().tolist()  # an array of strings
    data = value.tobytes()
    if len(data) > _DIGEST_BYTES:
        data = hashlib.sha256(data, usedforsecurity=False).digest()
    return value.dtype, value.shape, data
