"""Whatever a callback does, and whoever calls it at once: right results, and no hang."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.stress import reentrancy_cases as cases
from tests.support.stress.processes import Worker

ONE_THREAD = "import tensorflow as tf; tf.config.threading.set_inter_op_parallelism_threads(1)"

AXES = (cases.ACTIONS, cases.KINDS, cases.SIZES)


# Each two of these meet in some case, though not in all that have them.
PAIRS = [
    (action, kind, size, cases.CALLERS[sum(numbers) % len(cases.CALLERS)])
    for numbers, (action, kind, size) in zip(
        itertools.product(*[range(len(axis)) for axis in AXES]),
        itertools.product(*AXES),
        strict=True,
    )
]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[Worker]:
    worker = Worker(ONE_THREAD)
    yield worker
    worker.close()


@pytest.mark.parametrize("callers", cases.CALLERS)
@pytest.mark.parametrize("size", cases.SIZES)
@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize("action", cases.ACTIONS)
def test_a_callback_may(worker: Worker, action: str, kind: str, size: str, callers: str) -> None:
    worker.run(cases.run_case, action, kind, size, callers)


@pytest.mark.parametrize(("action", "kind", "size", "callers"), PAIRS)
def test_with_one_inter_op_thread(
    one_thread: Worker, action: str, kind: str, size: str, callers: str
) -> None:
    one_thread.run(cases.run_case, action, kind, size, callers)


@pytest.mark.parametrize("inter_op", ["worker", "one_thread"])
@pytest.mark.parametrize("callers", [1, 4])
@pytest.mark.parametrize("action", cases.ACTIONS)
def test_inside_plain_functions(
    request: pytest.FixtureRequest, action: str, callers: int, inter_op: str
) -> None:
    worker = request.getfixturevalue(inter_op)
    worker.run(cases.run_inside_plain_functions, action, callers)
