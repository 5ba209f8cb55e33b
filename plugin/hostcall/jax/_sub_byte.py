"""Sub-byte dtypes, such as int4. XLA packs their values, so calls take and return wider dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hostcall.jax import _lowering, _values
from hostcall_runtime._prepared import DTYPES

# The dtype of the buffer for each, which holds the same values.
_WIDE = {
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
    "float4_e2m1fn": "float8_e4m3fn",
}

# What the runtime knows dtypes by.
_CODES = {name: code for code, _, name in DTYPES}


def pairs(avals: Sequence[Any]) -> tuple[int, ...]:
    """The attribute `sub_byte_operands` or `sub_byte_results`: index and dtype code of each."""
    names = [str(aval.dtype) for aval in avals]
    return tuple(n for i, name in enumerate(names) if name in _WIDE for n in (i, _CODES[name]))


def wide(avals: Sequence[Any]) -> list[Any]:
    """The abstract values of the buffers that the call takes or returns."""
    dtypes = [_WIDE.get(str(aval.dtype), aval.dtype) for aval in avals]
    return [_values.aval_of(aval.shape, dtype) for aval, dtype in zip(avals, dtypes, strict=True)]


def converted(
    context: Any, values: Sequence[Any], old: Sequence[Any], new: Sequence[Any]
) -> list[Any]:
    """MLIR values of the abstract values `old`, converted to those of `new`."""
    return [
        value if aval.dtype == other.dtype else _lowering.convert(context, value, other)
        for value, aval, other in zip(values, old, new, strict=True)
    ]
