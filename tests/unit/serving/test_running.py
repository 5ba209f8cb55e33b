"""hostcall._serving.worker: what keeps a worker from beginning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostcall import _control
from hostcall._saving import functions
from hostcall._serving import worker
from hostcall._serving.worker import Worker


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_allowed", {})


def run(path: str | None, control: int | None = None, imported: tuple[str, ...] = ()) -> None:
    said: list[str] = []
    worker.run(path, control, (), imported, Worker(1 << 20, 8), said.append)
    raise AssertionError(f"a worker has begun: {said}")


def test_a_module_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the import of no_such_module has failed: ModuleNotFound"):
        run(str(tmp_path / "socket"), imported=("no_such_module",))
    assert not (tmp_path / "socket").exists()


def test_a_worker_without_hostcall_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_control, "is_enabled", lambda: False)
    with pytest.raises(ValueError, match="HOSTCALL_DISABLE=1"):
        run(str(tmp_path / "socket"))


def test_a_descriptor_that_is_no_connection_is_an_error() -> None:
    reading, writing = os.pipe()
    for descriptor in (reading, 10_000):
        with pytest.raises(ValueError, match=f"descriptor {descriptor} is no connection"):
            run(None, descriptor)
    os.close(reading)
    os.close(writing)
