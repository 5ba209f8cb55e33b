"""A process does not grow with the programs that it compiles, nor with the functions it calls."""

from collections.abc import Iterator

import pytest

from tests.support.stress import memory_cases as cases
from tests.support.stress.processes import Worker

# Bytes for each program. An MLIR context takes 1,300,000, and what XLA's allocator keeps a tenth.
A_PROGRAM = 130_000.0

# Bytes for each function, whose entry in a table takes 200 or more. JAX's compiler leaves some
# kilobytes of each program of a hundred, with calls and without.
A_FUNCTION = 200.0


@pytest.fixture
def process() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def test_programs_of_jax(process: Worker) -> None:
    assert process.run(cases.compilations_in_jax, 300, limit=300.0) < A_PROGRAM


def test_programs_of_tensorflow(process: Worker) -> None:
    empty = process.run(cases.compilations_in_tensorflow, 60, False, limit=300.0)
    assert process.run(cases.compilations_in_tensorflow, 300, limit=300.0) < empty + A_PROGRAM


def test_functions_of_jax(process: Worker) -> None:
    empty = process.run(cases.functions_in_jax, 10_000, False, limit=300.0)
    assert process.run(cases.functions_in_jax, 10_000, limit=300.0) < empty + A_FUNCTION


def test_functions_of_tensorflow(process: Worker) -> None:
    assert process.run(cases.functions_in_tensorflow, 10_000, limit=300.0) < A_FUNCTION
