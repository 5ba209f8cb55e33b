"""Tests of messages that no client should send: they end the connection, never the worker."""

import contextlib
import fcntl
import os
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hostcall_runtime import _serving_wire
from hostcall_runtime._serving_wire import ArrayFrame, CallFrame, Kind
from tests.support.serving.client import (
    MOST,
    Client,
    WorkerError,
    decode_error,
    encode_call,
    encode_hello,
    make_arena,
)
from tests.support.serving.fake_worker import changed, packed
from tests.support.serving.processes import WorkerProcess
from tests.support.serving.tokens import token

X = np.array([1.5, -2.0, 0.25], np.float32)
DOUBLE = token("double")
HELLO = packed(Kind.HELLO, encode_hello(MOST))
CALL = packed(
    Kind.CALL, encode_call(CallFrame("PyFunc", DOUBLE, [ArrayFrame(1, (3,), 0, 12)], [1])), 1
)


@pytest.fixture(autouse=True)
def still_serves(worker: WorkerProcess) -> Iterator[None]:
    """After each test the next client is served as ever."""
    before = _serving_wire.health_of(worker.path)
    yield
    assert _serving_wire.health_of(worker.path).pid == before.pid == worker.pid
    with Client(worker.path) as client:
        (result,) = client.hello().call(DOUBLE, [X], ["float32"])
    np.testing.assert_array_equal(result, X * 2)


def ends(client: Client) -> str:
    """Return the error that the worker sends, and check that it then ends the connection."""
    frame = client.receive()
    assert frame.kind == Kind.ERROR
    with pytest.raises(_serving_wire.ClosedError):
        client.receive()
    return decode_error(frame.body)[1]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (ArrayFrame(1, (3,), 0, 8), "has 8 bytes"),
        (ArrayFrame(1, (3,), 0, 16), "larger than the arena"),
        (ArrayFrame(1, (3,), 8, 12), "outside of the arena"),
        (ArrayFrame(1, (3,), 2**64 - 8, 12), "outside of the arena"),
        (ArrayFrame(1, (2**62,), 0, 12), "no array has the shape|has 12 bytes"),
        (ArrayFrame(1, (2**40, 2**40), 0, 0), "no array has the shape"),
        (ArrayFrame(1, (-3,), 0, 12), "no array has the shape"),
        (ArrayFrame(1, (3,), 0, 2**63), "larger than the arena"),
        (ArrayFrame(20, (3,), 0, 12), "dtype 20 cannot be sent"),
        (ArrayFrame(-1, (3,), 0, 12), "dtype -1 cannot be sent"),
        (ArrayFrame(101, (3,), 0, 12), "dtype 101 cannot be sent"),
        (ArrayFrame(7, (2,), 0, 12), "no room for their lengths"),
        (ArrayFrame(7, (1,), 0, 12), "another size than they"),
    ],
)
def test_arguments_that_are_none_end_the_connection(
    client: Client, place: ArrayFrame, says: str
) -> None:
    client.put([X])
    with pytest.raises(WorkerError, match=says):
        client.ask(Kind.CALL, CallFrame("PyFunc", DOUBLE, [place], [1]))
    with pytest.raises(_serving_wire.ClosedError):
        client.receive()


@pytest.mark.parametrize(
    "kind", [0, Kind.HELLO, Kind.WELCOME, Kind.RESULTS, Kind.ERROR, Kind.PONG, 9, 65535]
)
def test_frames_that_no_client_sends_end_the_connection(client: Client, kind: int) -> None:
    client.send_with(kind, b"", [])
    assert f"no client sends frames of kind {kind}" in ends(client)


def test_a_frame_that_is_too_long_ends_the_connection(client: Client) -> None:
    client.connection.sendall(struct.pack("<4sHHII", b"HCWP", 1, 3, _serving_wire.MAX_BODY + 1, 1))
    assert "is too long" in ends(client)


def _pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: make_arena(seals=fcntl.F_SEAL_SEAL), "not sealed"),
        (_pipe, "not a file made by memfd_create"),
        (lambda: os.open("/dev/zero", os.O_RDWR), "not a file made by memfd_create"),
        (lambda: os.open("/", os.O_RDONLY), "not a file made by memfd_create"),
        (lambda: socket.socket().detach(), "not a file made by memfd_create"),
    ],
)
def test_what_is_no_arena_ends_the_connection(worker: WorkerProcess, make: Any, says: str) -> None:
    descriptor = make()
    with Client(worker.path) as client, pytest.raises(WorkerError, match=says):
        client.hello(descriptors=[descriptor])
    os.close(descriptor)


def test_a_hello_has_one_arena(worker: WorkerProcess) -> None:
    for count in (0, 2, 5):
        with Client(worker.path) as client, pytest.raises(WorkerError):
            client.hello(descriptors=[client.arena] * count)


def test_descriptors_that_nobody_wants_are_not_kept(worker: WorkerProcess) -> None:
    def count() -> int:
        return len(os.listdir(f"/proc/{worker.pid}/fd"))

    with Client(worker.path) as client:
        client.hello()
        client.call(DOUBLE, [X], ["float32"])
        before = count()
        for _ in range(5):
            client.send_with(Kind.PING, b"", [client.arena] * 3)
            assert client.receive().kind == Kind.PONG
        assert count() <= before


def test_an_arena_that_cannot_be_written_is_an_error(worker: WorkerProcess) -> None:
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    with Client(worker.path) as client:
        os.close(client.arena)
        client.arena = make_arena(16, seals)
        client.hello()
        with pytest.raises(WorkerError, match="cannot be written") as raised:
            client.call(token("ones"), [np.array([1000])], ["float32"])
        assert raised.value.code == 8


def test_clients_that_go_in_the_middle_of_anything(worker: WorkerProcess) -> None:
    hello, call = HELLO, CALL
    for end in range(0, len(hello + call), 7):
        with Client(worker.path) as client, contextlib.suppress(OSError):
            socket.send_fds(client.connection, [hello[:end] or b"H"], [client.arena])
            client.connection.sendall(call[: max(end - len(hello), 0)])


def test_random_changes_of_frames_end_no_worker(worker: WorkerProcess) -> None:
    seed = random.randrange(10**9)
    chance = random.Random(seed)
    outcomes = {"answers": 0, "errors": 0, "ends": 0}
    for _ in range(300):
        hello, call = HELLO, CALL
        if chance.random() < 0.3:
            hello = changed(hello, chance)
        calls = [changed(call, chance) for _ in range(3)]
        with Client(worker.path) as client:
            os.pwrite(client.arena, chance.randbytes(64), 0)
            try:
                socket.send_fds(client.connection, [hello], [client.arena])
                for one in calls:
                    client.connection.sendall(one)
                client.connection.shutdown(socket.SHUT_WR)
                while True:
                    kind = client.receive().kind
                    outcomes["errors" if kind == Kind.ERROR else "answers"] += 1
            except (_serving_wire.ClosedError, OSError):
                outcomes["ends"] += 1
    assert outcomes["answers"] > 100, f"seed {seed}: {outcomes}"
    assert outcomes["errors"] > 100, f"seed {seed}: {outcomes}"
