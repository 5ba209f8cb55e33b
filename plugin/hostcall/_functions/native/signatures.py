"""What a C function takes and returns, as ctypes or Numba declares it."""

from __future__ import annotations

import ctypes
from _ctypes import CFuncPtr
from collections.abc import Sequence
from typing import Any

import numpy as np

from hostcall._functions.native.c_functions import CONVENTION, CFunction, Pointer
from hostcall_runtime import _library
from hostcall_runtime._words import counted

_MOST: int = _library.load("hostcall_runtime._runtime").MAX_NATIVE_ARGUMENTS

# Attributes of the classes of ctypes functions, and of those that np.ctypeslib.ndpointer makes.
_FUNCTION_WANTS_GIL = 4
_ARRAY_IS_C, _ARRAY_IS_FORTRAN = 1, 2

_INTEGERS = {"int64", "uint64"}


def read(function: Any, name: str | None) -> CFunction | None:
    """The signature of a ctypes function or a `numba.cfunc`; None of anything else.

    Args:
      function: what may be one.
      name: what messages call it; None for its own name.

    Raises:
      TypeError: when its types are unknown, or others than those that native functions can have.
    """
    if isinstance(function, CFuncPtr):
        return _checked(_read_ctypes(function, name or _name_of(function)))
    if hasattr(function, "address") and hasattr(function, "_sig"):
        return _checked(_read_numba(function, name or _name_of(function)))
    return None


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", "function"))


def _checked(code: CFunction) -> CFunction:
    arguments = len(code.pointers) + code.sizes
    if arguments > _MOST:
        raise TypeError(
            f"hostcall.native: {code.name} takes {counted(arguments, 'argument')}, and {_MOST} is "
            "the most that a native function can have. Pass several values in one array."
        )
    return code


def _read_ctypes(function: Any, name: str) -> CFunction:
    address = ctypes.cast(function, ctypes.c_void_p).value
    if address is None:
        raise TypeError(f"hostcall.native: {name} is a null pointer.")
    if type(function)._flags_ & _FUNCTION_WANTS_GIL:
        raise TypeError(
            f"hostcall.native: {name} is of a ctypes.PyDLL or a ctypes.PYFUNCTYPE, whose functions "
            "use Python and want its lock, and native functions run without it. If this one does "
            "not use Python, load its library by ctypes.CDLL."
        )
    if any(type(kept).__name__ == "CThunkObject" for kept in (function._objects or {}).values()):
        raise TypeError(
            f"hostcall.native: {name} is a Python function that ctypes has made callable from C. "
            "It would run Python all the same, and its exceptions would be lost. Pass the Python "
            "function itself to tf.numpy_function or hostcall.callback."
        )
    if function.errcheck is not None:
        raise TypeError(
            f"hostcall.native: {name} has an errcheck, which is Python code that no native call "
            "would run. Let the function return an int32, 0 for success."
        )
    if function.argtypes is None:
        raise TypeError(_unknown_types(name))
    if function.restype not in (None, ctypes.c_int32):
        raise TypeError(_wrong_return(name, _type_name(function.restype)))
    kinds = [_kind_of_ctype(ctype) for ctype in function.argtypes]
    pointers, sizes = _pointers_and_sizes(
        kinds, [_type_name(ctype) for ctype in function.argtypes], name
    )
    return CFunction(name, address, pointers, sizes, function.restype is not None)


def _read_numba(function: Any, name: str) -> CFunction:
    arguments = [str(argument) for argument in function._sig.args]
    returned = str(function._sig.return_type)
    if returned not in ("none", "int32"):
        raise TypeError(_wrong_return(name, returned))
    pointers, sizes = _pointers_and_sizes(
        [_kind_of_numba(text) for text in arguments], arguments, name
    )
    return CFunction(name, function.address, pointers, sizes, returned == "int32")


# Of an argument: what it points to, "size", or None where it is neither.
_Kind = Pointer | str | None
_SIZE = "size"


def _kind_of_ctype(ctype: Any) -> _Kind:
    if hasattr(ctype, "_dtype_") and hasattr(ctype, "_ndim_"):
        return _kind_of_ndpointer(ctype)
    if ctype is ctypes.c_void_p:
        return Pointer()
    if isinstance(ctype, type) and issubclass(ctype, ctypes._Pointer):
        return _pointer_to(ctype._type_)
    if isinstance(ctype, type) and issubclass(ctype, ctypes._SimpleCData):
        return _size_of(ctype)
    return None


def _kind_of_ndpointer(ctype: Any) -> _Kind:
    flags = ctype._flags_ or 0
    if flags & _ARRAY_IS_FORTRAN and not flags & _ARRAY_IS_C:
        return None
    return Pointer(ctype._dtype_, ctype._ndim_, ctype._shape_)


def _kind_of_numba(text: str) -> _Kind:
    if text == "void*":
        return Pointer()
    return _pointer_to(text[:-1]) if text.endswith("*") else _size_of(text)


def _pointer_to(item: Any) -> _Kind:
    try:
        dtype = np.dtype(item)
    except TypeError:
        return None
    return Pointer(dtype) if dtype.kind in "biufc" and dtype.isnative else None


def _size_of(number: Any) -> _Kind:
    try:
        return _SIZE if np.dtype(number).name in _INTEGERS else None
    except TypeError:
        return None


def _pointers_and_sizes(kinds: Sequence[_Kind], texts: Sequence[str], name: str) -> tuple[Any, int]:
    """The pointers among the kinds of arguments, and how many sizes there are behind them."""
    count = next((i for i, kind in enumerate(kinds) if not isinstance(kind, Pointer)), len(kinds))
    sizes = list(kinds[count:])
    for i, kind in enumerate(sizes, count):
        if kind != _SIZE:
            raise TypeError(
                f"hostcall.native: argument {i} of {name} is of type {texts[i]}, which it cannot "
                f"be there. {CONVENTION} The pointers are to numbers (c_void_p, or Numba's "
                "voidptr, to any), and arrays lie in memory row by row, as in C."
            )
    return tuple(kinds[:count]), len(sizes)


def _unknown_types(name: str) -> str:
    written = name if name.isidentifier() else "function"
    return (
        f"hostcall.native: what {name} takes is not known: ctypes has to be told. Write before, "
        "with the types that the function has:\n\n"
        f"    {written}.argtypes = [ctypes.POINTER(ctypes.c_float), "
        "ctypes.POINTER(ctypes.c_float), ctypes.c_int64]\n"
        f"    {written}.restype = None    # or ctypes.c_int32: 0 for success\n\n"
        f"{CONVENTION} If it is a handler of XLA's FFI: hostcall.native(jax.ffi.pycapsule"
        f"({written}), ...)."
    )


def _wrong_return(name: str, returned: str) -> str:
    return f"hostcall.native: {name} returns {returned}. {CONVENTION}"


def _type_name(ctype: Any) -> str:
    return str(getattr(ctype, "__name__", ctype))
