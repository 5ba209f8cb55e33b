"""Calls without side effects overlap where XLA lets them; calls with side effects never do."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted
from tests.support.stress.programs import like
from tests.support.threads import Alone

# XLA runs programs of fewer operations, or on small buffers, one operation after another.
CALLS = 12
X = tf.range(100_000, dtype=tf.float32)


def by_callback(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    return hostcall.callback(function, result=like, stateful=False, concurrent=True)(x)


def by_numpy_function(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(function, [x], like(x))


def by_py_function(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(function, [x], like(x))


STATEFUL = [by_numpy_function, by_py_function]


def several(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: [op(function, x + float(i)) for i in range(CALLS)]


def inside_a_plain_function(program: Callable[..., Any]) -> Callable[..., Any]:
    inner = jitted(program)
    return tf.function(lambda x: inner(x))


def mixed(alone: Alone) -> Callable[..., Any]:
    return lambda x: [STATEFUL[i % 2](alone, x + float(i)) for i in range(CALLS)]


def in_branches_and_loops(alone: Alone) -> Callable[..., Any]:
    def program(x: tf.Tensor) -> list[tf.Tensor]:
        results = [by_numpy_function(alone, x + float(i)) for i in range(4)]
        y = x
        for _ in tf.range(4):
            y = by_py_function(alone, y + 1.0)
        z = by_numpy_function(alone, x) if x[1] > 0.0 else by_py_function(alone, x + 1.0)
        return [*results, y, z, *[by_py_function(alone, x - float(i)) for i in range(3)]]

    return program


@pytest.mark.parametrize(
    "program", [lambda alone: several(by_numpy_function, alone),
                lambda alone: several(by_py_function, alone), mixed,
                in_branches_and_loops],
    ids=["numpy_function", "py_function", "mixed", "branches and loops"],
)  # fmt: skip
@pytest.mark.parametrize("mode", [jitted, inside_a_plain_function])
def test_calls_with_side_effects_run_one_after_another(mode: Any, program: Any) -> None:
    alone = Alone()
    function = mode(program(alone))
    for _ in range(4):
        function(X)
    assert (alone.calls, alone.overlaps) == (4 * CALLS, 0)


def test_the_check_for_overlaps_can_fail() -> None:
    alone = Alone()
    function = jitted(several(by_callback, alone))
    for _ in range(4):
        function(X)
    assert alone.overlaps > 0
