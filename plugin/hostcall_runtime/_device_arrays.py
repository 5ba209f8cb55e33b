"""`memory="device"`: the arrays that a function is lent where they lie."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

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
    """An array that a function with `memory="device"` is lent, in the memory where it lies.

    Other libraries take it without a copy: by DLPack (`np.from_dlpack`, `cupy.from_dlpack`,
    `torch.from_dlpack`, `jax.dlpack.from_dlpack`), and on a GPU by `__cuda_array_interface__` too
    (`numba.cuda.as_cuda_array`, `cupy.asarray`). On the CPU `np.asarray` works as well.

    It is only to be read, and lasts as long as the call: afterwards each use is a `BufferError`.
    What the program has computed is ready, on every stream.

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
        """Where the array lies."""
        kind, number = self._loan.device
        return "cpu" if kind == CPU else f"cuda:{number}"

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device, in DLPack's terms."""
        return self._loan.device  # type: ignore[no-any-return]

    def __dlpack__(self, *, stream: int | None = None, **wanted: Any) -> Any:
        """A capsule of DLPack's.

        Args:
          stream: where it is to be used. The array is ready on each.
          **wanted: `max_version`, `dl_device` and `copy`, as the array API standard has them.

        Raises:
          BufferError: after the call, or where DLPack has no such dtype or what is wanted cannot
            be.
        """
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
        """What CUDA libraries take it by; an AttributeError where it lies on the CPU."""
        # Where this is an AttributeError, libraries take it by DLPack. bfloat16 has no name here.
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
        """A read-only array of NumPy's over the same memory, where that is the host's."""
        loan = self._lasting()
        if loan.device[0] != CPU:
            raise TypeError(
                f"hostcall: NumPy cannot read an array on {self.device}. Copy it to the host, as "
                'cupy.asnumpy(cupy.from_dlpack(x)) does, or take memory="device" away.'
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
