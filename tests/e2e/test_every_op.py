"""Ops that XLA has no kernels for, each in a jitted function, are what they are in graph mode."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tests.support.e2e.every_cases import CASES
from tests.support.e2e.every_comparison import compare, returning_tensors
from tests.support.e2e.every_op import X, straight, without_kernel


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass


def test_there_are_many_ops() -> None:
    assert len({case.op for case in CASES.values()}) >= 200


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_it_is_in_graph_mode(name: str, tmp_path: Path) -> None:
    compare(CASES[name], straight, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_xla_has_no_kernel_for_it(name: str, tmp_path: Path) -> None:
    program, _ = CASES[name].prepared(tmp_path / "state")
    concrete = tf.function(returning_tensors(program), autograph=False).get_concrete_function(X)
    assert CASES[name].op in without_kernel(concrete)
