"""Whatever a callback does, and whoever calls it at once: right results, and no hang."""

from collections.abc import Iterator

import pytest

from tests.stress import reentrancy_cases as cases
from tests.stress.processes import Worker

ONE_THREAD = "import tensorflow as tf; tf.config.threading.set_inter_op_parallelism_threads(1)"


@pytest.fixture(scope="module", params=["", ONE_THREAD], ids=["default", "one inter-op thread"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    worker = Worker(request.param)
    yield worker
    worker.close()


@pytest.mark.parametrize("callers", cases.CALLERS)
@pytest.mark.parametrize("size", cases.SIZES)
@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize("action", cases.ACTIONS)
def test_a_callback_may(worker: Worker, action: str, kind: str, size: str, callers: str) -> None:
    worker.run(cases.run_case, action, kind, size, callers)


@pytest.mark.parametrize("callers", [1, 4])
@pytest.mark.parametrize("action", cases.ACTIONS)
def test_inside_plain_functions(worker: Worker, action: str, callers: int) -> None:
    worker.run(cases.run_inside_plain_functions, action, callers)
