"""Objects whose end is one more call of a callback."""

import pytest

from tests.support.stress import destructor_cases as cases
from tests.support.stress.template import Template


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "jitted"])
def test_exceptions_that_fail_when_forgotten(template: Template, jit: bool) -> None:
    template.run(cases.exceptions_that_fail_when_forgotten, jit).assert_well()


def test_garbage_that_differentiates(template: Template) -> None:
    template.run(cases.garbage_that_differentiates, limit=60.0).assert_well()
