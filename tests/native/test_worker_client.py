"""The client of workers in C++, with a worker that says what none should, under sanitizers too."""

import contextlib
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostcall_runtime import _serving_wire
from hostcall_runtime._serving_wire import ArrayFrame, Kind
from tests.support.native.modules import ROOT
from tests.support.serving import fake_worker
from tests.support.serving.fake_worker import FakeWorker, Mutator, packed, results, saying, welcome
from tests.support.serving.native import NativeClient, Outcome, module
from tests.support.threads import in_threads

X = np.array([1.5, -2.0, 0.25], np.float32)
TOKEN = 'hostcall:1:{"id":"x","function":{"place":"m:f"}}'
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNAVAILABLE = 3, 8, 9, 14


def call(path: Any, answer: fake_worker.Answer, dtypes: Any = (np.float32,)) -> Outcome:
    with FakeWorker(str(path / "socket"), answer) as fake:
        client = NativeClient({"HOSTCALL_WORKER_SOCKET": fake.path, "HOSTCALL_WORKER_START": "60"})
        return client.call(TOKEN, [X], dtypes)


def test_results_are_read(tmp_path: Path) -> None:
    answer = saying(
        welcome(), results([ArrayFrame(1, (3,), 64, 12)]), arena=b" " * 64 + X.tobytes()
    )
    np.testing.assert_array_equal(call(tmp_path, answer).result(), X)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (ArrayFrame(1, (3,), 0, 16), "another size than its shape"),
        (ArrayFrame(1, (3,), 56, 12), "outside of the shared memory"),
        (ArrayFrame(1, (3,), 2**64 - 8, 12), "outside of the shared memory"),
        (ArrayFrame(1, (3,), 8, 2**64 - 8), "outside of the shared memory"),
        (ArrayFrame(1, (2**61, 2), 0, 0), "another size than its shape"),
        (ArrayFrame(1, (2**62, 2), 0, 0), "a shape that no array has"),
        (ArrayFrame(1, (0, 2**40, 2**40), 0, 0), "a shape that no array has"),
        (ArrayFrame(1, (-1,), 0, 0), "a shape that no array has"),
        (ArrayFrame(2, (3,), 0, 24), "other dtypes than were asked for"),
    ],
)
def test_results_that_are_none_are_an_error(tmp_path: Path, place: ArrayFrame, says: str) -> None:
    outcome = call(tmp_path, saying(welcome(), results([place]), arena=bytes(64)))
    outcome.assert_fails(UNAVAILABLE, says)


@pytest.mark.parametrize(
    ("size", "lengths", "says"),
    [
        (12, [0, 0], "no room for their lengths"),
        (18, [1, 2], "longer than their place"),
        (20, [1, 2], "shorter than their place"),
        (20, [2**64 - 1, 5], "longer than their place"),
    ],
)
def test_strings_that_are_none_are_an_error(
    tmp_path: Path, size: int, lengths: list[int], says: str
) -> None:
    arena = np.array(lengths, np.uint64).tobytes() + bytes(40)
    answer = saying(welcome(), results([ArrayFrame(7, (2,), 0, size)]), arena=arena)
    outcome = call(tmp_path, answer, [object])
    outcome.assert_fails(UNAVAILABLE, says)
    assert outcome.results == []


def test_results_that_overlap_do_not_ask_for_more_than_there_is(tmp_path: Path) -> None:
    many = results([ArrayFrame(1, (1024,), 0, 4096)] * 4)
    outcome = call(tmp_path, saying(welcome(), many, arena=bytes(4096)), [np.float32] * 4)
    outcome.assert_fails(UNAVAILABLE, "larger than the shared memory")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"", "has ended, or closed the connection"),
        (results([], number=1)[:10], "has ended, or closed the connection"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "no frame begins like that"),
        (packed(Kind.RESULTS, b"\0\0", 1, version=2), "its version of the protocol is 2"),
        (packed(Kind.RESULTS, b"", 1), "a frame ends too soon"),
        (packed(Kind.RESULTS, b"\0\0\0", 1), "more in it than it should"),
        (packed(Kind.RESULTS, b"\1\0" + b"\xff" * 28, 1), "too many dimensions"),
        (packed(Kind.RESULTS, b"\xff\xff", 1), "too many results"),
        (packed(Kind.ERROR, b"\0" * 8, 1), "an error has no code"),
        (packed(Kind.ERROR, _serving_wire.encode_error(17, "x"), 1), "an error has no code"),
        (results([], number=2), "does not answer the call"),
        (packed(Kind.PONG, b"", 1), "does not answer the call"),
        (results([]), "other dtypes than were asked for"),
    ],
)
def test_replies_that_are_none_are_an_error(tmp_path: Path, reply: bytes, says: str) -> None:
    outcome = call(tmp_path, saying(welcome(), reply))
    outcome.assert_fails(UNAVAILABLE, "in a call of the Python function m:f", says)


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        (b"", UNAVAILABLE, "has ended"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n\r\n", UNAVAILABLE, "no frame begins like that"),
        (packed(Kind.PONG, b""), UNAVAILABLE, "does not welcome clients"),
        (packed(Kind.WELCOME, b""), UNAVAILABLE, "a frame ends too soon"),
        (
            packed(Kind.ERROR, _serving_wire.encode_error(8, "full up")),
            RESOURCE_EXHAUSTED,
            "full up",
        ),
    ],
)
def test_a_worker_that_does_not_welcome_is_an_error(
    tmp_path: Path, reply: bytes, code: int, says: str
) -> None:
    call(tmp_path, saying(reply)).assert_fails(code, says)


@pytest.mark.parametrize(
    ("dtype", "shape", "content"),
    [
        (1, [3], b"1234"),
        (1, [-1], b""),
        (1, [2**62, 2], b""),
        (20, [1], b"12345678"),
        (-1, [1], b"1"),
        (7, [2], [b"a"]),
    ],
)
def test_arguments_that_are_none_are_an_error(
    tmp_path: Path, dtype: int, shape: list[int], content: Any
) -> None:
    with FakeWorker(str(tmp_path / "socket"), saying(welcome(), b"")) as fake:
        client = module.Client({"HOSTCALL_WORKER_SOCKET": fake.path})
        code, said, _ = client.call("PyFunc", TOKEN.encode(), [(dtype, shape, content)], [])
    assert code == INVALID_ARGUMENT
    assert b"argument 0" in said


def test_the_limits_of_a_call_are_errors(tmp_path: Path) -> None:
    with FakeWorker(str(tmp_path / "socket"), saying(welcome(), b"")) as fake:
        client = NativeClient({"HOSTCALL_WORKER_SOCKET": fake.path})
        for token, arrays, dtypes, says in (
            ("x" * (2**18 + 1), [], [], "a token"),
            (TOKEN, [X] * 1025, [], "a number of arguments"),
            (TOKEN, [], [np.float32] * 1025, "a number of results"),
        ):
            client.call(token, arrays, dtypes).assert_fails(RESOURCE_EXHAUSTED, says)
        client.call(TOKEN, [], [], op="NoOp").assert_fails(INVALID_ARGUMENT)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"SOCKET": "/a", "PYTHON": "python"}, "are both set"),
        ({"PYTHON": "python", "TIMEOUT": "soon"}, "HOSTCALL_WORKER_TIMEOUT is 'soon'"),
        ({"PYTHON": "python", "TIMEOUT": "nan"}, "HOSTCALL_WORKER_TIMEOUT is 'nan'"),
        ({"PYTHON": "python", "QUEUE": "-1"}, "HOSTCALL_WORKER_QUEUE is '-1'"),
        ({"PYTHON": "python", "CALLS": "0"}, "HOSTCALL_WORKER_CALLS is '0'"),
        ({"PYTHON": "python", "BYTES": "1e99"}, "HOSTCALL_WORKER_BYTES is '1e99'"),
    ],
)
def test_variables_that_make_no_sense_are_errors(variables: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match="hostcall: ") as raised:
        NativeClient({f"HOSTCALL_WORKER_{name}": value for name, value in variables.items()})
    assert says in str(raised.value)


def test_no_worker_at_all_is_an_error_with_the_lines_to_write() -> None:
    outcome = NativeClient({}).call(TOKEN, [X], [np.float32])
    said = "hostcall worker --socket", "export HOSTCALL_WORKER_PYTHON="
    outcome.assert_fails(FAILED_PRECONDITION, "the Python function m:f", *said)
    too_long = NativeClient({"HOSTCALL_WORKER_SOCKET": "/" * 200})
    too_long.call(TOKEN, [], []).assert_fails(FAILED_PRECONDITION)


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (b'hostcall:1:{"id":"x","function":{"place":"a.b:c"},"name":"n"}', "a.b:c"),
        (b'hostcall:1:{"function":{"place":"a.b:c","name":"ns::d"}}', "ns::d"),
        (b'hostcall:1:{"function":{"name":"ns::d"}}', "ns::d"),
        (b'hostcall:1:{"function":{"place":"a', "a"),
        (b"pyfunc_1", "pyfunc_1"),
        (b"", ""),
        (b"x" * 61, "x" * 60 + "..."),
    ],
)
def test_messages_have_the_name_of_a_function(token: bytes, label: str) -> None:
    assert module.label_of_token(token) == label


def test_random_changes_of_replies_harm_no_client(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    chance = random.Random(seed)
    codes: set[int] = set()
    with Mutator(str(tmp_path / "socket"), seed):
        client = NativeClient({"HOSTCALL_WORKER_SOCKET": str(tmp_path / "socket")})
        for _ in range(300):
            arguments = [X] * chance.randrange(3)
            outcome = client.call(TOKEN, arguments, [np.float32, object])
            assert (outcome.code == 0) == (len(outcome.results) == 2 and not outcome.message), seed
            codes.add(outcome.code)
    assert codes >= {0, 3, UNAVAILABLE}, f"seed {seed}"


def test_random_arguments_harm_no_client(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    chance = random.Random(seed)
    with FakeWorker(str(tmp_path / "socket"), saying(welcome(), results([]))) as fake:
        client = module.Client({"HOSTCALL_WORKER_SOCKET": fake.path})
        for _ in range(300):
            given = [fake_worker.random_argument(chance) for _ in range(chance.randrange(4))]
            client.call("PyFunc", chance.randbytes(chance.randrange(99)), given, [])


def echo(connection: Any, frame: Any, arena: int) -> bool:
    """The argument is the result, where it lies."""
    result = results([ArrayFrame(1, (3,), 0, 12)], frame.number)
    connection.sendall(welcome() if frame.kind == Kind.HELLO else result)
    return True


def test_many_threads_get_their_own_results(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"socket{number}") for number in range(3)]
    # A fake serves a client at a time.
    variables = {"HOSTCALL_WORKER_SOCKET": ",".join(paths), "HOSTCALL_WORKER_CALLS": "3"}
    clients = [NativeClient(variables)]

    def run(number: int) -> None:
        for step in range(50):
            given = np.full(3, number * 100 + step, np.float32)
            result = clients[0].call(TOKEN, [given], [np.float32]).result()
            np.testing.assert_array_equal(result, given)

    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(FakeWorker(path, echo))
        in_threads(8, run)
        clients.clear()  # a fake ends with its client


FORKS = """
import os, sys
import numpy as np
from tests.support.serving.native import NativeClient

os.environ["HOSTCALL_WORKER_SOCKET"] = sys.argv[1]
client, x = NativeClient(None), np.ones(3, np.float32)
codes = [client.call("hostcall:1:", [x], [x.dtype]).code]
child = os.fork()
if not child:
    results = client.call("hostcall:1:", [x + 1], [x.dtype]).results
    os._exit(int(results[0][0]))
codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(*codes, client.call("hostcall:1:", [x], [x.dtype]).code)
"""


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    clients: list[int] = []

    def answer(connection: Any, frame: Any, arena: int) -> bool:
        if frame.kind == Kind.HELLO:
            clients.append(arena)
        return echo(connection, frame, arena)

    # In a process of its own, as a process has one pool.
    with FakeWorker(str(tmp_path / "socket"), answer, at_once=True) as fake:
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, fake.path]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("0 2 0\n", "")
    assert len(clients) == 2
