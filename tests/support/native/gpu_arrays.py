"""Arrays on the GPU that there is not, as libraries like CuPy, Numba and Torch have them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hostcall_runtime import _device_arrays
from hostcall_runtime._device_arrays import _is_contiguous
from tests.support.native import frames
from tests.support.native.frames import Buffer, Outcome, Target, call_on_gpu, native, runtime

CPU, CUDA = _device_arrays.CPU, _device_arrays.CUDA
DEFAULT_STREAM = 1
INVALID_ARGUMENT = 3

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
X = Buffer.of(VALUES)
Y = Buffer.result((2, 3))


# The dtypes that DLPack has.
DTYPES = frozenset(_device_arrays.DTYPES.values())


def code_of(dtype: Any) -> tuple[int, int]:
    return _device_arrays._CODES[np.dtype(dtype)]


class GpuArray:
    """An array; where there is a `stream`, one that fills it when it is waited for."""

    def __init__(
        self,
        values: Any,
        *,
        number: int = 0,
        stream: int | None = None,
        strides: tuple[int, ...] = (),
        kind: int = CUDA,
    ) -> None:
        self.values = np.asarray(values)
        data = self.values.tobytes()
        first = data if stream is None else b"\x77" * len(data)
        self.memory = native.DeviceArray(first, number)
        if stream is not None:
            self.memory.write_later(data, stream)
        self.stream, self.strides, self.device = stream, strides, (kind, number)


class ByDlpack(GpuArray):
    """One with DLPack's methods, that notes the streams on which it was asked to be ready."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None, **wanted: Any) -> Any:
        self.asked.append(stream)
        if self.stream is not None:
            assert stream is not None
            # As with an event: later work on that stream comes after that of its own.
            self.memory.write_later(self.values.tobytes(), stream)
        dtype = code_of(self.values.dtype)
        made = self.memory.exporter(self.values.shape, self.strides, dtype, self.device)
        return made.__dlpack__(**wanted)


class ByInterface(GpuArray):
    """One with `__cuda_array_interface__`, which says besides what is `said`."""

    def __init__(self, *args: Any, said: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.said = said or {}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        size = self.values.dtype.itemsize
        return {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str,
            "data": (self.memory.address, False),
            "strides": tuple(s * size for s in self.strides) or None,
            "version": 3,
            "stream": self.stream,
            **self.said,
        }


def read(address: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(native.read_device(address, size), dtype).reshape(shape)


def by_dlpack(x: Any, stream: int | None = None) -> np.ndarray:
    """The values of an array on the device, as a library reads them that takes it by DLPack."""
    array = runtime.ForeignArray(x.__dlpack__(stream=stream, max_version=(1, 1)))
    assert array.device == (CUDA, 0)
    assert array.dtype == (*code_of(x.dtype), 1)
    assert array.shape == x.shape
    return read(array.address, x.dtype, x.shape) if is_whole(array) else np.zeros(x.shape, x.dtype)


def is_whole(array: Any) -> bool:
    return _is_contiguous(array.shape, array.strides) and 0 not in array.shape


def by_interface(x: Any) -> np.ndarray:
    interface = x.__cuda_array_interface__
    address, is_read_only = interface["data"]
    assert is_read_only
    assert interface["version"] == 3
    return read(address, interface["typestr"], interface["shape"])


def on_gpu(function: Any, operands: Any = (X,), results: Any = (Y,), **options: Any) -> Outcome:
    """Calls a function of arrays on the device, whose operands never come to the host."""
    target = Target(function, convention={"on_device": True})
    if "dynamic_operands" not in options:
        native.fail_cuda("cuMemcpyDtoHAsync_v2")
    return call_on_gpu(target, operands, results, **options)


def assert_fails(done: Outcome, *texts: str, code: int = INVALID_ARGUMENT) -> None:
    frames.assert_fails(done, code, *texts)
    assert done.untouched
    again = on_gpu(lambda x: ByDlpack(-by_dlpack(x)))
    assert (again.code, again.array()[1, 2]) == (0, -5)
