"""What is told of a replay that does something else than was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hostcall._recording import values
from hostcall._recording.values import Array, Texts, Value
from hostcall_runtime._words import counted

# Of a string, as much is shown.
_LONGEST = 60


def first_difference(recorded: Sequence[Value], got: Sequence[Value]) -> str:
    """Where the arguments of two calls differ first, in a sentence; "" where they do not."""
    if len(recorded) != len(got):
        before, now = counted(len(recorded), "argument"), counted(len(got), "argument")
        return f"It was recorded with {before}, and has {now}."
    for index, (one, other) in enumerate(zip(recorded, got, strict=True)):
        if difference := _between(one, other):
            return f"Argument {index}{difference}."
    return ""


def _between(recorded: Value, got: Value) -> str:
    if not isinstance(recorded, Array | Texts) or not isinstance(got, Array | Texts):
        return "" if recorded == got else f": recorded {recorded}, got {got}"
    one, other = values.to_array(recorded), values.to_array(got)
    if one.dtype != other.dtype:
        return f": recorded {one.dtype} of shape {one.shape}, got {other.dtype}{_of_shape(other)}"
    if one.shape != other.shape:
        return f": recorded shape {one.shape}, got {other.shape} ({one.dtype})"
    where = _differing(one, other)
    if where is None:
        return ""
    place = f", element {list(map(int, where))}" if where else ""
    return f"{place}: recorded {_shown(one[where])}, got {_shown(other[where])} ({one.dtype})" + (
        _bits(one[where], other[where])
    )


def _of_shape(array: np.ndarray) -> str:
    return f" of shape {array.shape}"


def _differing(one: np.ndarray, other: np.ndarray) -> tuple[Any, ...] | None:
    """The index of the first element with other bits; None where there is none."""
    if one.dtype == object:
        pairs = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
        flat = [type(a) is not type(b) or a != b for a, b in pairs]
    elif one.dtype.itemsize == 0 or one.size == 0:
        return None
    else:
        shape = (one.size, one.dtype.itemsize)
        raw = [np.frombuffer(a.tobytes(), np.uint8).reshape(shape) for a in (one, other)]
        flat = list((raw[0] != raw[1]).any(axis=1))
    index = int(np.argmax(flat)) if len(flat) else 0
    return tuple(np.unravel_index(index, one.shape)) if len(flat) and flat[index] else None


def _shown(value: Any) -> str:
    if isinstance(value, np.str_ | np.bytes_):
        value = value.item()
    text = repr(value) if isinstance(value, bytes | str) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _bits(one: Any, other: Any) -> str:
    """The bits of two values of which the same is shown, such as NaNs."""
    if _shown(one) != _shown(other):
        return ""
    texts = [
        value.tobytes()[::-1].hex() if isinstance(value, np.generic) else f"{len(value)} long"
        for value in (one, other)
    ]
    return f", whose bits are {texts[0]} and {texts[1]}"
