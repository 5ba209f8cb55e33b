"""What XLA wants to know when it compiles, and what depends on data, is not compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import failure, jitted, plain

X = tf.reshape(tf.range(24.0), [4, 6])


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass


def same(x: tf.Tensor) -> tf.Tensor:
    """A script op whose result may have any shape, so that the function is partitioned."""
    return tf.numpy_function(lambda v: v, [x], x.dtype)


def sliced(x: tf.Tensor, i: tf.Tensor) -> Any:
    part = tf.slice(x, [0, 1], [4, i])
    return tf.reduce_sum(same(x) * 2.0) + tf.reduce_sum(tf.exp(part))


def indexed(x: tf.Tensor, i: tf.Tensor) -> Any:
    probabilities = tf.nn.softmax(x)
    return tf.math.log(probabilities[0, i]) + tf.reduce_sum(same(x) * 2.0)


def index_from_python(x: tf.Tensor, i: tf.Tensor) -> Any:
    action = tf.ensure_shape(same(i), [])
    return tf.nn.softmax(x)[0, action] * 2.0 + tf.reduce_sum(same(x))


def ranged(x: tf.Tensor, i: tf.Tensor) -> Any:
    return tf.reduce_sum(tf.cast(tf.range(i * 2), tf.float32) ** 2) + tf.reduce_sum(same(x))


def reshaped(x: tf.Tensor, i: tf.Tensor) -> Any:
    return tf.reduce_sum(tf.reshape(x * 2.0, [i, -1]), 0) + tf.reduce_sum(same(x))


def tiled(x: tf.Tensor, i: tf.Tensor) -> Any:
    return tf.tile(x * 2.0, [i, 1]) + tf.reduce_sum(same(x))


def along_an_axis(x: tf.Tensor, i: tf.Tensor) -> Any:
    return tf.reduce_sum(x * 2.0, axis=i % 2) + tf.reduce_sum(same(x))


def in_a_branch(x: tf.Tensor, i: tf.Tensor) -> Any:
    y = tf.reduce_sum(same(x))
    return y + tf.reduce_sum(tf.exp(x)[:, :i]) if x[0, 0] < 1.0 else y * 2.0


@tf.function
def _inner(x: tf.Tensor, i: tf.Tensor) -> Any:
    return tf.exp(x * 0.1)[:, i] + 1.0


def in_a_call(x: tf.Tensor, i: tf.Tensor) -> Any:
    return _inner(x, i) + tf.reduce_sum(same(x))


def in_a_loop_on_the_host(x: tf.Tensor, i: tf.Tensor) -> Any:
    y = tf.constant(0.0)
    for j in tf.range(i):
        y += tf.reduce_sum(same(x) * 2.0) + tf.exp(x * 0.1)[0, j]
    return y


def its_gradient(x: tf.Tensor, i: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = sliced(x, i) + indexed(x, i)
    return tape.gradient(y, x)


def gradient_of_a_loop(x: tf.Tensor, i: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = in_a_loop_on_the_host(x, i)
    return tape.gradient(y, x)


PROGRAMS = [
    sliced,
    indexed,
    index_from_python,
    ranged,
    reshaped,
    tiled,
    along_an_axis,
    in_a_branch,
    in_a_call,
    in_a_loop_on_the_host,
    its_gradient,
    gradient_of_a_loop,
]


def rows_of(function: Any) -> list[hostcall.ClusterStats]:
    found = hostcall.stats().compilations
    names = [c.function_def.signature.name for c in function._list_all_concrete_functions()]
    return [row for row in found if row.cluster.startswith(tuple(f"{name}__" for name in names))]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_computes_what_graph_mode_does(program: Callable[..., Any]) -> None:
    function, expected = jitted(program), plain(program)
    for i in (1, 2, 3, 4, 2):
        args = X + float(i) * 0.01, tf.constant(i)
        if program is reshaped:
            args = X + float(i), tf.constant([1, 2, 3, 4, 6][i - 1])
        np.testing.assert_allclose(function(*args), expected(*args), rtol=1e-5)


@pytest.mark.parametrize("program", [indexed, index_from_python, in_a_call, in_a_branch])
def test_values_that_differ_make_no_new_programs(program: Callable[..., Any]) -> None:
    function = jitted(program)
    function(X, tf.constant(1))
    hostcall.stats(reset=True)
    for i in (2, 3, 4):
        args = X + float(i) * 0.01, tf.constant(i)
        np.testing.assert_allclose(function(*args), plain(program)(*args), rtol=1e-5)
    # In the branch, what is taken of the array has another size each time.
    of_sizes = [row for row in rows_of(function) if "true" in row.cluster]
    others = [row for row in rows_of(function) if "true" not in row.cluster]
    assert {(row.compilations, row.uncompiled_runs) for row in others} == {(0, 0)}
    assert all(row.compilations == 0 for row in of_sizes)


def test_a_size_that_changes_leaves_the_rest_compiled() -> None:
    """The loop compiles its cluster for no index, though each iteration has another one."""
    function = jitted(in_a_loop_on_the_host)
    function(X, tf.constant(6))
    assert {(row.compilations, row.uncompiled_runs) for row in rows_of(function)} == {(1, 0)}


def test_explain_says_why() -> None:
    explanation = hostcall.explain(jitted(sliced), X, tf.constant(2))
    [op] = [op for op in explanation.host_ops if op.op == "Slice"]
    assert op.reason == (
        "XLA wants to know operand 'size' when it compiles, and it depends on data"
    )
    assert "give it as a Python number" in op.advice


def test_what_follows_from_shapes_is_compiled() -> None:
    def program(x: tf.Tensor) -> Any:
        y = same(x)
        count = tf.shape(y)[0] * tf.shape(y)[1]
        return tf.reshape(y * 2.0, tf.stack([count])) + tf.cast(tf.range(count), tf.float32)

    explanation = hostcall.explain(jitted(program), X)
    assert not [op for op in explanation.host_ops if op.op in ("Reshape", "Range")]
    function = jitted(program)
    for i in range(3):
        np.testing.assert_allclose(function(X + float(i)), plain(program)(X + float(i)))
    assert {(row.compilations, row.uncompiled_runs) for row in rows_of(function)} == {(1, 0)}


def test_a_compiled_loop_stays_whole() -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> Any:
        y = tf.zeros([6])
        for j in tf.range(4):
            y += tf.roll(x[j], i, 0)
        return y + tf.reduce_sum(same(x))

    explanation = hostcall.explain(jitted(program), X, tf.constant(1))
    assert not [op for op in explanation.host_ops if "While" in op.op]
    np.testing.assert_allclose(
        jitted(program)(X, tf.constant(1)), plain(program)(X, tf.constant(1))
    )


def test_a_function_that_xla_takes_is_not_touched() -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> Any:
        return tf.slice(x, [0, 1], [4, i])

    function = jitted(program)
    np.testing.assert_array_equal(function(X, tf.constant(2)), X[:, 1:3])
    [explained] = hostcall.explain(function, X, tf.constant(2)).functions
    assert explained.mode == "compiled"
    assert rows_of(function) == []


@pytest.mark.parametrize("program", [sliced, indexed, index_from_python, in_a_call])
def test_an_index_out_of_bounds_is_the_error_of_graph_mode(program: Callable[..., Any]) -> None:
    function, expected = jitted(program), plain(program)
    function(X, tf.constant(1))
    actual = failure(function, X, tf.constant(9))
    assert type(actual) is type(failure(expected, X, tf.constant(9)))
    assert "out of bounds" in str(actual) or "Expected size" in str(actual)
    np.testing.assert_allclose(function(X, tf.constant(1)), expected(X, tf.constant(1)), rtol=1e-5)
