"""JAX programs whose callbacks compute with JAX come to an end, whoever waits for them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stress import dispatch_cases as cases
from tests.support.stress.processes import Worker

WAYS = (
    *(cases.eagerly, cases.jitted, cases.compiled_before, cases.with_what_is_given_away),
    *(cases.in_front_of_others, cases.on_threads),
)


@pytest.mark.parametrize("flavour", ["unordered", "ordered", "pure"])
@pytest.mark.parametrize("body", cases.BODIES)
@pytest.mark.parametrize("way", WAYS)
def test_programs_that_nobody_waits_for(
    worker: Worker, way: Callable[[str, str], None], body: str, flavour: str
) -> None:
    worker.run(way, body, flavour)


def test_more_threads_than_xla_takes_programs(worker: Worker) -> None:
    worker.run(cases.on_more_threads_than_places)


@pytest.mark.parametrize("ordered", [False, True])
def test_programs_in_programs(worker: Worker, ordered: bool) -> None:
    assert worker.run(cases.programs_in_programs, ordered, 30) == "nothing"
    said = worker.run(cases.programs_in_programs, ordered, 40)
    assert said.startswith("31 JAX programs with calls of Python functions are under way")


@pytest.mark.parametrize("partitioned", [False, True])
def test_exported_programs(worker: Worker, tmp_path: Path, partitioned: bool) -> None:
    worker.run(cases.exported, str(tmp_path), partitioned)
