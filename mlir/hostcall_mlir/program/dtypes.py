"""The dtypes that programs and Python functions share: their names, and MLIR's element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

# NumPy's or ml_dtypes' name to MLIR's element type, for all that the runtime has.
DTYPES = {
    "bool": "i1",
    "int2": "i2",
    "int4": "i4",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint2": "ui2",
    "uint4": "ui4",
    "uint8": "ui8",
    "uint16": "ui16",
    "uint32": "ui32",
    "uint64": "ui64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    "float4_e2m1fn": "f4E2M1FN",
    "float8_e3m4": "f8E3M4",
    "float8_e4m3": "f8E4M3",
    "float8_e4m3b11fnuz": "f8E4M3B11FNUZ",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e8m0fnu": "f8E8M0FNU",
}
_NAMES = {element: name for name, element in DTYPES.items()}


def name_of(element: object) -> str | None:
    """The name of an element type of MLIR's, None where NumPy has no such dtype."""
    return _NAMES.get(str(element))


def dtype_of(name: str) -> np.dtype:
    """The dtype of a name in `DTYPES`."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def is_of_numpy(dtype: np.dtype) -> bool:
    """Whether NumPy itself has the dtype, and files of arrays can tell it."""
    return dtype.isbuiltin != 2  # for those of others; their kinds do not tell
