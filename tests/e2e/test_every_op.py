"""Ops that XLA has no kernels for, each in a jitted function, are what they are in graph mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.e2e.every_cases import CASES
from tests.support.e2e.every_comparison import compare
from tests.support.e2e.every_op import straight


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass


def test_there_are_many_ops() -> None:
    assert len({case.op for case in CASES.values()}) >= 200


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_it_is_in_graph_mode(name: str, tmp_path: Path) -> None:
    compare(CASES[name], straight, tmp_path)
