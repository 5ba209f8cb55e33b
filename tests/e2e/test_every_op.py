"""Ops that XLA has no kernels for, in jitted functions, are what they are in graph mode."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.e2e.every_cases import CASES
from tests.support.e2e.every_comparison import assert_close, compare
from tests.support.e2e.every_op import (
    X,
    differentiable,
    differentiated,
    in_a_branch,
    in_a_loop,
    straight,
)
from tests.support.helpers import gradient_of

pytestmark = pytest.mark.usefixtures("auto_route")

GRADIENTS = [name for name, case in CASES.items() if case.gradient]
FORMS = [
    *((straight, name, 2) for name in CASES),
    *((in_a_loop, name, 1) for name, case in CASES.items() if case.loop),
    *((in_a_branch, name, 2) for name, case in CASES.items() if case.branch),
    *((differentiated, name, 1) for name in GRADIENTS),
]


def test_there_are_many_ops() -> None:
    assert len({case.op for case in CASES.values()}) >= 200


@pytest.mark.parametrize(("form", "name", "calls"), FORMS)
def test_it_is_what_it_is_in_graph_mode(form: Any, name: str, calls: int, tmp_path: Path) -> None:
    compare(CASES[name], form, tmp_path, calls)


# A function forward and one backward are compiled for each: some of the ops stand for all.
@pytest.mark.parametrize("name", [n for n in GRADIENTS if CASES[n].tape_outside][::4])
def test_gradients_with_the_tape_outside(name: str) -> None:
    def gradient(**options: Any) -> tf.Tensor:
        program = CASES[name].program
        function = tf.function(lambda x: differentiable(program(x)), autograph=False, **options)
        return tf.convert_to_tensor(gradient_of(function, X))

    assert_close([gradient(jit_compile=True)], [gradient()])
