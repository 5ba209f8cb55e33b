"""Objects whose end is one more call of a callback."""

import pytest

from tests.stress import destructor_cases as cases
from tests.stress.processes import run_alone


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "jitted"])
def test_exceptions_that_fail_when_forgotten(jit: bool) -> None:
    run_alone(cases.exceptions_that_fail_when_forgotten, jit)


def test_garbage_that_differentiates() -> None:
    run_alone(cases.garbage_that_differentiates, limit=60.0)
