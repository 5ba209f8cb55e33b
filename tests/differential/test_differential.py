"""Random programs come to the same in plain graph mode, compiled by any route, and loaded."""

from typing import Any

from hypothesis import HealthCheck, event, given, settings

from tests.differential.exporting import check_exported
from tests.differential.generator import programs
from tests.differential.program import Program
from tests.differential.running import check


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
