"""Handlers of XLA's typed FFI as native code."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hostcall._functions import frameworks
from hostcall._functions.specs import ArraySpec
from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")

# FFI element types (xla/ffi/api/c_api.h) of scalars, by the names of their dtypes; a text has none.
_CODES = {
    "bool": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "uint8": 6,
    "uint16": 7,
    "uint32": 8,
    "uint64": 9,
    "float16": 10,
    "float32": 11,
    "float64": 12,
    "complex64": 15,
    "complex128": 18,
}
_TEXT = 0


class FfiHandler:
    """A handler of XLA's typed FFI, for the stage of execution.

    Attributes:
      name: what messages call it.
      capsule: what holds it.
      address: where its code is.
      values: what it is called with beside buffers: NumPy scalars, and texts.
      programs: a framework's programs that call it.
    """

    def __init__(
        self, name: str, capsule: object, address: int, values: Mapping[str, np.generic | str]
    ) -> None:
        self.name = name
        self.capsule = capsule
        self.address = address
        self.values = values
        self.programs: dict[Any, Any] = {}

    @property
    def attributes(self) -> list[tuple[str, int, bytes]]:
        """The same: name, element type, bytes."""
        return [_encoded(name, value) for name, value in self.values.items()]

    def complaint(self, inputs: Sequence[ArraySpec], results: Sequence[ArraySpec]) -> str:
        """Nothing: handlers check what they are called with."""
        return ""

    def register(self, label: str, wanted: int = 0) -> int:
        """The runtime's callback id of it, until that is given back; for TensorFlow's programs.

        Args:
          label: what messages, profiles and statistics call it.
          wanted: the id that it should have, 0 for any.

        Raises:
          ValueError: when it was built for another version of XLA's FFI than TensorFlow's.
        """
        if (side := frameworks.tensorflow()) is not None:
            side.check_handler(self.capsule)
        callback_id: int = _runtime.register_ffi_handler(
            label, self.address, self.attributes, wanted
        )
        return callback_id

    def run(self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], native: Any) -> None:
        """Calls it from a compiled program: only XLA can make what a handler may ask for.

        Args:
          inputs: arrays.
          results: arrays, to be written.
          native: the `Native` of this, of which nothing is declared.

        Raises:
          RuntimeError, or what stands for the handler's error: when it fails.
        """
        frameworks.of_handlers().run_handler(native, inputs, results)


def read(function: object, name: str | None, attributes: Mapping[str, Any]) -> FfiHandler | None:
    """The handler in a capsule; None of anything else.

    Args:
      function: what may be one.
      name: what messages call it, or None.
      attributes: its attributes.

    Raises:
      TypeError: when the capsule holds something else, or an attribute is of no such type.
      ValueError: when the handler is of another version of XLA's FFI, or for another stage.
    """
    if type(function).__name__ != "PyCapsule":
        return None
    address = frameworks.of_handlers().check_handler(function)
    scalars = {key: _scalar(key, value) for key, value in attributes.items()}
    return FfiHandler(name or "ffi_handler", function, address, scalars)


def _scalar(name: str, value: object) -> np.generic | str:
    if isinstance(value, str):
        return value
    scalar: object = value
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        kind = {bool: np.bool_, int: np.int64}.get(type(value), np.float32)
        with contextlib.suppress(OverflowError):
            scalar = kind(value)
    if not isinstance(scalar, np.generic) or scalar.dtype.name not in _CODES:
        raise TypeError(
            f"hostcall.native: the attribute {name!r} is {value!r}. A handler's attributes are "
            "bool, int, float or str, or NumPy scalars of the dtype that it wants: "
            "np.float64(1e-5)."
        )
    return scalar


def _encoded(name: str, value: np.generic | str) -> tuple[str, int, bytes]:
    """Name, element type, bytes."""
    if isinstance(value, str):
        return name, _TEXT, value.encode()
    return name, _CODES[value.dtype.name], value.tobytes()
