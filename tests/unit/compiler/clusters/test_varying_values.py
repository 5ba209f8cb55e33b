"""Values that may differ from call to call though all shapes are the same (`VaryingValues`)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf

from hostcall._compiler.analyses.varying import VaryingValues

X, INDEX = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([], tf.int32)


def results(function: Callable[..., Any], *specs: tf.TensorSpec) -> list[bool]:
    """Return for each result of a function whether it may vary."""
    concrete = tf.function(function).get_concrete_function(*specs)
    library = concrete.graph.as_graph_def().library.function
    functions = {f.signature.name: f for f in (*library, concrete.function_def)}
    found = VaryingValues(functions)
    entry = concrete.function_def
    values = [entry.ret[arg.name] for arg in entry.signature.output_arg]
    return [found.includes(entry.signature.name, value) for value in values]


def loop(x: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, _, __: i < 5,
        lambda i, kept, y: (i + 1, kept, y * 2),
        (tf.constant(0), tf.shape(x)[0], tf.shape(x)[0]),
    )


def lists(x: tf.Tensor, i: tf.Tensor) -> Any:
    shapes, values = (tf.TensorArray(tf.int32, size=3) for _ in range(2))
    for j in range(3):
        shapes = shapes.write(j, tf.shape(x)[0])
        values = values.write(j, i)
    return shapes.read(0), values.read(0)


def branch(x: tf.Tensor, i: tf.Tensor) -> Any:
    by_data = tf.cond(i > 1, lambda: tf.constant(1), lambda: tf.constant(2))
    by_shape = tf.cond(tf.shape(x)[0] > 1, lambda: tf.constant(1), lambda: tf.constant(2))
    inside = tf.cond(tf.shape(x)[0] > 1, lambda: i, lambda: tf.constant(2))
    return by_data, by_shape, inside


twice = tf.function(lambda a, b: (a * 2, b * 2))
same = tf.function(lambda a: a + 1)

# Functions, the specs of their arguments, and which of their results vary.
CASES: dict[str, tuple[Callable[..., Any], Sequence[tf.TensorSpec], list[bool]]] = {
    "arguments, and not their shapes": (
        lambda x: (x + 1.0, tf.shape(x)[0] * 2, tf.rank(x), tf.size(x)),
        [X],
        [True, False, False, False],
    ),
    "no constants": (lambda i: (tf.constant(2) + 3, i + 2), [INDEX], [False, True]),
    "random": (lambda: tf.random.uniform([]), [], [True]),
    "script op": (lambda: tf.numpy_function(lambda: 1.0, [], tf.float64), [], [True]),
    "stateful": (lambda: tf.timestamp(), [], [True]),
    "calls": (lambda i: twice(i, tf.constant(3)), [INDEX], [True, False]),
    "a function called with both": (lambda i: (same(i), same(tf.constant(3))), [INDEX], [True] * 2),
    "what a loop changes": (loop, [X], [True, False, True]),
    "shapes in a list": (lists, [X, INDEX], [False, True]),
    "branches": (branch, [X, INDEX], [True, False, True]),
}


@pytest.mark.parametrize(("function", "specs", "expected"), CASES.values(), ids=CASES)
def test_varying_results(function: Any, specs: Any, expected: list[bool]) -> None:
    assert results(function, *specs) == expected


def test_variables_vary() -> None:
    variable = tf.Variable([1.0, 2.0])
    assert results(lambda: (variable + 1.0, tf.shape(variable + 1.0))) == [True, False]
