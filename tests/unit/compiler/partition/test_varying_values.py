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


def _through_calls(i: tf.Tensor) -> Any:
    twice = tf.function(lambda a, b: (a * 2, b * 2))
    return twice(i, tf.constant(3))


def _called_with_both(i: tf.Tensor) -> Any:
    same = tf.function(lambda a: a + 1)
    return same(i), same(tf.constant(3))


def _changed_by_a_loop(x: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, _, __: i < 5,
        lambda i, kept, y: (i + 1, kept, y * 2),
        (tf.constant(0), tf.shape(x)[0], tf.shape(x)[0]),
    )


def _carried_by_lists(x: tf.Tensor, i: tf.Tensor) -> Any:
    shapes = tf.TensorArray(tf.int32, size=3)
    values = tf.TensorArray(tf.int32, size=3)
    for j in range(3):
        shapes = shapes.write(j, tf.shape(x)[0])
        values = values.write(j, i)
    return shapes.read(0), values.read(0)


def _of_branches(x: tf.Tensor, i: tf.Tensor) -> Any:
    by_data = tf.cond(i > 1, lambda: tf.constant(1), lambda: tf.constant(2))
    by_shape = tf.cond(tf.shape(x)[0] > 1, lambda: tf.constant(1), lambda: tf.constant(2))
    inside = tf.cond(tf.shape(x)[0] > 1, lambda: i, lambda: tf.constant(2))
    return by_data, by_shape, inside


CASES: dict[str, tuple[Callable[..., Any], list[tf.TensorSpec], list[bool]]] = {
    "arguments, not their shapes": (
        lambda x: (x + 1.0, tf.shape(x)[0] * 2, tf.rank(x), tf.size(x)),
        [X],
        [True, False, False, False],
    ),
    "no constants": (lambda i: (tf.constant(2) + 3, i + 2), [INDEX], [False, True]),
    "random numbers": (lambda: tf.random.uniform([]), [], [True]),
    "a script op": (lambda: tf.numpy_function(lambda: 1.0, [], tf.float64), [], [True]),
    "a stateful op": (lambda: tf.timestamp(), [], [True]),
    "through calls": (_through_calls, [INDEX], [True, False]),
    "a function that is called with both": (_called_with_both, [INDEX], [True, True]),
    "what a loop changes": (_changed_by_a_loop, [X], [True, False, True]),
    "not the shapes that a list carries": (_carried_by_lists, [X, INDEX], [False, True]),
    "branches": (_of_branches, [X, INDEX], [True, False, True]),
}


@pytest.mark.parametrize(("function", "specs", "expected"), CASES.values(), ids=CASES.keys())
def test_what_varies(
    function: Callable[..., Any], specs: list[tf.TensorSpec], expected: list[bool]
) -> None:
    assert results(function, *specs) == expected


def test_variables_vary() -> None:
    variable = tf.Variable([1.0, 2.0])
    assert results(lambda: (variable + 1.0, tf.shape(variable + 1.0))) == [True, False]
