"""Gradients of ops that XLA has no kernels for, with the tape inside and outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.e2e.every_cases import CASES
from tests.support.e2e.every_comparison import assert_close, compare
from tests.support.e2e.every_op import X, differentiable, differentiated

GRADIENTS = [name for name, case in CASES.items() if case.gradient]


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass


@pytest.mark.parametrize("name", GRADIENTS)
def test_with_the_tape_inside(name: str, tmp_path: Path) -> None:
    compare(CASES[name], differentiated, tmp_path, calls=1)


# A function forward and one backward are compiled for each: some of the ops stand for all.
@pytest.mark.parametrize("name", [n for n in GRADIENTS if CASES[n].tape_outside][::4])
def test_with_the_tape_outside(name: str) -> None:
    def gradient(**options: Any) -> tf.Tensor:
        program = CASES[name].program
        function = tf.function(lambda x: differentiable(program(x)), autograph=False, **options)
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = function(X)
        return tf.convert_to_tensor(tape.gradient(y, X))

    assert_close([gradient(jit_compile=True)], [gradient()])
