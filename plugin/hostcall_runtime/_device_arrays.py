"""`memory="device"`: arrays that a function gets and returns without leaving the device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hostcall_runtime import _library
from hostcall_runtime._errors import ResultError

_runtime = _library.load("hostcall_runtime._runtime")
_MANAGED = 13  # DLPack's number for memory that the host and all GPUs share

# The types that NumPy converts to arrays by itself.
_OF_NUMPY = (np.ndarray, np.generic, int, float, complex, str, bytes, list, tuple, type(None))

# The dtype, its name, the shape, and for each size whether it is a bound; empty if none is.
Declared = tuple[np.dtype[Any], str, tuple[int, ...], tuple[bool, ...]]


def take_on_host(returned: object, title: str) -> object:
    """Return a function's results as NumPy arrays over the host memory in which they lie."""
    if isinstance(returned, list | tuple):
        values = [_of_host(value, index, title) for index, value in enumerate(returned)]
        # An empty list is one value, and an empty tuple none.
        return values if isinstance(returned, list) else tuple(values)
    return _of_host(returned, 0, title)


def take_on_device(
    returned: object, declared: Sequence[Declared], title: str, device: int, stream: int
) -> tuple[list[Any], list[int], list[Any]]:
    """Return the addresses of the results of a call, in a program for a GPU."""
    # For each result it is the address, bytes and shape, or a value for NumPy if it lies in the
    # host's memory. Further the streams to wait for, and the objects that keep the memory alive.
    # Libraries are told to make their arrays ready on the program's stream.
    values = _split(returned, len(declared))
    if len(values) != len(declared):
        raise ResultError(_runtime.count_message(title, len(values), len(declared)))
    streams: list[int] = []
    keep: list[Any] = []
    found = []
    for index, (value, one) in enumerate(zip(values, declared, strict=True)):
        array = _CudaArray.of(value, device, stream, index, title)
        if array is None:
            found.append(_of_host(value, index, title))
            continue
        array.check(one, index, title)
        keep.append(array)
        streams += array.streams
        shape = tuple(array.shape)
        found.append((array.address, math.prod(shape) * one[0].itemsize, shape))
    return found, streams, keep


@dataclasses.dataclass
class _CudaArray:
    """An array on a GPU, ready after the streams; `keep` keeps its memory alive."""

    address: int
    shape: Sequence[int]
    dtype: np.dtype[Any] | None  # None if NumPy does not have it
    strides: Sequence[float] | None  # in elements, or None without gaps
    streams: list[int]
    keep: object

    @classmethod
    def of(
        cls, value: object, device: int, stream: int, index: int, title: str
    ) -> _CudaArray | None:
        """Return the array that `value` exposes, or None if it lies in the host's memory."""
        if isinstance(value, _OF_NUMPY):
            return None
        if hasattr(type(value), "__dlpack__"):
            kind, number = _device_of(value)
            if kind == CPU:
                return None
            if kind not in (CUDA, _MANAGED) or (kind == CUDA and number != device):
                raise ResultError(_elsewhere(value, kind, number, index, title, f"cuda:{device}"))
            array = _runtime.ForeignArray(_capsule(value, stream=stream))
            dtype = _dtype_of(array)
            return cls(array.address, array.shape, dtype, array.strides, [], array)
        interface = getattr(value, "__cuda_array_interface__", None)
        return None if interface is None else cls._of_interface(interface, value)

    @classmethod
    def _of_interface(cls, interface: dict[str, Any], value: object) -> _CudaArray:
        dtype = np.dtype(interface["typestr"])
        strides = interface.get("strides")
        if strides is not None:
            strides = [stride / dtype.itemsize for stride in strides]
        stream = interface.get("stream")
        streams = [] if stream is None else [int(stream)]
        keep = interface, value
        return cls(interface["data"][0], interface["shape"], dtype, strides, streams, keep)

    def check(self, declared: Declared, index: int, title: str) -> None:
        """Raise a ResultError if the array is not as declared."""
        dtype, name, shape, bounded = declared
        subject = f"{index}-th value returned by {title}"
        if self.dtype != dtype:
            raise ResultError(f"{subject} is {self.dtype}, but expects {name}.")
        if not _fits(self.shape, shape, bounded):
            raise ResultError(
                _runtime.shape_message(title, index, str(tuple(self.shape)), _shown(shape, bounded))
            )
        if any(bounded[1:]) and tuple(self.shape[1:]) != shape[1:]:
            raise ResultError(
                f"{subject} has shape {tuple(self.shape)} within {_shown(shape, bounded)}, and on "
                "a device only the first size may be less than its bound. Return an array of "
                "NumPy's, or pad it."
            )
        if self.strides is not None and not _is_contiguous(self.shape, self.strides):
            raise ResultError(
                f"{subject} has gaps, or another order than C's: its strides are "
                f"{tuple(self.strides)} elements. Return a copy without, as "
                "cupy.ascontiguousarray(y) or y.contiguous() of Torch makes it."
            )


def _of_host(value: object, index: int, title: str) -> object:
    if isinstance(value, _OF_NUMPY):
        return value
    if isinstance(value, DeviceArray):
        if value.device != "cpu":
            raise ResultError(_elsewhere(value, *value.__dlpack_device__(), index, title, "cpu"))
        return np.asarray(value)
    if hasattr(type(value), "__dlpack__"):
        kind, number = _device_of(value)
        if kind != CPU:
            raise ResultError(_elsewhere(value, kind, number, index, title, "cpu"))
        array = _runtime.ForeignArray(_capsule(value))
        dtype = _dtype_of(array)
        return np.asarray(value) if dtype is None else array.view(dtype)
    if hasattr(value, "__cuda_array_interface__"):
        raise ResultError(_elsewhere(value, CUDA, None, index, title, "cpu"))
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype == object:
        raise ResultError(
            f"{index}-th value returned by {title} is {value!r}, of {type(value)}, which has "
            "neither __dlpack__ nor __cuda_array_interface__, nor can NumPy make an array of it. "
            "Return an array."
        )
    return array


def _split(returned: object, count: int) -> Sequence[object]:
    """Return the values that stand for `count` results, counted as result_contract.cc does."""
    if isinstance(returned, list | tuple) and not (count == 1 and returned == []):
        return returned
    return [] if returned is None else [returned]


def _device_of(value: Any) -> tuple[int, int]:
    kind, number = value.__dlpack_device__()
    return int(kind), int(number)


def _capsule(value: Any, **stream: int) -> object:
    try:
        return value.__dlpack__(**stream)
    except BufferError:
        # Read-only arrays have only this kind of capsule.
        return value.__dlpack__(max_version=(1, 1), **stream)


def _dtype_of(array: Any) -> np.dtype[Any] | None:
    code, bits, lanes = array.dtype
    return DTYPES.get((code, bits)) if lanes == 1 else None


def _fits(actual: Sequence[int], shape: tuple[int, ...], bounded: tuple[bool, ...]) -> bool:
    if len(actual) != len(shape):
        return False
    bounds = bounded or (False,) * len(shape)
    pairs = zip(actual, shape, bounds, strict=True)
    return all(0 <= size <= most if bound else size == most for size, most, bound in pairs)


def _shown(shape: tuple[int, ...], bounded: tuple[bool, ...]) -> str:
    bounds = bounded or (False,) * len(shape)
    sizes = [f"<={size}" if bound else str(size) for size, bound in zip(shape, bounds, strict=True)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _is_contiguous(shape: Sequence[int], strides: Sequence[float]) -> bool:
    expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes = zip(shape, strides, expected, strict=True)
    return 0 in shape or all(size == 1 or stride == wanted for size, stride, wanted in sizes)


def _elsewhere(
    value: object, kind: int, number: int | None, index: int, title: str, wanted: str
) -> str:
    names = {CPU: "the CPU", CUDA: "CUDA device"}
    place = names.get(kind, f"a device of DLPack's kind {kind}, number")
    place += "" if number is None or kind == CPU else f" {number}"
    to_host = wanted == "cpu"
    remedy = "cupy.asnumpy(y) or y.cpu() of Torch" if to_host else f"y.to('{wanted}') of Torch"
    return (
        f"{index}-th value returned by {title} is a {type(value).__name__} on {place}, and the "
        f"program runs on {wanted}. Copy it there in the function, as {remedy} does."
    )


CPU = 1  # of DLPack's kinds of devices
CUDA = 2

# DLPack's numbers for dtypes: the code, and the bits of an element.
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_CODES: dict[np.dtype[Any], tuple[int, int]] = {
    np.dtype(name): (_KINDS[np.dtype(name).kind], 8 * np.dtype(name).itemsize)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
_CODES |= {
    np.dtype(ml_dtypes.bfloat16): (4, 16),
    np.dtype(ml_dtypes.float8_e3m4): (7, 8),
    np.dtype(ml_dtypes.float8_e4m3): (8, 8),
    np.dtype(ml_dtypes.float8_e4m3b11fnuz): (9, 8),
    np.dtype(ml_dtypes.float8_e4m3fn): (10, 8),
    np.dtype(ml_dtypes.float8_e4m3fnuz): (11, 8),
    np.dtype(ml_dtypes.float8_e5m2): (12, 8),
    np.dtype(ml_dtypes.float8_e5m2fnuz): (13, 8),
    np.dtype(ml_dtypes.float8_e8m0fnu): (14, 8),
}
DTYPES = {code: dtype for dtype, code in _CODES.items()}


class DeviceArray:
    """An array that is lent to a function with `memory="device"`, in the memory where it lies.

    Other libraries take it without a copy: by DLPack (`np.from_dlpack`, `cupy.from_dlpack`,
    `torch.from_dlpack`, `jax.dlpack.from_dlpack`), and on a GPU by `__cuda_array_interface__` too
    (`numba.cuda.as_cuda_array`, `cupy.asarray`). On the CPU `np.asarray` works as well.

    It is read-only, and valid until the call ends: afterwards each use raises a `BufferError`.
    The program has computed its values before the call, so they are ready on every stream.

    Attributes:
      shape: a tuple of ints.
      dtype: a NumPy dtype.
      device: "cpu", or "cuda:0" for the first GPU.

    Examples:
      >>> @hostcall.callback(result=lambda x: x, memory="device")
      ... def double(x):
      ...     print(x.device, x.shape)
      ...     return 2 * np.from_dlpack(x)
      >>> double(tf.constant([1.0, 2.0])).numpy()
      cpu (2,)
      array([2., 4.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_loan")

    def __init__(self, loan: Any) -> None:
        self._loan = loan

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._loan.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self._loan.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """The device whose memory holds the array."""
        kind, number = self._loan.device
        return "cpu" if kind == CPU else f"cuda:{number}"

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device, in DLPack's terms."""
        return self._loan.device  # type: ignore[no-any-return]

    def __dlpack__(self, *, stream: int | None = None, **wanted: Any) -> Any:
        """Return a DLPack capsule; the array is ready on each stream."""
        # `wanted` are as in the array API standard. A BufferError says that it cannot be met, that
        # the call has ended, or that DLPack lacks the dtype.
        loan = self._lasting()
        code = _CODES.get(self.dtype)
        if code is None:
            raise BufferError(
                f"hostcall: DLPack has no dtype for {self.dtype}. Cast the argument to another one "
                "around the call."
            )
        return loan.export(*code).__dlpack__(**wanted)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The interface for CUDA libraries; an AttributeError if the array lies on the CPU."""
        # After an AttributeError, libraries use DLPack. bfloat16 has no name in this interface.
        if self._loan.device[0] != CUDA or self.dtype.isbuiltin != 1:
            raise AttributeError("__cuda_array_interface__")
        loan = self._lasting()
        address = loan.expose()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (address, True),
            "strides": tuple(stride * self.dtype.itemsize for stride in loan.strides),
            "version": 3,
            "stream": loan.stream,
        }

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return a read-only NumPy array over the same memory, which has to be the host's."""
        loan = self._lasting()
        if loan.device[0] != CPU:
            raise TypeError(
                f"hostcall: NumPy cannot read an array on {self.device}. Copy it to the host, as "
                'cupy.asnumpy(cupy.from_dlpack(x)) does, or remove memory="device".'
            )
        return np.array(loan.view(), dtype, copy=copy)

    def __repr__(self) -> str:
        over = ", of a call that has ended" if self._loan.is_over else ""
        return f"<hostcall.DeviceArray {self.dtype}{list(self.shape)} on {self.device}{over}>"

    def _lasting(self) -> Any:
        if self._loan.is_over:
            raise BufferError(
                f"{self!r}: it was lent to a function for a call, and is used after that. The "
                "memory is the program's again: in the function, keep a copy of it."
            )
        return self._loan
