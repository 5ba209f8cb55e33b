"""Threads that share a function get the gradients of their own calls."""

import pytest

import tests.support.gradients as g
from tests.support.stress import gradient_cases as cases
from tests.support.stress.processes import Worker

# XLA has no way out of a compiled program for what a loop keeps for its gradient.
each_program = pytest.mark.parametrize(
    ("wrapper", "program", "place"),
    [
        ("py_function", "twice", "inside"),
        ("py_function", "twice", "outside"),
        ("py_function", "loop", "inside"),
        ("callback", "twice", "inside"),
        ("grad=", "twice", "outside"),
        ("grad=", "loop", "inside"),
    ],
)


@each_program
@pytest.mark.parametrize("size", [4, 65_536])
def test_four_threads_of_100_gradients(
    worker: Worker, wrapper: str, program: str, place: str, size: int
) -> None:
    worker.run(cases.run_threads, 4, 100, wrapper, program, place, size, True, limit=60.0)


@each_program
@pytest.mark.parametrize("size", [4, 65_536])
def test_sixteen_threads_at_the_first_compilation(
    worker: Worker, wrapper: str, program: str, place: str, size: int
) -> None:
    worker.run(cases.run_threads, 16, 2, wrapper, program, place, size, False, limit=60.0)


@pytest.mark.parametrize("wrapper", cases.WRAPPERS)
@pytest.mark.parametrize("size", [4, 65_536])
def test_a_tape_that_is_asked_on_another_thread(worker: Worker, wrapper: str, size: int) -> None:
    worker.run(cases.run_on_another_thread, wrapper, size)


@pytest.mark.parametrize("wrapper", g.WRAPPERS)
def test_tracing_beside_a_recorded_run(worker: Worker, wrapper: str) -> None:
    worker.run(cases.run_tracing_beside_a_recorded_run, wrapper)
