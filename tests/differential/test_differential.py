"""Random programs come to the same in plain graph mode and compiled, whatever the route."""

from hypothesis import HealthCheck, event, given, settings

from tests.differential.generator import programs
from tests.differential.program import Program
from tests.differential.running import check


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs())
def test_all_routes_agree_with_plain_graph_mode(program: Program) -> None:
    for text in check(program):
        event(text)
