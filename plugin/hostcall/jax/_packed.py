"""Dtypes of less than a byte. XLA packs them, so that calls take and return them in wider ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hostcall.jax import _jax_private as private

# What the runtime knows each dtype by, and the dtype of the buffer, which holds the same numbers.
_PACKED = {
    "int4": (21, "int8"),
    "uint4": (22, "uint8"),
    "int2": (60, "int8"),
    "uint2": (61, "uint8"),
    "float4_e2m1fn": (62, "float8_e4m3fn"),
}


def pairs(avals: Sequence[Any]) -> tuple[int, ...]:
    """The attribute `narrow_operands` or `narrow_results`: index and number, one after another."""
    names = [str(aval.dtype) for aval in avals]
    return tuple(
        n for i, name in enumerate(names) if name in _PACKED for n in (i, _PACKED[name][0])
    )


def wide(avals: Sequence[Any]) -> list[Any]:
    """What stands for arrays in the call."""
    dtypes = [_PACKED.get(str(aval.dtype), (0, aval.dtype))[1] for aval in avals]
    return [private.aval_of(aval.shape, dtype) for aval, dtype in zip(avals, dtypes, strict=True)]


def converted(
    context: Any, values: Sequence[Any], old: Sequence[Any], new: Sequence[Any]
) -> list[Any]:
    """MLIR values of `old` as those of `new`."""
    return [
        value if aval.dtype == other.dtype else private.convert(context, value, other)
        for value, aval, other in zip(values, old, new, strict=True)
    ]
