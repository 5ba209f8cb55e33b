"""Values that may differ from call to call though all shapes are the same (`varying_values`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from hostcall._compiler.partition.host_ops import VaryingValues

X, INDEX = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([], tf.int32)


def results(function: Callable[..., Any], *specs: tf.TensorSpec) -> list[bool]:
    """Which results of a function may vary, in their order."""
    concrete = tf.function(function).get_concrete_function(*specs)
    library = concrete.graph.as_graph_def().library.function
    functions = {f.signature.name: f for f in (*library, concrete.function_def)}
    found = VaryingValues(functions)
    entry = concrete.function_def
    values = [entry.ret[arg.name] for arg in entry.signature.output_arg]
    return [found.includes(entry.signature.name, value) for value in values]


def test_arguments_vary_and_their_shapes_do_not() -> None:
    assert results(lambda x: (x + 1.0, tf.shape(x)[0] * 2, tf.rank(x), tf.size(x)), X) == [
        True,
        False,
        False,
        False,
    ]


def test_constants_do_not_vary() -> None:
    assert results(lambda i: (tf.constant(2) + 3, i + 2), INDEX) == [False, True]


@pytest.mark.parametrize(
    "function",
    [
        lambda: tf.random.uniform([]),
        lambda: tf.numpy_function(lambda: 1.0, [], tf.float64),
        lambda: tf.timestamp(),
    ],
    ids=["random", "script op", "stateful"],
)
def test_what_has_a_state_varies(function: Callable[..., Any]) -> None:
    assert results(function) == [True]


def test_variables_vary() -> None:
    variable = tf.Variable([1.0, 2.0])
    assert results(lambda: (variable + 1.0, tf.shape(variable + 1.0))) == [True, False]


def test_through_calls() -> None:
    twice = tf.function(lambda a, b: (a * 2, b * 2))
    assert results(lambda i: twice(i, tf.constant(3)), INDEX) == [True, False]


def test_a_function_that_is_called_with_both() -> None:
    same = tf.function(lambda a: a + 1)
    assert results(lambda i: (same(i), same(tf.constant(3))), INDEX) == [True, True]


def test_what_a_loop_changes_varies() -> None:
    def loop(x: tf.Tensor) -> Any:
        return tf.while_loop(
            lambda i, _, __: i < 5,
            lambda i, kept, y: (i + 1, kept, y * 2),
            (tf.constant(0), tf.shape(x)[0], tf.shape(x)[0]),
        )

    assert results(loop, X) == [True, False, True]


def test_shapes_that_a_list_carries_through_a_loop() -> None:
    def loop(x: tf.Tensor, i: tf.Tensor) -> Any:
        shapes = tf.TensorArray(tf.int32, size=3)
        values = tf.TensorArray(tf.int32, size=3)
        for j in range(3):
            shapes = shapes.write(j, tf.shape(x)[0])
            values = values.write(j, i)
        return shapes.read(0), values.read(0)

    assert results(loop, X, INDEX) == [False, True]


def test_branches() -> None:
    def branch(x: tf.Tensor, i: tf.Tensor) -> Any:
        by_data = tf.cond(i > 1, lambda: tf.constant(1), lambda: tf.constant(2))
        by_shape = tf.cond(tf.shape(x)[0] > 1, lambda: tf.constant(1), lambda: tf.constant(2))
        inside = tf.cond(tf.shape(x)[0] > 1, lambda: i, lambda: tf.constant(2))
        return by_data, by_shape, inside

    assert results(branch, X, INDEX) == [True, False, True]
