"""Ops that XLA has no kernels for, in a `tf.cond` of a jitted function."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.e2e.every_cases import CASES
from tests.support.e2e.every_comparison import compare
from tests.support.e2e.every_op import in_a_branch


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.branch])
def test_it_is_what_it_is_in_graph_mode(name: str, tmp_path: Path) -> None:
    compare(CASES[name], in_a_branch, tmp_path)
