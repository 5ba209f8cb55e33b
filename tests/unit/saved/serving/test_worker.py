"""hostcall._saved.serving.worker: where a worker listens, and what keeps it from beginning."""

import os
import socket
import threading
from pathlib import Path

import pytest

from hostcall import _control
from hostcall._saved.serving import metrics, worker
from hostcall._saved.serving.worker import ListeningError, listening_at
from hostcall_runtime import _serving_wire


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with listening_at(path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        listener.accept()[0].close()
        assert not os.get_inheritable(listener.fileno())
    assert not os.path.exists(path)


def test_the_socket_of_a_dead_worker_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with listening_at(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_two_workers_do_not_listen_at_one_path(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with listening_at(path), socket.socket(socket.AF_UNIX) as client:
        with pytest.raises(ListeningError, match="another worker listens"), listening_at(path):
            pass
        client.connect(path)  # the first one's is still there
    with listening_at(path):
        pass


def test_what_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(ListeningError, match="is not a socket"), listening_at(str(path)):
        pass
    assert path.read_text() == "mine"


@pytest.mark.parametrize("path", ["/nowhere/socket", "{}/" + "long" * 30])
def test_a_path_that_is_none_for_a_socket_is_an_error(tmp_path: Path, path: str) -> None:
    expected = pytest.raises(ListeningError, match="no worker can listen at")
    with expected, listening_at(path.format(tmp_path)):
        pass


def run(path: str | None, control: int | None = None, imported: tuple[str, ...] = ()) -> None:
    said: list[str] = []
    worker.run(path, control, (), imported, 1 << 20, 8, None, said.append)
    raise AssertionError(f"a worker has begun: {said}")


def test_a_module_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the import of no_such_module has failed: ModuleNotFound"):
        run(str(tmp_path / "socket"), imported=("no_such_module",))
    assert not (tmp_path / "socket").exists()


def test_a_worker_wants_hostcall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_control, "is_enabled", lambda: False)
    with pytest.raises(ValueError, match="HOSTCALL_DISABLE=1"):
        run(str(tmp_path / "socket"))


def test_a_descriptor_that_is_no_connection_is_an_error() -> None:
    reading, writing = os.pipe()
    for descriptor in (reading, 10_000):
        with pytest.raises(ValueError, match=f"descriptor {descriptor} is not a connection"):
            run(None, descriptor)
    os.close(reading)
    os.close(writing)


def test_a_client_for_which_there_is_no_thread_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    serving = worker.Worker(1 << 20, 8)
    near, far = socket.socketpair()
    with monkeypatch.context() as patch, near:
        patch.setattr(threading.Thread, "start", refused)
        serving._start(far)
        frame = _serving_wire.receive(near)
    assert frame.kind == _serving_wire.Kind.ERROR
    assert b"no more clients now: can't start new thread" in bytes(frame.body)
    assert not serving.connections()


@pytest.mark.parametrize("address", ["nine", "127.0.0.1:nine", "127.0.0.1:99999"])
def test_an_address_for_metrics_that_makes_no_sense_is_an_error(address: str) -> None:
    with pytest.raises(ValueError, match=f"^hostcall: .*{address}"):
        metrics.serve(address, metrics.Metrics(), lambda: 0)
