"""`hostcall.bind`: when bound functions leave the short way."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.bound import SPEC, X, cube, program, usual_calls

__all__ = ["usual_calls"]  # a fixture


@pytest.mark.parametrize("jit", [False, True])
def test_tapes_and_accumulators_record_bound_calls(jit: bool) -> None:
    bound = hostcall.bind(tf.function(cube, jit_compile=jit), SPEC)
    x, variable = tf.constant(X), tf.Variable(X)
    np.testing.assert_allclose(bound(x), X**3, rtol=1e-6)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = bound(x)
        slope = tape.gradient(y, x)
    np.testing.assert_allclose(slope, 3 * X**2, rtol=1e-6)
    np.testing.assert_allclose(outer.gradient(slope, x), 6 * X, rtol=1e-6)
    with tf.GradientTape() as tape:
        y = bound(variable)
    np.testing.assert_allclose(tape.gradient(y, variable), 3 * X**2, rtol=1e-6)
    polynomial = hostcall.bind(tf.function(lambda x: x**3, jit_compile=jit), SPEC)
    with tf.autodiff.ForwardAccumulator(x, tf.ones([3])) as accumulator:
        y = polynomial(x)
    np.testing.assert_allclose(accumulator.jvp(y), 3 * X**2, rtol=1e-6)
    np.testing.assert_allclose(bound(x), X**3, rtol=1e-6)


def test_tapes_inside_and_watched_variables_work() -> None:
    variable = tf.Variable(X)

    def slope(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = cube(x) * variable
        return tape.gradient(y, x)

    bound = hostcall.bind(slope, SPEC)
    for _ in range(2):
        np.testing.assert_allclose(bound(X), 3 * X**3, rtol=1e-6)
    with tf.GradientTape() as tape:
        bound(X)
    assert [v is variable for v in tape.watched_variables()] == [True]


def test_bound_calls_go_into_graphs() -> None:
    bound = hostcall.bind(program, tf.TensorSpec([None], tf.float32))
    for jit in (False, True):
        outer = tf.function(lambda x: bound(x) + bound([1.0]), jit_compile=jit)
        np.testing.assert_array_equal(outer(X), (X + 1) * 2 + 4)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(bound(tf.constant(X))), (X + 1) * 2)


def test_calls_in_init_scope_and_asynchronous_ones_take_the_usual_way(
    usual_calls: list[Any],
) -> None:
    bound = hostcall.bind(program, SPEC)

    @tf.function
    def outer() -> tf.Tensor:
        with tf.init_scope():
            inside = bound(X)
        return inside + 0.0

    np.testing.assert_array_equal(outer(), (X + 1) * 2)
    assert len(usual_calls) == 1
    tf.config.experimental.set_synchronous_execution(False)
    try:
        np.testing.assert_array_equal(bound(X), (X + 1) * 2)
    finally:
        tf.config.experimental.set_synchronous_execution(True)
    assert len(usual_calls) == 2


def test_composite_tensors_take_the_usual_way() -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    bound = hostcall.bind(tf.function(lambda x: x * 2.0), ragged)
    assert bound(ragged).to_list() == [[2.0], [4.0, 6.0]]
    out = hostcall.bind(tf.function(tf.RaggedTensor.from_tensor), tf.TensorSpec([1, 2]))
    assert out(tf.ones([1, 2])).to_list() == [[1.0, 1.0]]
