"""The client in C++ with real workers: values, threads, limits, and workers that die."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support.serving.held import HOLD, held
from tests.support.serving.native import NativeClient, Outcome
from tests.support.serving.processes import ENVIRONMENT, WorkerProcess
from tests.support.serving.tokens import FUNCTIONS, token

X = np.array([1.5, -2.0, 0.25], np.float32)
DOUBLE = token("double")
PID = token("pid", ["int32"], 0)
RESOURCE_EXHAUSTED, UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION = 8, 14, 4, 9


def to(worker: WorkerProcess, **variables: object) -> NativeClient:
    given = {f"HOSTCALL_WORKER_{name}": str(value) for name, value in variables.items()}
    return NativeClient({"HOSTCALL_WORKER_SOCKET": worker.path, **given})


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("HOSTCALL_ALLOW", FUNCTIONS)


def call_doubled(client: NativeClient, given: Any = X) -> None:
    result = client.call(DOUBLE, [given], [np.float32]).result()
    np.testing.assert_array_equal(result, given * 2)


def pid_of(client: NativeClient) -> int:
    return int(client.call(PID, [], [np.int32]).result())


def holding(client: NativeClient) -> Callable[..., Outcome]:
    return lambda *texts: client.call(HOLD, texts, [np.int32])


@pytest.mark.parametrize(
    "given",
    [
        np.ones((2, 3), np.float32),
        np.array(4.0),
        np.zeros((3, 0, 2), np.int64),
        np.ones((1,) * 20),
        np.array([True, False]),
        np.ones(5, ml_dtypes.bfloat16),
        np.array([1 + 2j]),
        np.array([[b"a"], [b""], [b"\xff\x00" * 1000]], object),
        np.array(b"alone", object),
        np.zeros((0, 2), object),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_values_go_there_and_back(worker: WorkerProcess, given: Any) -> None:
    name = "string" if given.dtype == object else given.dtype.name
    outcome = to(worker).call(token("identity", [name]), [given], [given.dtype])
    np.testing.assert_array_equal(outcome.result(), given, strict=True)


def test_large_results_grow_the_arena(worker: WorkerProcess) -> None:
    client = to(worker)
    for count in (10, 6_000_000, 20):
        result = client.call(token("ones"), [np.array([count])], [np.float32]).result()
        assert result.shape == (count,)
        assert (result == 1).all()
    call_doubled(client, np.arange(6_000_000, dtype=np.float32))


def test_errors_are_those_of_the_worker(worker: WorkerProcess) -> None:
    client = to(worker)
    outcome = client.call(token("fail"), [X], [np.float32])
    assert outcome.code == 3
    assert outcome.message.startswith("ValueError: no such sensor\nTraceback")
    outcome = client.call(token("os:system"), [X], [np.float32])
    outcome.assert_fails(3, "not allowed to import os")
    call_doubled(client)


def test_shapes_are_told_without_a_call(worker: WorkerProcess) -> None:
    static = [{"spec": ["float32", [3]]}]
    known = token("fail", static=static, plain=static)
    assert to(worker).shapes(known, [X], [np.float32]) == Outcome(0, "", [[3]])
    outcome = to(worker).shapes(token("fail"), [X], [np.float32])
    outcome.assert_fails(3, "hostcall.declare(fail")


def test_a_result_that_the_caller_does_not_take_is_an_error(worker: WorkerProcess) -> None:
    client = to(worker)
    client.call(DOUBLE, [X], [np.float32], most_bytes=8).assert_fails(3, "result 0")
    call_doubled(client)


def test_more_bytes_than_allowed_are_an_error(worker: WorkerProcess) -> None:
    client = to(worker, BYTES=4096)
    for function, given in (("double", np.zeros(2000, np.float32)), ("ones", np.array([2000]))):
        outcome = client.call(token(function), [given], [np.float32])
        outcome.assert_fails(RESOURCE_EXHAUSTED, "HOSTCALL_WORKER_BYTES")
    call_doubled(client)


def test_calls_wait_for_others_and_the_queue_is_bounded(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    client = to(worker, CALLS=1, QUEUE=0)
    with held(tmp_path, holding(client)) as call:
        outcome = client.call(DOUBLE, [X], [np.float32])
        said = "1 calls of Python workers run, and 0 wait", f"{FUNCTIONS}:double"
        outcome.assert_fails(RESOURCE_EXHAUSTED, *said)
    assert call.result().code == 0
    call_doubled(client)


def test_calls_that_wait_or_run_too_long_are_errors(worker: WorkerProcess, tmp_path: Path) -> None:
    client = to(worker, CALLS=1, TIMEOUT=1)
    paths = [str(tmp_path / name) for name in ("begun", "release")]
    for path in paths:
        os.mkfifo(path)
    texts = [np.array(path.encode(), object) for path in paths]
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(client.call, HOLD, texts, [np.int32]) for _ in range(3)]
        outcomes = [call.result() for call in calls]
    assert [outcome.code for outcome in outcomes] == [DEADLINE_EXCEEDED] * 3
    messages = "\n".join(outcome.message for outcome in outcomes)
    assert f"{FUNCTIONS}:hold has run in its worker for more than 1 seconds" in messages
    assert "has waited for other calls" in messages
    call_doubled(client)


def test_another_worker_answers_where_one_does_not_listen(worker: WorkerProcess) -> None:
    paths = f"/nowhere/socket,{worker.path}"
    assert pid_of(NativeClient({"HOSTCALL_WORKER_SOCKET": paths})) == worker.pid
    outcome = NativeClient({"HOSTCALL_WORKER_SOCKET": "/nowhere/socket"}).call(PID, [], [np.int32])
    outcome.assert_fails(UNAVAILABLE, "hostcall worker --socket /nowhere/socket --allow MODULE")


def test_a_worker_that_dies_is_started_again(environment: None) -> None:
    client = NativeClient({"HOSTCALL_WORKER_PYTHON": sys.executable})
    first = pid_of(client)
    assert pid_of(client) == first != os.getpid()
    # A worker that dies between calls harms no call.
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert pid_of(client) != first
    outcome = client.call(token("die", [], 0), [], [])
    lost = "was lost in a call of the Python function"
    outcome.assert_fails(UNAVAILABLE, lost, f"{FUNCTIONS}:die: it was killed by signal 9")
    # A worker that dies again and again is not started without end. The pauses double: on a busy
    # machine, the first of them may be over before the next call.
    ends = 2
    while lost in (outcome := client.call(token("die", [], 0), [], [])).message:
        ends += 1
    outcome.assert_fails(UNAVAILABLE, f"{ends} times", "it is started again in")


def test_several_workers_share_the_calls_and_end_with_the_client(
    environment: None, tmp_path: Path
) -> None:
    client = NativeClient({"HOSTCALL_WORKER_PYTHON": sys.executable, "HOSTCALL_WORKERS": "2"})
    with held(tmp_path, holding(client)) as call:
        one = pid_of(client)
    other = int(call.result().results[0])
    assert one != other
    del client, call
    for pid in (one, other):
        ended = os.waitid(os.P_PID, pid, os.WEXITED)
        assert ended is not None
        assert (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)


def test_a_python_without_hostcall_is_an_error() -> None:
    for program, code, says in (
        ("/bin/false", UNAVAILABLE, "it ended with status 1"),
        ("/nowhere/python", FAILED_PRECONDITION, "cannot be started: No such file"),
    ):
        outcome = NativeClient({"HOSTCALL_WORKER_PYTHON": program}).call(PID, [], [np.int32])
        outcome.assert_fails(code, says)
