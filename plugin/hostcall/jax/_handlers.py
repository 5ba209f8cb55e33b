"""Handlers of XLA's FFI: the check that JAX's XLA can call them, and programs that call them."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hostcall._functions.native_code import FfiHandler, Native

_numbers = itertools.count(1)

_NAME = b"xla._CUSTOM_CALL_TARGET"
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

# The exception for each of XLA's errors, by the first word of the message.
_EXCEPTIONS = {
    "INVALID_ARGUMENT": ValueError,
    "RESOURCE_EXHAUSTED": MemoryError,
    "UNIMPLEMENTED": NotImplementedError,
}


def check(capsule: object) -> int:
    """Return the address of a handler. JAX's XLA checks its version at the first call.

    Raises:
      TypeError: when the capsule holds something else.
    """
    name = _name_of(capsule)
    if name not in (None, _NAME):
        raise TypeError(
            f"hostcall.native: the capsule is named {name.decode()!r}. One with a handler of XLA's "
            f'FFI has no name, as that of jax.ffi.pycapsule, or is named "{_NAME.decode()}".'
        )
    return int(_pointer_of(capsule, name))


def run(native: Native, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """Run a jitted program that calls the handler of native code, which writes the results."""
    structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in results]
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
        try:
            returned = jax.block_until_ready(_program(native.code, structs)(*inputs))
        except jax.errors.JaxRuntimeError as error:
            status, _, message = str(error).partition(": ")
            raise _EXCEPTIONS.get(status, RuntimeError)(message) from error
    for array, value in zip(results, returned, strict=True):
        array[...] = value


def registered(handler: FfiHandler) -> str:
    """Return the target by which JAX's programs find a handler; register it at the first call.

    Raises:
      jax.errors.JaxRuntimeError: for a handler of another version of XLA's FFI than JAX's.
    """
    target: str | None = handler.programs.get("target")
    if target is None:
        target = f"hostcall_handler_{next(_numbers)}"
        jax.ffi.register_ffi_target(target, handler.capsule, platform="cpu", api_version=1)
        handler.programs["target"] = target
    return target


def _program(handler: FfiHandler, structs: list[jax.ShapeDtypeStruct]) -> Any:
    """Return the jitted program that calls a handler for these results."""
    target = registered(handler)
    key = tuple((struct.shape, struct.dtype) for struct in structs)
    if key not in handler.programs:
        called = jax.ffi.ffi_call(target, structs, has_side_effect=True)
        attributes = handler.values
        handler.programs[key] = jax.jit(lambda *arrays: called(*arrays, **attributes))
    return handler.programs[key]
