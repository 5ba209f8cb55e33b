"""`vmap_method="map"`: a batch is divided among the workers of an executor."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from tests.support.helpers import MODES

XS = tf.reshape(tf.range(8.0), [4, 2])
W = tf.constant([10.0, 20.0])
each_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        yield executor


class Scaled:
    """x * w, and the shapes that it was called with."""

    def __init__(self) -> None:
        self.shapes: list[Any] = []

    def __call__(self, x: Any, w: Any) -> Any:
        self.shapes.append((x.shape, w.shape))
        return x * w


def like(x: Any, _: Any) -> Any:
    return tf.TensorSpec(x.shape, x.dtype)


@each_mode
def test_each_worker_gets_a_part(mode: Any, pool: Any) -> None:
    scaled = Scaled()
    call = hostcall.callback(scaled, result=like, executor=pool, vmap_method="map")
    program = mode(lambda xs, w: tf.vectorized_map(lambda x: call(x, w), xs))
    np.testing.assert_array_equal(program(XS, W), XS * W)
    assert scaled.shapes == [((2, 2), (1, 2))] * 2


@each_mode
def test_one_map_in_another(mode: Any, pool: Any) -> None:
    scaled = Scaled()
    call = hostcall.callback(scaled, result=like, executor=pool, vmap_method="map")

    def program(ws: Any) -> Any:
        return tf.vectorized_map(lambda w: tf.vectorized_map(lambda x: call(x, w), XS), ws)

    np.testing.assert_array_equal(mode(program)(tf.stack([W, 2 * W])), [XS * W, 2 * XS * W])
    assert scaled.shapes == [((1, 4, 2), (1, 1, 2))] * 2


@each_mode
def test_gradients(mode: Any, pool: Any) -> None:
    def grad(inputs: Any, _: Any, upstream: Any) -> Any:
        return call(upstream, inputs[1]), call(upstream, inputs[0])

    call = hostcall.callback(Scaled(), result=like, executor=pool, vmap_method="map", grad=grad)

    def program(xs: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([xs, w])
            total = tf.reduce_sum(tf.vectorized_map(lambda x: call(x, w), xs) * xs)
        return tape.gradient(total, [xs, w])

    of_xs, of_w = mode(program)(XS, W)
    np.testing.assert_allclose(of_xs, 2 * XS * W)
    np.testing.assert_allclose(of_w, tf.reduce_sum(XS * XS, 0))


def test_from_jax(pool: Any) -> None:
    xs, w = jnp.asarray(XS.numpy()), jnp.asarray(W.numpy())
    scaled = Scaled()
    call = hostcall.callback(scaled, result=like, executor=pool, vmap_method="map")
    program = jax.vmap(call, in_axes=(0, None))
    np.testing.assert_array_equal(jax.jit(program)(xs, w), XS * W)
    assert scaled.shapes == [((2, 2), (1, 2))] * 2

    def inner(x: Any, w: Any) -> Any:
        return hostcall.jax.call(scaled, x, x, w, executor=pool, pure=True, vmap_method="map")

    scaled.shapes.clear()
    nested = jax.vmap(jax.vmap(inner, in_axes=(0, None)), in_axes=(None, 0))
    np.testing.assert_array_equal(nested(xs, jnp.stack([w, 2 * w])), [XS * W, 2 * XS * W])
    assert scaled.shapes == [((1, 4, 2), (1, 1, 2))] * 2


def test_what_cannot_be_divided(pool: Any) -> None:
    with pytest.raises(ValueError, match="divides a batch among the workers of an executor"):
        hostcall.declare(lambda x: x, vmap_method="map")
    with pytest.raises(ValueError, match="divides a batch among the workers of an executor"):
        hostcall.jax.call(np.sin, W, W, pure=True, vmap_method="map")
    with pytest.raises(ValueError, match="its function tensors, which cannot be divided here"):
        hostcall.callback(lambda x: x, result=like, kind="eager", executor=pool, vmap_method="map")
