"""What a worker does for one client, on a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Protocol

from hostcall._serving import calls
from hostcall._serving.arena import Arena, ArenaFullError
from hostcall._serving.calls import CallError
from hostcall_runtime import _worker_channel as channel
from hostcall_runtime import _worker_frames as frames
from hostcall_runtime._worker_channel import ClosedError, Frame
from hostcall_runtime._worker_frames import Health, Kind, ProtocolError

_log = logging.getLogger("hostcall.worker")

# A client says hello within so many seconds.
_HELLO_SECONDS = 10.0


class Owner(Protocol):
    """The worker that a session belongs to."""

    max_bytes: int
    stopping: bool

    def count(self, failed: bool) -> None:
        """Notes a call."""

    def health(self) -> Health:
        """What it says of itself."""


def serve(connection: socket.socket, owner: Owner) -> None:
    """Serves a client until it goes, or sends what is not of the protocol; closes the connection.

    Nothing that it sends ends more than the connection.
    """
    with connection:
        try:
            channel.prepare(connection)
            _serve(connection, owner)
        except ClosedError:
            pass
        except (ProtocolError, OSError) as error:
            _log.warning("hostcall worker: the connection of a client ends: %s", error)
            with contextlib.suppress(ClosedError):
                text = f"hostcall: the worker ends the connection: {error}"
                body = frames.encode_error(frames.INVALID_ARGUMENT, text)
                channel.send(connection, Kind.ERROR, 0, body)


def _serve(connection: socket.socket, owner: Owner) -> None:
    frame, descriptor = channel.receive_with_descriptor(connection, _HELLO_SECONDS)
    if frame.kind == Kind.PING and descriptor is None:
        _pong(connection, owner, frame)
        return
    if descriptor is None:
        raise ProtocolError("a client has to begin with HELLO and an arena")
    with contextlib.closing(_arena(frame, descriptor, owner)) as arena:
        channel.send(connection, Kind.WELCOME, frame.number, frames.encode_welcome(arena.limit))
        while not owner.stopping:
            _answer(connection, owner, arena, channel.receive(connection))


def _arena(frame: Frame, descriptor: int, owner: Owner) -> Arena:
    try:
        if frame.kind != Kind.HELLO:
            raise ProtocolError("a client has to begin with HELLO")
        return Arena(descriptor, min(owner.max_bytes, frames.decode_hello(frame.body)))
    except ProtocolError:
        os.close(descriptor)
        raise


def _answer(connection: socket.socket, owner: Owner, arena: Arena, frame: Frame) -> None:
    if frame.kind == Kind.PING:
        _pong(connection, owner, frame)
        return
    answers: dict[int, Callable[[frames.Call], list[frames.Array]]] = {
        Kind.CALL: lambda call: _call(call, arena),
        Kind.SHAPES: calls.shapes,
    }
    if frame.kind not in answers:
        raise ProtocolError(f"no client sends frames of kind {frame.kind}")
    try:
        results = answers[frame.kind](frames.decode_call(frame.body))
        kind, body = Kind.RESULTS, frames.encode_results(results)
    except CallError as error:
        kind, body = Kind.ERROR, frames.encode_error(error.code, str(error))
    except ValueError as error:  # NumPy has fewer shapes than the protocol
        kind, body = Kind.ERROR, frames.encode_error(frames.INVALID_ARGUMENT, str(error))
    except (ArenaFullError, MemoryError) as error:
        kind, body = Kind.ERROR, frames.encode_error(frames.RESOURCE_EXHAUSTED, str(error))
    owner.count(kind == Kind.ERROR)
    channel.send(connection, kind, frame.number, body)


def _call(call: frames.Call, arena: Arena) -> list[frames.Array]:
    results = calls.run(call, arena.read(call.arguments))
    return arena.write(results, call.result_dtypes)


def _pong(connection: socket.socket, owner: Owner, frame: Frame) -> None:
    channel.send(connection, Kind.PONG, frame.number, frames.encode_health(owner.health()))
