"""The calls of one client in a worker, and its arena.

A worker reads and writes the arena by system calls, and does not map it. So a function's arrays
are its own, whatever the client does to the file, and the client cannot end this process by it.
"""

from __future__ import annotations

import collections
import fcntl
import functools
import os
import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._ops import lookup, result_shapes, tape_residuals
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec
from hostcall._ops.structures import BoundedSpec
from hostcall._saved import tokens
from hostcall._saved.tokens import SavedFunctionError
from hostcall._tf import eager_execution, token_registry
from hostcall._tf.graph import protos
from hostcall_runtime._errors import (
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNKNOWN,
    LoweringError,
)
from hostcall_runtime._serving_wire import ELEMENT_SIZES, ArrayFrame, CallFrame, ProtocolError

_ALIGNMENT = 64
_LENGTH = np.dtype("<u8")


class Arena:
    """The arena of one connection, which owns its descriptor; at most `limit` bytes are used."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self.limit = limit
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError as error:
            raise ProtocolError("the arena is not a file made by memfd_create") from error
        if not seals & fcntl.F_SEAL_SHRINK:
            raise ProtocolError("the arena is not sealed by F_SEAL_SHRINK")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def read(self, arrays: Sequence[ArrayFrame]) -> list[Any]:
        """Return copies of the arrays at places in the arena, which are checked."""
        total = min(os.fstat(self._descriptor).st_size, self.limit)
        if sum(array.size for array in arrays) > total:
            raise ProtocolError("the arguments are larger than the arena")
        for array in arrays:
            if array.offset + array.size > total:
                raise ProtocolError("an argument lies outside of the arena")
        return [self._strings(one) if one.is_strings else self._numbers(one) for one in arrays]

    def write(self, results: Sequence[Any], dtypes: Sequence[int]) -> list[ArrayFrame]:
        """Write arrays one after the other, and return their places."""
        arrays, pieces, end = [], [], 0
        for result, dtype in zip(results, dtypes, strict=True):
            array = ArrayFrame(dtype, np.shape(result), -(-end // _ALIGNMENT) * _ALIGNMENT)
            content = _packed(result) if array.is_strings else _bytes_of(result)
            arrays.append(array._replace(size=len(content)))
            pieces.append(content)
            end = array.offset + len(content)
        if end > self.limit:
            raise CallError(
                RESOURCE_EXHAUSTED,
                f"hostcall: the results of a Python function have {end} bytes, and a worker may "
                f"return {self.limit}: HOSTCALL_WORKER_BYTES of the process that calls it, and "
                "--bytes of the worker, set the limit.",
            )
        try:
            for array, content in zip(arrays, pieces, strict=True):
                self._write(array.offset, content)
        except OSError as error:
            text = f"hostcall: the arena cannot be written: {error}"
            raise CallError(RESOURCE_EXHAUSTED, text) from error
        return arrays

    def _numbers(self, array: ArrayFrame) -> np.ndarray:
        element = ELEMENT_SIZES.get(array.dtype)
        if element is None:
            raise ProtocolError(f"arrays of dtype {array.dtype} cannot be sent")
        if array.elements * element != array.size:
            raise ProtocolError(f"an array of shape {array.shape} has {array.size} bytes")
        # TensorFlow takes over memory that is aligned as its own tensors are.
        memory = np.empty(array.size + _ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % _ALIGNMENT
        flat = memory[begin : begin + array.size]
        self._read(array.offset, flat.data)
        dtype = tf.as_dtype(array.dtype).as_numpy_dtype
        numbers: np.ndarray = flat.view(dtype).reshape(array.shape)
        return numbers

    def _strings(self, array: ArrayFrame) -> np.ndarray:
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


def _bytes_of(array: object) -> memoryview:
    """Return the memory of an array of numbers."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _packed(strings: Any) -> bytes:
    """Return the lengths of strings, followed by the strings."""
    flat = np.asarray(strings, object).reshape(-1).tolist()
    return struct.pack(f"<{len(flat)}Q", *map(len, flat)) + b"".join(flat)


# The parts that TensorFlow adds to an error's text in an eager call, and those that mean something
# only in the process of the function.
_ADDED = re.compile(
    r"^\{\{function_node __wrapped__[^}\n]*\}\} ?"
    r"|\n?\[hostcall error \d+: hostcall\.last_error[^\]\n]*\]\n?"
    r"|\s*\[Op:\w*PyFunc\w*\](?: name: ?)?(?=\nThis is |$)"
)

_IN_WORKER = """\


This is a worker. Start it with `hostcall worker --allow MODULE` to allow a module, with \
PYTHONPATH=DIRECTORY in its environment to find one, and with `--import MODULE` to run one that \
calls hostcall.provide."""

# The most recorded calls that are kept for gradients not asked for yet; the oldest go first.
MOST_RESIDUALS = 1024
_handles: collections.deque[int] = collections.deque()


class CallError(Exception):
    """A failed call, with the message for its caller, and the code of absl::StatusCode."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@functools.lru_cache(maxsize=1024)
def _name_of(token: str) -> str:
    if not token_registry.is_qualified(token):
        return ""
    try:
        return tokens.decode(token).users.label
    except SavedFunctionError:
        return ""


def name_of(call: CallFrame) -> str:
    """Return the name of the function that a call names, or "" if it names none."""
    return _name_of(call.token)


def run(call: CallFrame, arguments: Sequence[Any]) -> list[Any]:
    """Call a function with arrays that the call owns; return arrays that must not be written to."""
    try:
        dtypes = _checked(call)
        op = getattr(tf.raw_ops, call.op)
        with tf.device("/CPU:0"):
            inputs = [
                eager_execution.over_array(array, tf.as_dtype(place.dtype))
                for array, place in zip(arguments, call.arguments, strict=True)
            ]
            results = op(input=inputs, token=call.token, Tout=dtypes)
        # Without results the op returns itself.
        arrays = [eager_execution.as_array(result) for result in results] if dtypes else []
    except CallError:
        raise
    except tf.errors.OpError as error:
        raise CallError(error.error_code, _text_of(error, call)) from error
    except BaseException as error:
        raise CallError(UNKNOWN, f"{type(error).__name__}: {error}") from error
    if call.op == "EagerPyFunc" and dtypes[-1:] == [tf.int64]:
        _note_handle(int(arrays[-1].reshape(-1)[:1].sum()))
    return arrays


def shapes(call: CallFrame) -> list[ArrayFrame]:
    """Return the shapes of a call's results, for arguments that have shapes and no values."""
    dtypes = _checked(call)
    node = protos.node_def_pb2.NodeDef(name="call", op=call.op)
    node.attr["token"].s = call.token.encode()
    node.attr["Tin"].list.type.extend(one.dtype for one in call.arguments)
    node.attr["Tout"].list.type.extend(call.result_dtypes)
    try:
        spec = lookup.existing_spec_of(node)
        operands = [tf.TensorSpec(one.shape, tf.as_dtype(one.dtype)) for one in call.arguments]
        specs = result_shapes.resolve(spec, node, operands)
    except Exception as error:  # a shape function of the user's may raise anything
        raise CallError(INVALID_ARGUMENT, str(error)) from error
    if any(isinstance(one, BoundedSpec) for one in specs):
        raise CallError(
            INVALID_ARGUMENT,
            f"hostcall: a result of {spec.description} has a bounded size, and the compiled "
            "programs of a process without Python take known sizes only.",
        )
    if isinstance(spec, EagerSpec) and spec.differentiable:
        specs = [*specs, tf.TensorSpec([], tf.int64)]  # the handle of the tape residual
    return [
        ArrayFrame(dtype.as_datatype_enum, tuple(one.shape))
        for one, dtype in zip(specs, dtypes, strict=True)
    ]


def _note_handle(handle: int) -> None:
    """Keep at most `MOST_RESIDUALS` tape residuals: no client reports those it will not need."""
    # `handle` is the last result of a call, which may be another number.
    if tape_residuals.spec_of(handle) is None:
        return
    _handles.append(handle)
    while len(_handles) > MOST_RESIDUALS:
        tape_residuals.drop(_handles.popleft())


def _text_of(error: tf.errors.OpError, call: CallFrame) -> str:
    label, text = tokens.decode(call.token).users.label, _ADDED.sub("", str(error.message))
    spec = token_registry.find_present(call.token)
    title = spec.title if isinstance(spec, CallbackSpec) else call.token
    return text.replace(call.token, label).replace(title, label)


def _checked(call: CallFrame) -> list[tf.DType]:
    """Return the dtypes of the results if the call's token may be called; raise otherwise."""
    if not token_registry.is_qualified(call.token):
        raise CallError(
            INVALID_ARGUMENT,
            f"hostcall: the script op has the token {call.token[:100]!r}, which means something in "
            "the process that traced it, and nothing in a worker. Save the model again, with "
            "hostcall imported.",
        )
    try:
        dtypes = [tf.as_dtype(dtype) for dtype in call.result_dtypes]
        op = f"in a saved graph ({call.op})"
        lookup.entry_for(call.token, op, call.op, len(call.arguments), dtypes)
        if (why := token_registry.why_missing(call.token)) is not None:
            raise why
    except SavedFunctionError as error:
        hint = _IN_WORKER if "write in this process" in str(error) else ""
        raise CallError(INVALID_ARGUMENT, str(error) + hint) from error
    except (LoweringError, TypeError) as error:
        raise CallError(INVALID_ARGUMENT, str(error)) from error
    return dtypes
