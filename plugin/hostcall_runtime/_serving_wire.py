"""The protocol between a server's library and its workers: frames over a socket.

The module does not import TensorFlow, so that a health check of a worker starts at once.
"""

from __future__ import annotations

import enum
import math
import os
import select
import socket
import struct
import time
from typing import NamedTuple

FRAME_SECONDS = 10.0  # a frame has to end within so many seconds of its beginning
_HEADER = struct.Struct("<4sHHII")
_CREDENTIALS = struct.Struct("3i")


class ClosedError(Exception):
    """The error of a connection that the other side has ended."""


class Frame(NamedTuple):
    """One frame; a reply has the number of its request."""

    kind: int
    number: int
    body: bytes


def prepare(connection: socket.socket) -> None:
    """Prepare a socket for the functions below; to be called once."""
    connection.setblocking(True)
    seconds = struct.pack("ll", int(FRAME_SECONDS), 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)


def send(connection: socket.socket, kind: Kind, number: int, body: bytes = b"") -> None:
    """Send a frame; raise a ClosedError if the other side is gone, or does not read."""
    if len(body) > MAX_BODY:
        raise ProtocolError(f"a frame of {len(body)} bytes is too long")
    try:
        connection.sendall(_HEADER.pack(MAGIC, VERSION, kind, len(body), number) + body)
    except OSError as error:
        raise ClosedError from error


def receive(connection: socket.socket, seconds: float | None = None) -> Frame:
    """Receive the next frame; `seconds` limits the wait for its beginning."""
    return receive_with_descriptor(connection, seconds, most=0)[0]


def receive_with_descriptor(
    connection: socket.socket, seconds: float | None, most: int = 1
) -> tuple[Frame, int | None]:
    """Receive a frame and the file descriptor with it, if any, which the caller has to close."""
    _await(connection, seconds)
    end = time.monotonic() + FRAME_SECONDS
    got: list[int] = []
    try:
        header = bytearray(_HEADER.size)
        begun = _begin_with_descriptors(connection, header, got) if most else 0
        _fill(connection, memoryview(header)[begun:], end)
        magic, version, kind, size, number = _HEADER.unpack(header)
        if magic != MAGIC:
            raise ProtocolError("no frame begins like that")
        if version != VERSION:
            raise ProtocolError(f"its version of the protocol is {version}, and not {VERSION}")
        if size > MAX_BODY:
            raise ProtocolError(f"a frame of {size} bytes is too long")
        body = bytearray(size)
        _fill(connection, memoryview(body), end)
        if len(got) > most:
            raise ProtocolError("too many file descriptors came with a frame")
    except BaseException:
        for descriptor in got:
            os.close(descriptor)
        raise
    return Frame(kind, number, bytes(body)), got[0] if got else None


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the process on the other side runs as the user of this one."""
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def health_of(path: str, seconds: float = 5.0) -> Health:
    """Ask the worker at a path for its health, but for the connection that asks.

    An OSError says that none replies.
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
    health = decode_health(frame.body)
    return health._replace(connections=health.connections - 1)


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
    """Wait until the connection has data to read, or has ended."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if not poll.poll(None if seconds is None else max(seconds, 0) * 1000):
        raise TimeoutError("the other side says nothing")


MAGIC = b"HCWP"
VERSION = 1

# The limits of the protocol.
MAX_BODY = 1 << 20
MAX_TOKEN = 1 << 18
MAX_ARRAYS = 1024
MAX_RANK = 254
MAX_MESSAGE = 1 << 16
MAX_ELEMENTS = 1 << 62

OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_STRING = 7
# The sizes of elements, by the numbers of TensorFlow's dtypes. Resources and variants are missing:
# references to them mean nothing in another process.
ELEMENT_SIZES = {
    **dict.fromkeys((4, 6, 10, 11, 12, *range(24, 34)), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
}

INVALID_ARGUMENT, RESOURCE_EXHAUSTED = 3, 8  # codes of absl::StatusCode


class Kind(enum.IntEnum):
    """The kinds of frames."""

    HELLO = 1
    WELCOME = 2
    CALL = 3
    RESULTS = 4
    ERROR = 5
    PING = 6
    PONG = 7
    SHAPES = 8


class ProtocolError(Exception):
    """The error of data that violate the protocol; the connection ends."""


class ArrayFrame(NamedTuple):
    """An array's dtype and shape, and its place in the arena."""

    dtype: int
    shape: tuple[int, ...]
    offset: int = 0
    size: int = 0

    @property
    def is_strings(self) -> bool:
        """True if the elements are strings."""
        return self.dtype == _STRING

    @property
    def elements(self) -> int:
        """The number of elements; a ProtocolError if no array can have this shape."""
        if min(self.shape, default=0) < 0 or math.prod(filter(None, self.shape)) > MAX_ELEMENTS:
            raise ProtocolError(f"no array has the shape {self.shape}")
        return math.prod(self.shape)


class CallFrame(NamedTuple):
    """A request to call a function."""

    op: str
    token: str
    arguments: list[ArrayFrame]
    result_dtypes: list[int]


class Health(NamedTuple):
    """The state that a worker reports."""

    pid: int
    connections: int
    calls: int
    errors: int
    seconds: float  # of all calls together
    slowest: float  # the seconds of the call that took longest


def decode_hello(body: bytes) -> int:
    """Return the largest size in bytes of an arena that the client takes."""
    return int(_unpacked("<Q", body)[0])


def encode_welcome(max_bytes: int) -> bytes:
    """Return the body of a WELCOME."""
    return struct.pack("<IQ", os.getpid(), max_bytes)


def encode_health(health: Health) -> bytes:
    """Return the body of a PONG."""
    return struct.pack("<IIQQdd", *health)


def decode_health(body: bytes) -> Health:
    """Decode the body of a PONG."""
    return Health(*_unpacked("<IIQQdd", body))


def encode_error(code: int, message: str) -> bytes:
    """Return the body of an ERROR; it leaves out the middle of a long message."""
    text = message.encode(errors="replace")
    if len(text) > MAX_MESSAGE:
        half = MAX_MESSAGE // 2 - 16
        text = text[:half] + b"\n[...]\n" + text[-half:]
        text = text.decode(errors="ignore").encode()
    return struct.pack("<II", code, len(text)) + text


def decode_call(body: bytes) -> CallFrame:
    """Decode the body of a CALL or a SHAPES."""
    reader = FrameReader(body)
    op, arguments, results = reader.numbers("HHH")
    if not 1 <= op <= len(OPS):
        raise ProtocolError(f"there is no op {op}")
    if max(arguments, results) > MAX_ARRAYS:
        raise ProtocolError(f"there are more than {MAX_ARRAYS} arrays")
    token = reader.text(MAX_TOKEN)
    arrays = [reader.array() for _ in range(arguments)]
    dtypes = reader.numbers(f"{results}i")
    reader.end()
    return CallFrame(OPS[op - 1], token, arrays, list(dtypes))


def encode_results(results: list[ArrayFrame]) -> bytes:
    """Return the body of a RESULTS."""
    return struct.pack("<H", len(results)) + b"".join(map(encode_array, results))


def encode_array(array: ArrayFrame) -> bytes:
    """Return the dtype, shape and place of an array, as calls and results hold them."""
    rank = len(array.shape)
    return struct.pack(f"<iI{rank}qQQ", array.dtype, rank, *array.shape, array.offset, array.size)


def _unpacked(layout: str, body: bytes) -> tuple[int, ...]:
    try:
        return struct.unpack(layout, body)
    except struct.error as error:
        raise ProtocolError(f"a body has {len(body)} bytes, and should have others") from error


class FrameReader:
    """A reader of the rest of a body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self._bytes(struct.calcsize("<" + layout)))

    def text(self, most: int = MAX_BODY) -> str:
        (size,) = self.numbers("I")
        if size > most:
            raise ProtocolError(f"a text of {size} bytes is too long")
        try:
            return self._bytes(size).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("a text is not UTF-8") from error

    def array(self) -> ArrayFrame:
        dtype, rank = self.numbers("iI")
        if rank > MAX_RANK:
            raise ProtocolError(f"an array has {rank} dimensions")
        return ArrayFrame(dtype, self.numbers(f"{rank}q"), *self.numbers("QQ"))

    def end(self) -> None:
        if self._at != len(self._body):
            raise ProtocolError("a body has more in it than it should")

    def _bytes(self, count: int) -> bytes:
        begin, self._at = self._at, self._at + count
        if self._at > len(self._body):
            raise ProtocolError("a body ends too soon")
        return self._body[begin : self._at]
