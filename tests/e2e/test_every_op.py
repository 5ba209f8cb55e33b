"""Ops that XLA has no kernels for, in jitted functions, are what they are in graph mode."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.e2e.every_cases import CASES
from tests.support.e2e.every_op import (
    X,
    assert_close,
    differentiable,
    differentiated,
    in_a_branch,
    in_a_branch_of_a_loop,
    in_a_loop,
    returning_tensors,
    straight,
)
from tests.support.helpers import gradient_of

pytestmark = pytest.mark.usefixtures("auto_route")

GRADIENTS = [name for name, case in CASES.items() if case.gradient]
NESTED = [name for name, case in CASES.items() if case.nested]
FORMS = [
    *((straight, name, 2) for name in CASES),
    *((in_a_branch_of_a_loop, name, 1) for name in NESTED),
    # Loops and branches alone are the same for all: some of the ops stand for the others.
    *((in_a_loop, name, 1) for name in NESTED[::8]),
    *((in_a_branch, name, 2) for name in NESTED[::8]),
    *((differentiated, name, 1) for name in GRADIENTS),
]


@pytest.mark.parametrize(("form", "name", "calls"), FORMS)
def test_it_is_what_it_is_in_graph_mode(form: Any, name: str, calls: int, tmp_path: Path) -> None:
    expected, expected_effects = CASES[name].prepared(tmp_path / "graph")
    actual, actual_effects = CASES[name].prepared(tmp_path / "compiled")
    graph = tf.function(returning_tensors(form(expected)), autograph=False)
    compiled = tf.function(returning_tensors(form(actual)), autograph=False, jit_compile=True)
    for x in (X, X[::-1])[:calls]:
        assert_close(compiled(x), graph(x))
        assert repr(actual_effects()) == repr(expected_effects())


# A function forward and one backward are compiled for each: some of the ops stand for all.
@pytest.mark.parametrize("name", [n for n in GRADIENTS if CASES[n].tape_outside][::8])
def test_gradients_with_the_tape_outside(name: str) -> None:
    def gradient(**options: Any) -> tf.Tensor:
        program = CASES[name].program
        function = tf.function(lambda x: differentiable(program(x)), autograph=False, **options)
        return tf.convert_to_tensor(gradient_of(function, X))

    assert_close([gradient(jit_compile=True)], [gradient()])


# Effects of such ops, and callbacks that see them, in order.

# One op for each kind of what they work on.
WITH_EFFECTS = {case.setup: name for name, case in reversed(CASES.items()) if case.effects}


def watched(name: str, folder: Path, explicit: bool) -> tuple[Callable[[tf.Tensor], None], Any]:
    """A program with effects one after another, and a journal in which a callback describes them.

    The callback depends on the ops of an effect if `explicit`.
    """
    program, effects = CASES[name].prepared(folder)
    journal: list[str] = []

    def note() -> float:
        journal.append(repr(effects()))
        return 0.0

    def look(after: list[Any]) -> tf.Tensor:
        with tf.control_dependencies(after):
            seen = tf.py_function(note, [], tf.float32)
        seen.set_shape([])
        return seen

    def step(after: list[Any], x: tf.Tensor) -> tf.Tensor:
        graph: Any = tf.compat.v1.get_default_graph()  # which has no ops in eager mode
        before = len(graph.get_operations())
        with tf.control_dependencies(after):
            program(x)
        return look(graph.get_operations()[before:] if explicit else [])

    def run(x: tf.Tensor) -> None:
        seen = step([look([])], x)
        with tf.control_dependencies([seen]):
            seen = tf.cond(x[0] > 0.0, lambda: step([], x[::-1]), lambda: 0.0)
        with tf.control_dependencies([seen]):
            body = lambda i, seen: (i + 1, step([seen], x))  # noqa: E731
            tf.while_loop(lambda i, _: i < 2, body, [0, seen], parallel_iterations=1)

    return run, journal


# The last two work on no resource, so that TensorFlow orders them among callbacks by itself.
@pytest.mark.parametrize(
    ("name", "explicit"),
    [*((name, True) for name in WITH_EFFECTS.values()), ("PrintV2", False), ("WriteFile", False)],
)
def test_callbacks_see_what_was_done_before_them(name: str, explicit: bool, tmp_path: Path) -> None:
    eager, expected = watched(name, tmp_path / "eager", explicit)
    program, seen = watched(name, tmp_path / "compiled", explicit)
    compiled = tf.function(program, autograph=False, jit_compile=True)
    for x in (X, X[::-1]):
        eager(x)
        compiled(x)
        assert seen == expected


def test_prints_go_where_those_of_graph_mode_go(capfd: pytest.CaptureFixture[str]) -> None:
    def program(x: tf.Tensor) -> None:
        for i in range(3):
            tf.print("line", i, "of", x, summarize=2)

    said = []
    for jit in (False, True):
        tf.function(program, jit_compile=jit or None)(X)
        said.append(capfd.readouterr().err)
    assert said[1] == said[0] == "".join(f"line {i} of [1 3 2 3]\n" for i in range(3))
