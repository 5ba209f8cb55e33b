"""C functions as native code."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hostcall._functions.specs import ArraySpec
from hostcall_runtime import _library
from hostcall_runtime._words import counted

_runtime = _library.load("hostcall_runtime._runtime")

CONVENTION = (
    "A native function takes a pointer for each input, then a pointer for each result, then "
    "perhaps a 64-bit integer for each dimension of each input, and returns nothing, or an int32 "
    "that is 0 for success."
)


@dataclasses.dataclass(frozen=True)
class Pointer:
    """What is known of the array that an argument points to; None where it can be any.

    Attributes:
      dtype: its dtype.
      ndim: its rank.
      shape: its shape.
    """

    dtype: np.dtype[Any] | None = None
    ndim: int | None = None
    shape: tuple[int, ...] | None = None

    def complaint(self, spec: ArraySpec) -> str:
        """What is wrong with an array of this spec, or ""."""
        rank = len(spec.shape or ())
        if self.dtype is not None and spec.dtype != self.dtype:
            return f"points to {self.dtype.name}, and not to {spec.dtype.name}"
        if self.ndim is not None and self.ndim != rank:
            return f"points to an array of rank {self.ndim}, and not of rank {rank}"
        if self.shape is not None and self.shape != spec.shape:
            return f"points to an array of shape {self.shape}, and not of {spec.shape}"
        return ""


@dataclasses.dataclass(frozen=True)
class CFunction:
    """A C function, and what it takes.

    Attributes:
      name: the function's, for messages.
      address: where its code is.
      pointers: what its first arguments point to: its inputs, then its results.
      sizes: how many 64-bit integers follow, none or one for each dimension of each input.
      returns_status: whether it returns an int32, or nothing.
    """

    name: str
    address: int
    pointers: tuple[Pointer, ...]
    sizes: int
    returns_status: bool

    def complaint(self, inputs: Sequence[ArraySpec], results: Sequence[ArraySpec]) -> str:
        """What is wrong with calling it for these, whose shapes are known; "" where nothing is."""
        if len(inputs) + len(results) != len(self.pointers):
            return (
                f"{self.name} takes {counted(len(self.pointers), 'pointer')}, but there are "
                f"{counted(len(inputs), 'input')} and {counted(len(results), 'result')}. "
                f"{CONVENTION}"
            )
        dimensions = sum(len(spec.shape or ()) for spec in inputs)
        if self.sizes not in (0, dimensions):
            return (
                f"{self.name} takes {counted(self.sizes, 'size')}, but its inputs have "
                f"{counted(dimensions, 'dimension')}. {CONVENTION}"
            )
        names = [f"input {i}" for i in range(len(inputs))]
        names += [f"result {i}" for i in range(len(results))]
        specs = [*inputs, *results]
        for i, (pointer, spec, name) in enumerate(zip(self.pointers, specs, names, strict=True)):
            if wrong := pointer.complaint(spec):
                return f"argument {i} of {self.name}, for {name}, {wrong}."
        return ""

    def register(self, label: str, wanted: int = 0) -> int:
        """The runtime's callback id of it, until that is given back; `wanted` if it is not 0."""
        count = len(self.pointers) + self.sizes
        callback_id: int = _runtime.register_c_function(
            label, self.address, count, self.sizes > 0, self.returns_status, wanted
        )
        return callback_id

    def run(self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], native: Any) -> None:
        """Calls it, without Python's lock.

        Args:
          inputs: arrays that lie in memory row by row, and of which there is no complaint.
          results: arrays like that, to be written.
          native: of no use here.

        Raises:
          RuntimeError: when it returns another status than 0.
        """
        sizes = [size for array in inputs for size in array.shape] if self.sizes else []
        returned = ctypes.c_int32 if self.returns_status else None
        types = [ctypes.c_void_p] * len(self.pointers) + [ctypes.c_int64] * len(sizes)
        function = ctypes.CFUNCTYPE(returned, *types)(self.address)
        status = function(*map(_address_of, [*inputs, *results]), *sizes)
        if status:
            raise RuntimeError(
                f"The native function {self.name} returned status {status}, and not 0 for success. "
                "If it returns nothing, its declaration has to say so: `restype = None` in ctypes, "
                "`types.void(...)` in Numba."
            )


def _address_of(array: np.ndarray) -> int | None:
    """Null for an array without elements, as in a compiled program."""
    return array.ctypes.data if array.size else None
