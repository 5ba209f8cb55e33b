"""Random programs come to the same in plain graph mode, compiled by any route, and loaded.

Without jit_compile they come to what they come to without hostcall.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings

from tests.differential.exporting import check_exported
from tests.differential.generator import programs
from tests.differential.program import Program
from tests.differential.running import check
from tests.differential.unjitted import Unjitted


def the_same_each_time(count: int) -> Any:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@the_same_each_time(16)
@given(programs())
def test_all_routes_agree_with_plain_graph_mode(program: Program) -> None:
    for text in check(program):
        event(text)


@the_same_each_time(6)
@given(programs(whole=True))
def test_all_loads_agree_with_the_compiled_function(program: Program) -> None:
    for text in check_exported(program):
        event(text)


@pytest.fixture(scope="module")
def unjitted() -> Iterator[Unjitted]:
    with contextlib.closing(Unjitted()) as processes:
        yield processes


@the_same_each_time(5)
@given(program=programs(stock=True))
def test_without_compilation_hostcall_changes_nothing(unjitted: Unjitted, program: Program) -> None:
    for text in unjitted.check(program):
        event(text)
