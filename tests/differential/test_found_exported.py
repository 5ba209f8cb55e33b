"""Programs that random ones have led to, made smaller: loaded, they do what the originals do."""

from __future__ import annotations

import pytest

from tests.differential.exporting import check_exported
from tests.differential.program import Block, Program, Statement


def vector_to(*statements: Statement) -> Program:
    """A program of some vectors, which returns what the last statement does."""
    result = Block(statements, (1 + len(statements),))
    return Program(result, inputs=(((1, 2, 4), 0), ((2, 6, -4), 1)))


@pytest.mark.parametrize("api", ["eager_callback", "py_function"])
def test_a_bounded_result_of_a_function_of_tensors(api: str) -> None:
    """The true size is behind the number of the state, which goes."""
    check_exported(vector_to(Statement("evens", (0,), (api, "bounded", True))))
