"""Forks of a process that has imported hostcall: the rule is in docs/sharp-bits.md."""

from collections.abc import Callable

import pytest

from tests.support.stress import fork_cases as cases
from tests.support.stress.template import Template


@pytest.mark.parametrize(
    "case",
    [
        cases.before_anything_has_run,
        cases.after_programs,
        cases.with_threads_that_wait_for_work,
        cases.with_calls_in_flight,
        cases.with_calls_that_come_and_go,
        cases.in_a_callback,
        cases.loaders_that_fork,
        cases.keras_with_loaders,
        cases.other_start_methods,
    ],
)
def test_forks(template: Template, case: Callable[[], None]) -> None:
    template.run(case, limit=300.0).assert_well()
