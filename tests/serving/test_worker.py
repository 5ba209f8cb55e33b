"""A worker process and its protocol: values, errors, health, and who may connect."""

import json
import os
import re
import socket
import stat
import struct
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from hostcall_runtime import _serving_wire
from hostcall_runtime._serving_wire import ArrayFrame, CallFrame, Kind
from tests.support.helpers import assert_says
from tests.support.serving.client import Client, WorkerError, decode_error
from tests.support.serving.fake_worker import packed
from tests.support.serving.held import HOLD, held
from tests.support.serving.processes import WorkerProcess, command
from tests.support.serving.tokens import FUNCTIONS, token

QUANTIZED = (11, 12, 13, 15, 16)
# Older versions of TensorFlow have fewer dtypes.
SIZES = {
    n: size for n, size in _serving_wire.ELEMENT_SIZES.items() if n in types_pb2.DataType.values()
}
NUMBERS = [tf.as_dtype(n) for n in sorted(SIZES) if n not in QUANTIZED]

X = np.array([1.5, -2.0, 0.25], np.float32)


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda dtype: dtype.name)
def test_numbers_of_each_dtype_go_there_and_back(client: Client, dtype: tf.DType) -> None:
    given = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.as_numpy_dtype)
    for op, kind in (("PyFunc", "numpy"), ("PyFuncStateless", "numpy"), ("EagerPyFunc", "eager")):
        same = token("identity", [dtype.name], kind=kind)
        (result,) = client.call(same, [given], [dtype], op)
        assert result.dtype == given.dtype
        np.testing.assert_array_equal(result, given)


def test_the_sizes_of_elements_are_those_of_numpy() -> None:
    for number, size in SIZES.items():
        assert np.dtype(tf.as_dtype(number).as_numpy_dtype).itemsize == size


def test_several_arguments_of_several_dtypes(client: Client) -> None:
    dtypes = ["float32", "string", "bfloat16", "bool"]
    given = [
        X,
        np.array([b"a", b"bc"], object),
        np.ones((2, 2), ml_dtypes.bfloat16),
        np.array(True),
    ]
    results = client.call(token("identity", dtypes, 4), given, dtypes)
    for result, expected in zip(results, given, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_function_may_keep_its_arguments(client: Client) -> None:
    sums = [
        client.call(token("keep"), [np.full(1000, n, np.float32)], ["float32"])[0] for n in (1, 2)
    ]
    assert sums == [1000, 3000]


def test_a_function_may_write_to_its_arguments(client: Client) -> None:
    (result,) = client.call(token("overwrite", copies=True), [X], ["float32"])
    assert [*result] == [7, 7, 7]


def test_calls_of_several_clients_run_at_a_time(worker: WorkerProcess) -> None:
    def run(number: int) -> Any:
        with Client(worker.path) as client:
            # Returns when four are in it.
            return client.hello().call(
                token("meet"), [np.array([number], np.float32)], ["float32"]
            )[0]

    with ThreadPoolExecutor(4) as pool:
        assert np.concatenate([*pool.map(run, range(4))]).tolist() == [0, 1, 2, 3]


def test_an_error_comes_with_its_code_and_lines(client: Client) -> None:
    with pytest.raises(WorkerError) as raised:
        client.call(token("fail"), [X], ["float32"])
    text = str(raised.value)
    assert raised.value.code == 3
    assert text.startswith("ValueError: no such sensor\nTraceback")
    assert 'raise ValueError("no such sensor")' in text
    assert "last_error" not in text  # the exception is in another process
    assert "[Op:" not in text
    assert "function_node" not in text


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        ("fail_otherwise", 12, "NotImplementedError: not yet"),
        ("leave", 2, "SystemExit: 3"),
        ("another_dtype", 3, "functions:another_dtype is double, but expects float"),
        ("missing", 3, "functions:missing does not exist"),
        ("os:system", 3, "`hostcall worker --allow MODULE`"),
        ("tests.support.serving.functions:os.system", 3, "not a function of a module"),
        ("no spaces allowed:here", 3, "not a module:name"),
    ],
)
def test_what_cannot_be_called_is_an_error(
    client: Client, function: str, code: int, says: str
) -> None:
    with pytest.raises(WorkerError) as raised:
        client.call(token(function), [X], ["float32"])
    assert raised.value.code == code
    assert says in str(raised.value)
    (result,) = client.call(token("double"), [X], ["float32"])  # the connection goes on
    np.testing.assert_array_equal(result, X * 2)


def test_the_text_of_an_error_is_cut(client: Client) -> None:
    with pytest.raises(WorkerError) as raised:
        client.call(token("long_error"), [X], ["float32"])
    text = str(raised.value)
    assert 60_000 < len(text) <= 65_536
    assert "\n[...]\n" in text


@pytest.mark.parametrize(
    "bad",
    ["", "pyfunc_0", "hostcall:", "hostcall:2:{}", "hostcall:1:{", "hostcall:1:[]", "\0" * 99],
)
def test_tokens_that_say_nothing_are_errors(client: Client, bad: str) -> None:
    with pytest.raises(WorkerError) as raised:
        client.call(bad, [X], ["float32"])
    assert raised.value.code == 3


def test_an_op_that_the_function_is_not_made_for_is_an_error(client: Client) -> None:
    for op, kind in (("PyFunc", "eager"), ("EagerPyFunc", "numpy")):
        with pytest.raises(WorkerError, match="was made for another op"):
            client.call(token("identity", kind=kind), [X], ["float32"], op)
    with pytest.raises(WorkerError, match="was made for another op"):
        client.call(token("identity"), [X, X], ["float32"])
    with pytest.raises(WorkerError, match="was made for another op"):
        client.call(token("identity"), [X], ["int32"])


def test_a_shape_that_numpy_has_not_is_an_error(client: Client) -> None:
    many = ArrayFrame(1, (1,) * 100, 0, 4)
    client.put([X])
    with pytest.raises(WorkerError, match="dimension") as raised:
        client.ask(Kind.CALL, CallFrame("PyFunc", token("identity"), [many], [1]))
    assert raised.value.code == 3


def test_only_the_user_may_connect(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stat.S_IMODE(os.stat(worker.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(worker.path + ".lock").st_mode) == 0o600
    with Client(worker.path) as client:
        assert _serving_wire.is_same_user(client.connection)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert not _serving_wire.is_same_user(client.connection)
        with pytest.raises(_serving_wire.ProtocolError, match="another user"):
            _serving_wire.health_of(worker.path)


def test_a_worker_tells_of_its_health(worker: WorkerProcess, client: Client) -> None:
    before = _serving_wire.health_of(worker.path)
    client.call(token("double"), [X], ["float32"])
    with pytest.raises(WorkerError):
        client.call(token("fail"), [X], ["float32"])
    client.send_with(Kind.PING, b"", [])
    after = _serving_wire.decode_health(client.receive().body)
    assert after.pid == worker.pid == before.pid
    assert after.connections >= 1
    assert (after.calls - before.calls, after.errors - before.errors) == (2, 1)
    assert after.seconds > before.seconds
    assert 0.0 < after.slowest <= after.seconds


def test_a_module_that_is_not_there_is_told_how_to_be_found(tmp_path: Path) -> None:
    allowed = ["--allow", "no_such_module_anywhere"]
    with WorkerProcess(str(tmp_path / "socket"), allowed) as worker, Client(worker.path) as client:
        client.hello()
        with pytest.raises(WorkerError) as caught:
            client.call(token("no_such_module_anywhere:f"), [X], ["float32"])
    assert_says(
        str(caught.value),
        "there is no module no_such_module_anywhere here",
        "This is a worker",
        "PYTHONPATH=DIRECTORY",
        "`--import MODULE`",
    )


def test_questions_for_shapes_are_no_calls(worker: WorkerProcess, client: Client) -> None:
    before = _serving_wire.health_of(worker.path)
    question = CallFrame("PyFunc", token("double"), [ArrayFrame(1, (3,))], [1])
    with pytest.raises(WorkerError, match="nothing tells the shape of result 0"):
        client.ask(Kind.SHAPES, question)
    after = _serving_wire.health_of(worker.path)
    assert (after.calls, after.errors) == (before.calls, before.errors)


def test_a_worker_tells_its_log_and_prometheus_of_each_function(tmp_path: Path) -> None:
    options = ["--allow", FUNCTIONS, "--metrics", "0"]
    with WorkerProcess(str(tmp_path / "socket"), options) as worker, Client(worker.path) as client:
        assert worker.process.stdout is not None
        address = worker.process.stdout.readline().split()[-1]
        client.hello()
        # The connection that asks is not counted.
        assert _serving_wire.health_of(worker.path).connections == 1
        client.call(token("double"), [X], ["float32"])
        client.call(token("double"), [X], ["float32"])
        with pytest.raises(WorkerError):
            client.call(token("fail"), [X], ["float32"])
        assert_says(
            worker.log(),
            f"hostcall worker: a call of {FUNCTIONS}:fail has failed: ValueError: no such sensor",
            "Traceback (most recent call last)",
            'raise ValueError("no such sensor")',
        )
        with urllib.request.urlopen(address) as page:
            text = page.read().decode()
    count, function = "hostcall_worker_call_seconds_count", f'function="{FUNCTIONS}'
    assert_says(
        text,
        f'{count}{{{function}:double",outcome="success"}} 2.0\n',
        f'{count}{{{function}:fail",outcome="error"}} 1.0\n',
        "hostcall_worker_connections 1.0\n",
    )


def test_an_address_for_metrics_that_makes_no_sense(tmp_path: Path) -> None:
    worker = WorkerProcess(str(tmp_path / "socket"), ["--metrics", "nine"])
    status, messages = worker.ended()
    assert status == 1
    assert_says(messages, "Error: hostcall: ", "nine")


def test_the_command_line_tells_whether_a_worker_listens(worker: WorkerProcess) -> None:
    def check(path: str, *more: str) -> subprocess.CompletedProcess[str]:
        options = command("--socket", path, "--check", *more)
        options[1:3] = ["-c", "from hostcall_command import main; main()"]
        return subprocess.run(options, capture_output=True, text=True, check=False)

    good, bad = check(worker.path), check(worker.path + "2")
    assert (good.returncode, bad.returncode) == (0, 1)
    assert good.stdout.startswith(f"process {worker.pid} listens at")
    assert re.search(
        r": (1 connection|\d+ connections), (1 call|\d+ calls), (1 error|\d+ errors); ", good.stdout
    )
    assert "no worker answers" in bad.stderr
    health = json.loads(check(worker.path, "--json").stdout)
    assert health == _serving_wire.health_of(worker.path)._asdict()


def test_json_without_check_starts_no_worker(tmp_path: Path) -> None:
    worker = WorkerProcess(str(tmp_path / "socket"), ["--json"])
    status, messages = worker.ended()
    assert status == 2
    assert "--json goes with --check" in messages


def test_a_worker_that_shall_end_ends_its_calls_first(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)  # and leaves it behind
    own = WorkerProcess(path, ["--allow", "tests", "--connections", "2"])
    with own, Client(path) as busy, Client(path) as idle, Client(path) as third:
        assert own.said.endswith(f"listens at {path}. Allowed: tests.\n")
        busy.hello()
        idle.hello()
        with pytest.raises(WorkerError, match="takes no more"):
            third.hello()
        with held(tmp_path, lambda *texts: busy.call(HOLD, texts, ["int32"])) as call:
            own.process.terminate()
            with pytest.raises(_serving_wire.ClosedError):
                idle.receive()
        assert call.result() == [own.pid]
        assert own.ended()[0] == 0
    assert not os.path.exists(path)


def test_a_client_of_another_version_is_told_so(worker: WorkerProcess) -> None:
    with Client(worker.path) as client:
        client.connection.sendall(packed(Kind.PING, b"", version=2))
        frame = client.receive()
        assert frame.kind == Kind.ERROR
        assert "its version of the protocol is 2" in decode_error(frame.body)[1]


def test_a_hello_without_a_body_is_an_error(worker: WorkerProcess) -> None:
    with Client(worker.path) as client:
        client.send_with(Kind.HELLO, struct.pack("<I", 1))
        assert client.receive().kind == Kind.ERROR
