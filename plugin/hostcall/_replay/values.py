"""Arguments and results as a recording holds them: bit for bit, without code.

A value keeps all that a program can see: an array its dtype and shape, a Python scalar its type.
This module knows no framework, so it encodes a tensor as a NumPy array.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import ml_dtypes
import msgspec
import numpy as np

_PART = 1 << 30  # MessagePack has 32-bit byte counts
_BUILTIN_DTYPE = re.compile(r"[<>|=][biufcSU]\d{1,10}")
_DEEPEST = 100  # lists in lists, of which more end in a RecursionError somewhere
_MOST_DIMENSIONS = 64  # of NumPy's arrays
_MOST_WITHOUT_BYTES = 1 << 20  # elements of no bytes, of which a file can name any number
_ML_DTYPES = "ml_dtypes."

# Python's types that MessagePack has.
_PLAIN = (type(None), bool, int, float)
_LARGEST_INT = 1 << 63


class Array(msgspec.Struct, frozen=True, tag="array"):
    """A NumPy array, a NumPy scalar, or a tensor: its elements in C order, in parts."""

    dtype: str
    shape: tuple[int, ...]
    data: list[bytes]
    kind: Literal["array", "scalar", "tensor"] = "array"


class Texts(msgspec.Struct, frozen=True, tag="texts"):
    """An array of strings in C order, or one string, as bytes; `are_text` is True for a `str`."""

    shape: tuple[int, ...]
    items: list[bytes]
    are_text: list[bool]
    kind: Literal["array", "scalar", "tensor"] = "array"


class Plain(msgspec.Struct, frozen=True, tag="plain"):
    """A Python value that MessagePack has."""

    value: bool | int | float | None


class Complex(msgspec.Struct, frozen=True, tag="complex"):
    """A Python complex number."""

    real: float
    imag: float


class Items(msgspec.Struct, frozen=True, tag="items"):
    """A list or a tuple."""

    kind: Literal["list", "tuple"]
    items: list[Value]


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """A value that cannot be recorded; only its description is kept."""

    what: str


Value = Array | Texts | Plain | Complex | Items | Unknown


def encode(value: Any, depth: int = 0) -> Value:
    """Copy a value into a recordable one, or into an `Unknown` if it cannot be recorded."""
    # `depth` is the number of lists and tuples that it is in.
    if isinstance(value, np.ndarray | np.generic):
        return _encode_array(value, "scalar" if isinstance(value, np.generic) else "array")
    if type(value) is int and not -_LARGEST_INT <= value < 2 * _LARGEST_INT:
        return Unknown("an integer of more than 64 bits")
    if type(value) in (bytes, str):
        return _texts((), [value], "scalar")
    if type(value) in _PLAIN:
        return Plain(value)
    if type(value) is complex:
        return Complex(value.real, value.imag)
    if isinstance(value, list | tuple):
        if depth == _DEEPEST:
            return Unknown(f"nested deeper than {_DEEPEST} lists in lists")
        kind: Literal["list", "tuple"] = "list" if isinstance(value, list) else "tuple"
        return Items(kind, [encode(one, depth + 1) for one in value])
    return _encode_object(value)


def encode_argument(value: object) -> Value:
    """Encode an argument; scalars become arrays, since callers pass them in different ways."""
    encoded = encode(value)
    if isinstance(encoded, Array | Texts) and encoded.kind != "array":
        return msgspec.structs.replace(encoded, kind="array")
    return encoded


def _encode_object(value: Any) -> Value:
    with contextlib.suppress(Exception):  # for example a TensorFlow resource
        if _is_tensor(value):
            return _encode_array(value.numpy(), "tensor")
        if hasattr(value, "__array__"):
            return _encode_array(value, "array")
        if hasattr(value, "__dlpack__"):
            return _encode_array(np.from_dlpack(value), "array")
    return Unknown(f"{type(value).__module__}.{type(value).__qualname__}")


def _is_tensor(value: object) -> bool:
    """Return whether a value is a TensorFlow tensor."""
    return any(
        kind.__name__ == "Tensor" and kind.__module__.startswith("tensorflow.")
        for kind in type(value).__mro__
    )


def _encode_array(value: object, kind: Any) -> Value:
    array = np.asarray(value)
    if array.dtype == object:
        items = array.ravel().tolist()
        if all(type(item) in (bytes, str) for item in items):
            return _texts(array.shape, items, kind)
        return Unknown("an array of Python objects")
    name = _name_of(array.dtype)
    if name is None:
        return Unknown(f"an array of {array.dtype}")
    data = array.tobytes()
    parts = [data[at : at + _PART] for at in range(0, len(data), _PART)]
    return Array(name, array.shape, parts, kind)


def _texts(shape: tuple[int, ...], items: list[bytes | str], kind: Any) -> Texts:
    # Strings may hold surrogates, which strict UTF-8 refuses.
    data = [s if isinstance(s, bytes) else s.encode(errors="surrogatepass") for s in items]
    return Texts(shape, data, [isinstance(item, str) for item in items], kind)


def _name_of(dtype: np.dtype[Any]) -> str | None:
    if dtype.type.__module__ == "ml_dtypes":
        return _ML_DTYPES + dtype.name
    return dtype.str if _BUILTIN_DTYPE.fullmatch(dtype.str) else None


def decode(value: Value, to_tensor: Callable[[Any], Any] | None = None) -> Any:
    """Decode a value, with `to_tensor` for what was a tensor, or raise a ValueError."""
    match value:
        case Array() | Texts():
            array = to_array(value)
            if value.kind == "tensor" and to_tensor is not None:
                return to_tensor(array)
            return array[()] if value.kind == "scalar" else array
        case Plain():
            return value.value
        case Complex():
            return complex(value.real, value.imag)
        case Items():
            items = [decode(item, to_tensor) for item in value.items]
            return items if value.kind == "list" else tuple(items)
    raise ValueError(f"it was {value.what}, which cannot be recorded")


def check_depth(values: Sequence[Value]) -> None:
    """Raise a ValueError for values that are nested deeper than `encode` makes them."""
    for _ in range(_DEEPEST + 1):
        values = [one for value in values if isinstance(value, Items) for one in value.items]
        if not values:
            return
    raise ValueError(f"a value is nested deeper than {_DEEPEST} lists in lists")


def to_array(value: Array | Texts) -> np.ndarray:
    """Decode an array; raise a ValueError if dtype, shape and elements do not match."""
    if isinstance(value, Texts):
        pairs = zip(value.items, value.are_text, strict=True)
        array = np.empty(len(value.items), object)
        array[:] = [s.decode(errors="surrogatepass") if is_text else s for s, is_text in pairs]
        return array.reshape(value.shape)
    dtype = _dtype_of(value.dtype)
    data = bytearray().join(value.data)
    if len(value.shape) > _MOST_DIMENSIONS:
        raise ValueError(f"an array of {len(value.shape)} dimensions")
    count = math.prod(value.shape)
    if not dtype.itemsize and count > _MOST_WITHOUT_BYTES:
        raise ValueError(f"an array of {count} elements of {dtype}, which have no bytes")
    if len(data) != dtype.itemsize * count:
        raise ValueError(f"an array of {dtype} and shape {value.shape} has {len(data)} bytes")
    return np.ndarray(value.shape, dtype, data)


def _dtype_of(name: str) -> np.dtype[Any]:
    found: Any = name if _BUILTIN_DTYPE.fullmatch(name) else None
    if name.startswith(_ML_DTYPES):
        of_library = vars(ml_dtypes).get(name.removeprefix(_ML_DTYPES))
        if isinstance(of_library, type) and issubclass(of_library, np.generic):
            found = of_library
    try:
        dtype: np.dtype[Any] | None = None if found is None else np.dtype(found)
    except TypeError:  # such as "<f3"
        dtype = None
    if dtype is None:
        raise ValueError(f"there is no dtype {name!r}")
    return dtype


def unknowns(values: Sequence[Value]) -> list[str]:
    """Return the descriptions of all values that cannot be recorded."""
    found = []
    for value in values:
        if isinstance(value, Unknown):
            found.append(value.what)
        elif isinstance(value, Items):
            found += unknowns(value.items)
    return found
