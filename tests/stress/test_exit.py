"""A process that ends with calls in flight, or with compiled functions alive: no hitch, no message.

`template.py` forks for each of these processes, before TensorFlow has run anything.
"""

from collections.abc import Callable

import pytest

from tests.support.stress import exit_cases as cases
from tests.support.stress.processes import run_alone
from tests.support.stress.template import Template


@pytest.mark.parametrize("doing", cases.DOINGS)
def test_calls_in_flight(template: Template, doing: str) -> None:
    template.run(cases.in_flight, doing).assert_well()


def test_calls_in_flight_in_a_process_that_was_not_forked() -> None:
    run_alone(cases.in_flight, "linger")


@pytest.mark.parametrize("moment", cases.MOMENTS)
def test_a_call_at_some_other_moment(template: Template, moment: Callable[[], None]) -> None:
    template.run(moment).assert_well()


def test_late_calls_that_still_run(template: Template) -> None:
    template.run(cases.late).assert_well()


def test_a_thread_that_python_waits_for(template: Template) -> None:
    template.run(cases.waited_for).assert_well("right\n")


def test_calls_in_flight_do_not_change_the_exit_status(template: Template) -> None:
    ended = template.run(cases.in_flight_when_the_main_thread_fails, "SystemExit")
    assert (ended.status, ended.said) == (7, "")
    ended = template.run(cases.in_flight_when_the_main_thread_fails, "ValueError")
    assert ended.status == 1
    assert ended.said.startswith("Traceback")
    assert ended.said.endswith("ValueError: the end\n")


@pytest.mark.parametrize("alive", cases.ALIVE)
def test_what_is_alive(template: Template, alive: Callable[[], None]) -> None:
    right = 4 * "right\n" if alive is cases.handlers_at_exit else ""
    template.run(alive).assert_well(right)


def test_sys_exit_in_a_callback_is_an_error_as_in_stock_tensorflow(template: Template) -> None:
    ended = template.run(cases.sys_exit_in_a_callback)
    assert ended.status == 1
    assert "UnknownError" in ended.said
    assert "SystemExit: 3" in ended.said
