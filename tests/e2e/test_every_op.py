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
    compare,
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


# Effects of such ops, and callbacks that see them, in order.

WITH_EFFECTS = [name for name, case in CASES.items() if case.effects is not None]
# They work on no resource, so that TensorFlow orders them among callbacks by itself.
ORDERED = ["PrintV2", "WriteFile"]


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
        with tf.control_dependencies(after):
            made = _made_by(lambda: program(x))
        return look(made if explicit else [])

    def run(x: tf.Tensor) -> None:
        seen = step([look([])], x)
        with tf.control_dependencies([seen]):
            seen = tf.cond(x[0] > 0.0, lambda: step([], x[::-1]), lambda: 0.0)
        with tf.control_dependencies([seen]):
            body = lambda i, seen: (i + 1, step([seen], x))  # noqa: E731
            tf.while_loop(lambda i, _: i < 2, body, [0, seen], parallel_iterations=1)

    return run, journal


def _made_by(build: Callable[[], Any]) -> list[Any]:
    """The ops that a function adds to the graph; none in eager mode."""
    graph: Any = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    build()
    return list(graph.get_operations()[before:])


@pytest.mark.parametrize(
    ("name", "explicit"),
    [*((name, True) for name in WITH_EFFECTS), *((name, False) for name in ORDERED)],
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
