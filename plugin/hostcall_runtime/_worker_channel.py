"""Frames over a worker's socket.

Nothing here knows TensorFlow, so that a worker can be asked for its health in no time.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from typing import NamedTuple

from hostcall_runtime import _worker_frames as frames
from hostcall_runtime._worker_frames import Health, Kind, ProtocolError

# A frame that has begun ends within so many seconds.
FRAME_SECONDS = 10.0

_HEADER = struct.Struct("<4sHHII")
_CREDENTIALS = struct.Struct("3i")


class ClosedError(Exception):
    """The other side has ended the connection."""


class Frame(NamedTuple):
    """One frame; the reply to a request has its number."""

    kind: int
    number: int
    body: bytes


def prepare(connection: socket.socket) -> None:
    """To be called once for each socket, before the functions below."""
    connection.setblocking(True)
    seconds = struct.pack("ll", int(FRAME_SECONDS), 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)


def send(connection: socket.socket, kind: Kind, number: int, body: bytes = b"") -> None:
    """Sends a frame.

    Raises:
      ClosedError: when the other side is not there, or takes nothing.
      ProtocolError: when the body is too long.
    """
    if len(body) > frames.MAX_BODY:
        raise ProtocolError(f"a frame of {len(body)} bytes is too long")
    try:
        connection.sendall(
            _HEADER.pack(frames.MAGIC, frames.VERSION, kind, len(body), number) + body
        )
    except OSError as error:
        raise ClosedError from error


def receive(connection: socket.socket, seconds: float | None = None) -> Frame:
    """The next frame.

    Args:
      connection: the socket.
      seconds: how long to wait for its beginning; None for as long as it takes.

    Raises:
      ClosedError, ProtocolError, TimeoutError: when there is none.
    """
    frame, descriptors = _receive(connection, seconds, 0)
    assert not descriptors
    return frame


def receive_with_descriptor(
    connection: socket.socket, seconds: float | None
) -> tuple[Frame, int | None]:
    """The same of a frame that a file descriptor may have come with, which is the caller's."""
    frame, descriptors = _receive(connection, seconds, 1)
    return frame, descriptors[0] if descriptors else None


def is_same_user(connection: socket.socket) -> bool:
    """Whether the process on the other side runs as the user of this one."""
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def health_of(path: str, seconds: float = 5.0) -> Health:
    """What the worker at a path says of itself.

    Raises:
      OSError: when nobody listens there, or says nothing for so many seconds.
      ProtocolError, ClosedError: when it is no worker of this user's.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(path)
        prepare(connection)
        if not is_same_user(connection):
            raise ProtocolError("it runs as another user")
        send(connection, Kind.PING, 1)
        frame = receive(connection, seconds)
    if frame.kind != Kind.PONG:
        raise ProtocolError("it does not answer a PING")
    return frames.decode_health(frame.body)


def _receive(
    connection: socket.socket, seconds: float | None, descriptors: int
) -> tuple[Frame, list[int]]:
    _await(connection, seconds)
    end = time.monotonic() + FRAME_SECONDS
    got: list[int] = []
    try:
        header = bytearray(_HEADER.size)
        begun = 0
        if descriptors:
            begun = _begin_with_descriptors(connection, header, got)
        _fill(connection, memoryview(header)[begun:], end)
        magic, version, kind, size, number = _HEADER.unpack(header)
        if magic != frames.MAGIC:
            raise ProtocolError("no frame begins like that")
        if version != frames.VERSION:
            raise ProtocolError(
                f"its version of the protocol is {version}, and not {frames.VERSION}"
            )
        if size > frames.MAX_BODY:
            raise ProtocolError(f"a frame of {size} bytes is too long")
        body = bytearray(size)
        _fill(connection, memoryview(body), end)
        if len(got) > descriptors:
            raise ProtocolError("too many file descriptors came with a frame")
    except BaseException:
        for descriptor in got:
            os.close(descriptor)
        raise
    return Frame(kind, number, bytes(body)), got


def _begin_with_descriptors(connection: socket.socket, header: bytearray, got: list[int]) -> int:
    try:
        flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        begin, received, _, _ = socket.recv_fds(connection, len(header), 4, flags)
    except BlockingIOError:
        return 0
    except OSError as error:
        raise ClosedError from error
    got.extend(received)
    if not begin:
        raise ClosedError
    header[: len(begin)] = begin
    return len(begin)


def _fill(connection: socket.socket, rest: memoryview, end: float) -> None:
    while rest:
        try:
            count = connection.recv_into(rest, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            try:
                _await(connection, end - time.monotonic())
            except TimeoutError as error:
                raise ProtocolError("a frame does not end") from error
            continue
        except OSError as error:
            raise ClosedError from error
        if not count:
            raise ClosedError
        rest = rest[count:]


def _await(connection: socket.socket, seconds: float | None) -> None:
    """Waits until there is something to read, or the end of it."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if not poll.poll(None if seconds is None else max(seconds, 0) * 1000):
        raise TimeoutError("the other side says nothing")
