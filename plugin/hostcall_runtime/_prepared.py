"""The runtime's extension module, with the dtypes and functions that it is given once."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hostcall_runtime import _device_arrays, _errors, _library, _runs

# FFI element types (xla/ffi/api/c_api.h), their NumPy dtypes, and TensorFlow's names for messages.
DTYPES: tuple[tuple[int, npt.DTypeLike, str], ...] = (
    (1, np.bool_, "bool"),
    (21, ml_dtypes.int4, "int4"),
    (2, np.int8, "int8"),
    (3, np.int16, "int16"),
    (4, np.int32, "int32"),
    (5, np.int64, "int64"),
    (22, ml_dtypes.uint4, "uint4"),
    (6, np.uint8, "uint8"),
    (7, np.uint16, "uint16"),
    (8, np.uint32, "uint32"),
    (9, np.uint64, "uint64"),
    (10, np.float16, "half"),
    (11, np.float32, "float"),
    (12, np.float64, "double"),
    (16, ml_dtypes.bfloat16, "bfloat16"),
    (15, np.complex64, "complex64"),
    (18, np.complex128, "complex128"),
    (19, ml_dtypes.float8_e5m2, "float8_e5m2"),
    (20, ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
    (23, ml_dtypes.float8_e4m3b11fnuz, "float8_e4m3b11fnuz"),
    (24, ml_dtypes.float8_e5m2fnuz, "float8_e5m2fnuz"),
    (25, ml_dtypes.float8_e4m3fnuz, "float8_e4m3fnuz"),
    (28, ml_dtypes.float8_e4m3, "float8_e4m3"),
    (29, ml_dtypes.float8_e3m4, "float8_e3m4"),
    # TensorFlow does not have the dtypes below, or does not compile them.
    (33, ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu"),
    # Calls have these in wider buffers. The codes are hostcall's own: with XLA's codes, a packed
    # buffer would be read beyond its end. C++ lets XLA's enum hold only codes below 64.
    (60, ml_dtypes.int2, "int2"),
    (61, ml_dtypes.uint2, "uint2"),
    (62, ml_dtypes.float4_e2m1fn, "float4_e2m1fn"),
)

# TensorFlow's quantized integers: XLA lacks them, but host ops return them. hostcall's own codes.
QUANTIZED_DTYPES: tuple[tuple[int, npt.DTypeLike, str], ...] = tuple(
    (code, np.dtype([(f"q{name}", name)]), f"q{name}")
    for code, name in enumerate(("int8", "uint8", "int16", "uint16", "int32"), 50)
)


@functools.cache
def prepared() -> Any:
    """Return the module `_runtime`, once it has the dtypes and functions that it needs.

    Raises:
      ImportError: when it cannot be loaded; the message gives the reason and the remedy.
    """
    runtime = _library.load("hostcall_runtime._runtime")
    for code, dtype, name in (*DTYPES, *QUANTIZED_DTYPES):
        runtime.set_dtype(code, np.dtype(dtype), name)
    runtime.set_error_describer(_errors.describe)
    runtime.set_binder(_runs.bind)
    runtime.set_interrupt_chooser(_runs.choose)
    runtime.set_result_error(_errors.ResultError)
    runtime.set_device_array(_device_arrays.DeviceArray)
    runtime.set_foreign_arrays(_device_arrays.of_host, _device_arrays.of_device)
    return runtime
