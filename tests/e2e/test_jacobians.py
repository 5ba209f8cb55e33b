"""Jacobians through py_functions and callbacks: one call for all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import MODES

XS = tf.constant([[1.0, 2.0], [3.0, 5.0], [7.0, 4.0]])
each_mode = pytest.mark.parametrize("mode", MODES)
each_pure = pytest.mark.parametrize("pure", [False, True])


def like(x: Any, *_: Any) -> Any:
    return tf.TensorSpec(x.shape, x.dtype)


class Cube:
    """x³ + a sum over the last axis, and how often it is computed."""

    def __init__(self, pure: bool = False) -> None:
        self.calls = 0
        hostcall.declare(self, result=like, pure=pure)

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return self.of(x)

    def of(self, x: Any) -> Any:
        return x * x * x + tf.reduce_sum(x, -1, keepdims=True)

    def op(self, x: Any) -> Any:
        return tf.py_function(self, [x], tf.float32)


def jacobian(function: Any, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.jacobian(y, x)


def batch_jacobian(function: Any, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.batch_jacobian(y, x)


@each_mode
@each_pure
@pytest.mark.parametrize("way", [jacobian, batch_jacobian])
def test_of_a_py_function(mode: Any, pure: bool, way: Any) -> None:
    cube = Cube(pure)
    expected = way(cube.of, XS)
    np.testing.assert_allclose(mode(lambda x: way(cube.op, x))(XS), expected)
    assert cube.calls == (2 if pure else 1)


@pytest.mark.parametrize("way", [jacobian, batch_jacobian])
def test_executing_eagerly(way: Any) -> None:
    cube = Cube()
    np.testing.assert_allclose(way(cube.op, XS), way(cube.of, XS))
    assert cube.calls == 1


@each_mode
def test_of_a_function_that_has_been_called_under_a_tape(mode: Any) -> None:
    cube = Cube()
    np.testing.assert_allclose(jacobian(mode(cube.op), XS), jacobian(cube.of, XS))
    assert cube.calls == 1


@each_mode
@each_pure
def test_of_each_element_of_a_batch(mode: Any, pure: bool) -> None:
    cube = Cube(pure)
    hostcall.declare(cube, result=like, pure=pure, vmap_method="expand_dims")
    program = mode(lambda xs: tf.vectorized_map(lambda x: jacobian(cube.op, x), xs))
    np.testing.assert_allclose(program(XS), [jacobian(cube.of, x) for x in XS])
    assert cube.calls == (2 if pure else 1)


@each_mode
def test_of_a_mapped_function(mode: Any) -> None:
    cube = Cube()
    hostcall.declare(cube, result=like, vmap_method="expand_dims")
    program = mode(lambda xs: jacobian(lambda x: tf.vectorized_map(cube.op, x), xs))
    np.testing.assert_allclose(program(XS), jacobian(cube.of, XS))
    assert cube.calls == 1


@each_mode
@each_pure
def test_second_derivatives(mode: Any, pure: bool) -> None:
    cube = Cube(pure)

    def hessian(function: Any, x: Any) -> Any:
        def gradient(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        return jacobian(gradient, x)

    np.testing.assert_allclose(mode(lambda x: hessian(cube.op, x))(XS), hessian(cube.of, XS))


@each_mode
def test_derivatives_of_a_jacobian(mode: Any) -> None:
    cube = Cube()
    weights = tf.reshape(tf.range(36.0), [3, 2, 3, 2])

    def program(function: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(jacobian(function, x) * weights)
        return tape.gradient(total, x)

    np.testing.assert_allclose(mode(lambda x: program(cube.op, x))(XS), program(cube.of, XS))


@each_mode
def test_second_derivatives_of_each_element(mode: Any) -> None:
    cube = Cube()
    hostcall.declare(cube, result=like, vmap_method="expand_dims")

    def second(function: Any, x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            gradient = inner.gradient(y, x)
        return outer.gradient(gradient, x)

    program = mode(lambda xs: tf.vectorized_map(lambda x: second(cube.op, x), xs))
    np.testing.assert_allclose(program(XS), [second(cube.of, x) for x in XS])
    assert cube.calls == 1


@each_mode
@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_of_a_callback_with_a_gradient(mode: Any, method: str) -> None:
    shapes: list[Any] = []

    def back(x: Any, dy: Any) -> Any:
        shapes.append((x.shape, dy.shape))
        return 3 * x * x * dy

    of_gradient = hostcall.callback(back, result=like, vmap_method=method)
    call = hostcall.callback(lambda x: x**3, result=like, grad=lambda i, r, u: of_gradient(i[0], u))
    np.testing.assert_allclose(
        mode(lambda x: jacobian(call, x))(XS[0]), jacobian(lambda x: x**3, XS[0])
    )
    expected = {
        "sequential": [((2,), (2,))] * 2,
        "expand_dims": [((1, 2), (2, 2))],
        "broadcast_all": [((2, 2), (2, 2))],
    }
    assert shapes == expected[method]
