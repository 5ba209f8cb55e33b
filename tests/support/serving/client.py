"""A client of workers in Python, which can also say what no client should."""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from hostcall_runtime import _serving_wire
from hostcall_runtime._serving_wire import ArrayFrame, CallFrame, Frame, Kind
from tests.support.serving.fake_worker import packed

SECONDS = 60.0
MOST = 1 << 30


class WorkerError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def encode_hello(most: int) -> bytes:
    return struct.pack("<Q", most)


def encode_call(call: CallFrame) -> bytes:
    token = call.token.encode()
    counts = len(call.arguments), len(call.result_dtypes), len(token)
    head = struct.pack("<HHHI", _serving_wire.OPS.index(call.op) + 1, *counts)
    dtypes = struct.pack(f"<{len(call.result_dtypes)}i", *call.result_dtypes)
    return head + token + b"".join(map(_serving_wire.encode_array, call.arguments)) + dtypes


def decode_error(body: bytes) -> tuple[int, str]:
    reader = _serving_wire.FrameReader(body)
    (code,) = reader.numbers("I")
    text = reader.text()
    reader.end()
    return code, text


def decode_results(body: bytes) -> list[ArrayFrame]:
    reader = _serving_wire.FrameReader(body)
    (count,) = reader.numbers("H")
    arrays = [reader.array() for _ in range(count)]
    reader.end()
    return arrays


def make_arena(size: int = 0, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    arena = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(arena, size)
    fcntl.fcntl(arena, fcntl.F_ADD_SEALS, seals)
    return arena


class Client:
    """A connection with the worker at a path, or over a socket that leads to one."""

    def __init__(self, path: str | None = None, connection: socket.socket | None = None) -> None:
        self.connection = connection or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if path is not None:
            self.connection.connect(path)
        _serving_wire.prepare(self.connection)
        self.arena = make_arena()
        self.number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        os.close(self.arena)

    def hello(self, descriptors: Sequence[int] | None = None) -> Self:
        with contextlib.suppress(BrokenPipeError):  # it may have said why
            self.send_with(Kind.HELLO, encode_hello(MOST), descriptors)
        frame = self.receive()
        if frame.kind == Kind.ERROR:
            raise WorkerError(*decode_error(frame.body))
        assert frame.kind == Kind.WELCOME
        return self

    def send_with(self, kind: int, body: bytes, descriptors: Sequence[int] | None = None) -> None:
        frame = packed(kind, body, self.number)
        given = [self.arena] if descriptors is None else list(descriptors)
        if given:
            socket.send_fds(self.connection, [frame], given)
        else:
            self.connection.sendall(frame)

    def receive(self) -> Frame:
        return _serving_wire.receive(self.connection, SECONDS)

    def put(self, arrays: Sequence[Any]) -> list[ArrayFrame]:
        places, offset = [], 0
        for array in map(np.asarray, arrays):
            dtype = tf.as_dtype(array.dtype).as_datatype_enum
            content = array.tobytes()
            if array.dtype == object:
                lengths = [len(text) for text in array.flat]
                content = struct.pack(f"<{len(lengths)}Q", *lengths) + b"".join(array.flat)
            os.pwrite(self.arena, content, offset)
            places.append(ArrayFrame(dtype, array.shape, offset, len(content)))
            offset += len(content)
        return places

    def ask(self, kind: Kind, call: CallFrame) -> Frame:
        self.number += 1
        self.send_with(kind, encode_call(call), [])
        frame = self.receive()
        assert frame.number == self.number or frame.kind == Kind.ERROR
        if frame.kind == Kind.ERROR:
            raise WorkerError(*decode_error(frame.body))
        assert frame.kind == Kind.RESULTS
        return frame

    def call(
        self, token: str, arrays: Sequence[Any], dtypes: Sequence[Any], op: str = "PyFunc"
    ) -> list[Any]:
        wanted = [tf.as_dtype(dtype) for dtype in dtypes]
        numbers = [dtype.as_datatype_enum for dtype in wanted]
        frame = self.ask(Kind.CALL, CallFrame(op, token, self.put(arrays), numbers))
        places = decode_results(frame.body)
        assert [place.dtype for place in places] == numbers
        return [self._get(place, dtype) for place, dtype in zip(places, wanted, strict=True)]

    def _get(self, place: ArrayFrame, dtype: tf.DType) -> Any:
        content = os.pread(self.arena, place.size, place.offset)
        assert len(content) == place.size
        if dtype != tf.string:
            return np.frombuffer(content, dtype.as_numpy_dtype).reshape(place.shape)
        lengths = struct.unpack_from(f"<{place.elements}Q", content)
        texts, at = [], 8 * place.elements
        for length in lengths:
            texts.append(content[at : at + length])
            at += length
        assert at == len(content)
        return np.array(texts, object).reshape(place.shape)
