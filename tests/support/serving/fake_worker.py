"""A worker that says what no worker should. It knows no TensorFlow."""

import contextlib
import os
import random
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Self

from hostcall_runtime import _serving_wire
from hostcall_runtime._serving_wire import ArrayFrame, Kind, ProtocolError

# Sends what it likes in answer to a frame of the client, given the arena too; False ends the
# connection.
Answer = Callable[[socket.socket, _serving_wire.Frame, int], bool]


class FakeWorker:
    """Answers the clients at a path until the block ends; one after the other, or all at once."""

    def __init__(self, path: str, answer: Answer, at_once: bool = False) -> None:
        self.path = path
        self._at_once = at_once
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection in self._open.copy():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._listener.close()
        os.unlink(self.path)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._at_once:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        with connection, contextlib.suppress(_serving_wire.ClosedError, ProtocolError, OSError):
            self._converse(connection)
        self._open.discard(connection)

    def _converse(self, connection: socket.socket) -> None:
        _serving_wire.prepare(connection)
        frame, arena = _serving_wire.receive_with_descriptor(connection, 60)
        assert arena is not None
        try:
            while self._answer(connection, frame, arena):
                frame = _serving_wire.receive(connection, 60)
        finally:
            os.close(arena)


def packed(kind: int, body: bytes, number: int = 0, version: int = 1) -> bytes:
    return struct.pack("<4sHHII", b"HCWP", version, kind, len(body), number) + body


def welcome() -> bytes:
    return packed(Kind.WELCOME, _serving_wire.encode_welcome(1 << 20))


def results(arrays: list[ArrayFrame], number: int = 1) -> bytes:
    return packed(Kind.RESULTS, _serving_wire.encode_results(arrays), number)


def saying(*replies: bytes, arena: bytes = b"") -> Answer:
    """Answers each frame of a client with the next of these, and ends the connection."""

    def answer(connection: socket.socket, frame: _serving_wire.Frame, descriptor: int) -> bool:
        place = 0 if frame.kind == Kind.HELLO else 1
        if place and arena:
            os.pwrite(descriptor, arena, 0)
        if place < len(replies):
            connection.sendall(replies[place])
        return place + 1 < len(replies)

    return answer


def changed(frame: bytes, chance: random.Random) -> bytes:
    """A frame with random changes, none now and then."""
    changed = bytearray(frame)
    for _ in range(chance.choice((0, 1, 1, 2, 8))):
        way = chance.randrange(5)
        at = chance.randrange(len(changed))
        if way == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif way == 1:
            changed[at] = chance.randrange(256)
        elif way == 2:
            changed[at : at + 4] = struct.pack("<I", chance.choice((0, 1, 2**31, 2**32 - 1)))
        elif way == 3:
            del changed[at : at + chance.randrange(1, 9)]
        else:
            changed[at:at] = chance.randbytes(chance.randrange(9))
        if not changed:
            return b"x"
    return bytes(changed)


class Mutator(FakeWorker):
    """Answers with frames that were changed at random; calls in a row are those of one seed."""

    def __init__(self, path: str, seed: int) -> None:
        super().__init__(path, self._answer_changed)
        self._chance = random.Random(seed)

    def _answer_changed(
        self, connection: socket.socket, frame: _serving_wire.Frame, arena: int
    ) -> bool:
        if frame.kind == Kind.HELLO:
            return self._send(connection, welcome(), 0.1)
        os.pwrite(arena, self._chance.randbytes(200), 0)
        if self._chance.random() < 0.7:  # two strings of one byte
            os.pwrite(arena, struct.pack("<QQ", 1, 1), 64)
        return self._send(connection, self._reply(frame.number), 0.7)

    def _send(self, connection: socket.socket, frame: bytes, share: float) -> bool:
        """Sends a frame, and ends the connection after one that was changed: nobody waits then."""
        sent = changed(frame, self._chance) if self._chance.random() < share else frame
        connection.sendall(sent)
        return sent == frame

    def _reply(self, number: int) -> bytes:
        if self._chance.random() < 0.1:
            return packed(Kind.ERROR, _serving_wire.encode_error(3, "no such sensor"), number)
        return results([ArrayFrame(1, (3,), 0, 12), ArrayFrame(7, (2,), 64, 18)], number)


def random_argument(chance: random.Random) -> tuple[int, list[int], Any]:
    """An argument for the client, which may be none."""
    shape = [chance.choice((0, 1, 2, 3, -1, 2**62)) for _ in range(chance.randrange(3))]
    if chance.random() < 0.3:
        return (
            7,
            shape,
            [chance.randbytes(chance.randrange(20)) for _ in range(chance.randrange(4))],
        )
    return chance.choice((1, 2, 14, 20, -1)), shape, chance.randbytes(chance.choice((0, 4, 8, 24)))
