"""One worker for all tests that need no worker of their own."""

from collections.abc import Iterator

import pytest

from tests.support.serving.client import Client
from tests.support.serving.processes import WorkerProcess


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with WorkerProcess(str(tmp_path_factory.mktemp("worker") / "socket")) as started:
        yield started


@pytest.fixture
def client(worker: WorkerProcess) -> Iterator[Client]:
    with Client(worker.path) as connected:
        yield connected.hello()
