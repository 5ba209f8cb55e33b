"""hostcall._serving.worker."""

import os
import socket
import stat
from pathlib import Path

import pytest

from hostcall._serving.worker import ListeningError, listening_at


def test_only_the_user_may_connect_and_nothing_is_left_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with listening_at(path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        listener.accept()[0].close()
        modes = {stat.S_IMODE(os.stat(name).st_mode) for name in (path, path + ".lock")}
        assert modes == {0o600}
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
    with pytest.raises(ListeningError, match="is no socket"), listening_at(str(path)):
        pass
    assert path.read_text() == "mine"


@pytest.mark.parametrize("path", ["/nowhere/socket", "{}/" + "long" * 30])
def test_a_path_that_is_none_for_a_socket_is_an_error(tmp_path: Path, path: str) -> None:
    expected = pytest.raises(ListeningError, match="no worker can listen at")
    with expected, listening_at(path.format(tmp_path)):
        pass
