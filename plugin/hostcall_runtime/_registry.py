"""The runtime's extension module, and the ids by which programs find their callbacks.

A program holds the ids of its callbacks. With random ids, a compilation cache would find no program
of another process, and would grow by one program for each. So while a cache is on, the same
callback gets the same id in each process. A process that finds a cached program has lowered the
same program itself, ids included, so its own callbacks have these ids.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hostcall_runtime import (
    _device_arrays,
    _errors,
    _interception,
    _library,
    _remedies,
    _runs,
    _watchdog,
)

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
def prepared() -> types.ModuleType:
    """Return the module `_runtime`, once it has the dtypes and functions that it needs."""
    runtime = _library.load("hostcall_runtime._runtime")
    for code, dtype, name in (*DTYPES, *QUANTIZED_DTYPES):
        runtime.set_dtype(code, np.dtype(dtype), name)
    runtime.set_error_describer(_errors.describe)
    runtime.set_binder(_runs.bind)
    runtime.set_interrupt_chooser(_runs.choose)
    runtime.set_result_error(_errors.ResultError)
    runtime.set_remedies(
        _remedies.for_count, _remedies.for_dtype, _remedies.for_shape, _remedies.for_rows
    )
    runtime.set_device_array(_device_arrays.DeviceArray)
    runtime.set_foreign_arrays(_device_arrays.take_on_host, _device_arrays.take_on_device)
    return runtime


# Each returns whether programs that are compiled now may be kept for other processes.
caches: list[Callable[[], bool]] = []

_BITS = 62


def wanted_id(*identity: object) -> int:
    """Return the id that a callback, by its `identity` in any process, should have; 0 for any."""
    if not any(keeps_programs() for keeps_programs in caches):
        return 0
    text = "\0".join(map(str, identity))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (1 << _BITS) or 1


_runtime = _library.load("hostcall_runtime._runtime")


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Target:
    """A callback of the runtime, which reads the attributes at each call: slots make that fast."""

    host_function: Callable[..., Any]
    title: str
    description: str = ""
    # For functions of tensors. The runtime makes most tensors itself; this makes the others.
    to_tensor: Callable[[Any], Any] | None = None
    # Makes arrays from the function's results if the runtime cannot store them as they are.
    to_arrays: Callable[[Any], Any] | None = None
    # Allocates arrays for large arguments, by shape and dtype, in memory others can open.
    empty: Callable[[tuple[int, ...], Any], Any] | None = None
    origin: Any = None  # the object that made the target, if that object can describe the function
    # TensorFlow's name of the op, and the user's source lines that led to it.
    node: str = ""
    definition: Callable[[], list[str]] = list
    site: _interception.CallSite | None = None  # for recorders and replays of calls


# By callback id. C++ has a table of Python callbacks and one of native code; this has both.
_targets: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def register(
    target: object,
    name: str,
    takes_tensors: bool = False,
    label: str = "",
    identity: Sequence[object] = (),
    **convention: bool,
) -> int:
    """Register a target with the runtime for as long as it lives, and return its callback id."""
    # A living object with the `name` is a ValueError. The `label`, the name if left out, is for
    # profiles and `hostcall.stats`. `identity` is what the same callback has in other processes,
    # beside its site: see `wanted_id`. `convention` has `borrows`, `takes_out`, `shares_memory`,
    # `on_device` and `concurrent`, as in registry.h; False if left out.
    allocates = getattr(target, "empty", None) is not None
    site = getattr(target, "site", None)
    wanted = 0 if site is None else wanted_id(site.name, site.description, site.node, *identity)
    callback_id: int = _runtime.register(
        target, name, takes_tensors, label, allocates=allocates, wanted=wanted, **convention
    )
    know(callback_id, target)
    _watchdog.start()
    _interception.know(target)
    weakref.finalize(target, _runtime.unregister, callback_id).atexit = False
    return callback_id


def know(callback_id: int, target: object) -> None:
    """Let `target_of` find the target of a callback id, as long as the target lives."""
    _targets[callback_id] = target


def target_of(callback_id: int) -> Target | None:
    """Return the living target of a callback id, or None."""
    return _targets.get(callback_id)
