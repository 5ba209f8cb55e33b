"""The memory that a client shares with a worker: a file without a name, which the client makes.

It is read and written by calls and not mapped: an array that a function gets is its own, whatever
the client does meanwhile, and nothing that the client does to the file ends this process.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall_runtime._worker_frames import ELEMENT_SIZES, Array, ProtocolError

_ALIGNMENT = 64
_LENGTH = np.dtype("<u8")


class ArenaFullError(Exception):
    """Results need more memory than the client or the worker allows."""


class Arena:
    """The arena of one connection.

    Args:
      descriptor: of the file, which is the arena's once this has not failed.
      limit: the most bytes of it that are used.

    Raises:
      ProtocolError: when it is no such file.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self.limit = limit
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError as error:
            raise ProtocolError("the arena is no file made by memfd_create") from error
        if not seals & fcntl.F_SEAL_SHRINK:
            raise ProtocolError("the arena is not sealed by F_SEAL_SHRINK")

    def close(self) -> None:
        """Gives the file back."""
        os.close(self._descriptor)

    def read(self, arrays: Sequence[Array]) -> list[Any]:
        """The arrays at places in it, each with memory of its own.

        Raises:
          ProtocolError: when one does not lie in it, or has not the size that its shape has.
        """
        total = min(os.fstat(self._descriptor).st_size, self.limit)
        if sum(array.size for array in arrays) > total:
            raise ProtocolError("the arguments are larger than the arena")
        for array in arrays:
            if array.offset + array.size > total:
                raise ProtocolError("an argument lies outside of the arena")
        return [self._strings(one) if one.is_strings else self._numbers(one) for one in arrays]

    def write(self, results: Sequence[Any], dtypes: Sequence[int]) -> list[Array]:
        """Writes arrays one after the other, and says where they are.

        Raises:
          ArenaFullError: when there is no room for them.
        """
        arrays, pieces, end = [], [], 0
        for result, dtype in zip(results, dtypes, strict=True):
            array = Array(dtype, np.shape(result), -(-end // _ALIGNMENT) * _ALIGNMENT)
            content = _packed(result) if array.is_strings else _bytes_of(result)
            arrays.append(array._replace(size=len(content)))
            pieces.append(content)
            end = array.offset + len(content)
        if end > self.limit:
            raise ArenaFullError(
                f"hostcall: the results of a Python function have {end} bytes, and a worker may "
                f"return {self.limit}: HOSTCALL_WORKER_BYTES of the process that calls it, and "
                "--bytes of the worker, set the limit."
            )
        try:
            for array, content in zip(arrays, pieces, strict=True):
                self._write(array.offset, content)
        except OSError as error:
            raise ArenaFullError(f"hostcall: the arena cannot be written: {error}") from error
        return arrays

    def _numbers(self, array: Array) -> Any:
        element = ELEMENT_SIZES.get(array.dtype)
        if element is None:
            raise ProtocolError(f"arrays of dtype {array.dtype} cannot be sent")
        if array.elements * element != array.size:
            raise ProtocolError(f"an array of shape {array.shape} has {array.size} bytes")
        # TensorFlow takes over what is aligned as its own tensors are.
        memory = np.empty(array.size + _ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % _ALIGNMENT
        flat = memory[begin : begin + array.size]
        self._read(array.offset, flat.data)
        return flat.view(tf.as_dtype(array.dtype).as_numpy_dtype).reshape(array.shape)

    def _strings(self, array: Array) -> Any:
        count = array.elements
        if count * _LENGTH.itemsize > array.size:
            raise ProtocolError("an array of strings has no room for their lengths")
        packed = np.empty(array.size, np.uint8)
        self._read(array.offset, _bytes_of(packed))
        lengths = packed[: count * _LENGTH.itemsize].view(_LENGTH).tolist()
        content = packed[count * _LENGTH.itemsize :].tobytes()
        if sum(lengths) != len(content):
            raise ProtocolError("an array of strings has another size than they")
        strings, at = np.empty(count, object), 0
        for index, length in enumerate(lengths):
            strings[index] = content[at : at + length]
            at += length
        return strings.reshape(array.shape)

    def _read(self, offset: int, into: memoryview) -> None:
        while into:
            count = os.preadv(self._descriptor, [into], offset)
            if not count:
                raise ProtocolError("the arena has become smaller")
            into, offset = into[count:], offset + count

    def _write(self, offset: int, content: memoryview | bytes) -> None:
        rest = memoryview(content)
        while rest:
            count = os.pwrite(self._descriptor, rest, offset)
            rest, offset = rest[count:], offset + count


def _bytes_of(array: Any) -> memoryview:
    """The memory of an array of numbers."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _packed(strings: Any) -> bytes:
    """The lengths of strings, and the strings."""
    flat = np.asarray(strings, object).reshape(-1).tolist()
    return struct.pack(f"<{len(flat)}Q", *map(len, flat)) + b"".join(flat)
