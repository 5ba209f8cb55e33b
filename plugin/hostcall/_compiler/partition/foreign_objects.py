"""Arrays of Python objects that TensorFlow has no tensors for, in the words of the stock kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

# CPython's flag of the types that Python code defines.
_HEAP_TYPE = 1 << 9


def items(array: np.ndarray) -> list[Any]:
    """The objects in an array that are no strings to TensorFlow."""
    return [item for item in array.flat if not isinstance(item, bytes | str)]


def kind_of(array: np.ndarray) -> str:
    """What it is of an array that TensorFlow does not have."""
    if array.dtype.kind != "O":
        return f"numpy data type {array.dtype} of"
    kind = type(items(array)[0])
    # As C names types: those of extension modules with their module.
    defined_in_c = not kind.__flags__ & _HEAP_TYPE and kind.__module__ != "builtins"
    return f"object type {kind.__module__ + '.' if defined_in_c else ''}{kind.__name__} in"


def is_none(value: object) -> bool:
    """Whether it is None, or what NumPy makes of a lone None."""
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 0:
        return value.item() is None
    return value is None
