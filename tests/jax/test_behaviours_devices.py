"""Tests that our callbacks keep the promises of JAX's own on several devices."""

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.installed import TENSORFLOW

# All of this runs in a process of two devices.
PREPARATION = 'import os; os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"'
pytestmark = pytest.mark.runs_in("worker", limit=60.0)

call = hostcall.jax.call
P = jax.sharding.PartitionSpec
X = np.arange(4, dtype=np.float32)


def on_each(function: Any, **options: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(1, 2), ("j", "i"))
    return jax.shard_map(function, mesh=mesh, in_specs=P("i"), out_specs=P("i"), **options)


def doubled(x: Any, **options: Any) -> Any:
    return call(lambda v: v * 2, x, x, **options)


def test_pmap() -> None:
    for options in ({}, {"pure": True}, {"ordered": True}):
        y = jax.pmap(lambda x, o=options: doubled(x, **o))(X[:2])
        np.testing.assert_array_equal(y, 2 * X[:2])


def test_pmap_of_a_loop() -> None:
    log: list[int] = []

    def iteration(i: Any) -> Any:
        call(lambda v: log.append(int(v)), None, i)
        return i + 1

    jax.pmap(lambda i: lax.while_loop(lambda i: i < 3, iteration, i))(jnp.arange(2))
    jax.effects_barrier()
    assert sorted(log) == [0, 1, 1, 2, 2]


def test_shard_map() -> None:
    two = jax.jit(on_each(lambda x: call(lambda v: (v + 1, v * 2), (x, x), x)))
    for y, expected in zip((*two(X), on_each(doubled)(X)), (X + 1, X * 2, X * 2), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.skipif(not TENSORFLOW, reason="about both frameworks")
def test_shard_map_of_a_tensorflow_function() -> None:
    import tensorflow as tf

    shapes: list[Any] = []

    def cos(v: Any) -> Any:
        shapes.append(v.shape)
        return np.cos(v)

    def function(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(cos, [x], x.dtype), x.shape)

    called = hostcall.jax.from_tf(tf.function(function))
    y = jax.jit(on_each(called, check_vma=False))(X)
    assert len(y.sharding.device_set) == 2
    np.testing.assert_allclose(y, np.cos(X), rtol=1e-6)
    assert shapes == [(2,), (2,)]


def test_order_on_each_device() -> None:
    log = collections.defaultdict(list)

    def program(i: Any, x: Any) -> Any:
        for y in (x, x + 1):
            call(lambda i, v: log[int(i[0])].append(v.tolist()), None, i, y, ordered=True)
        return x

    jax.jit(on_each(program))(np.arange(2), np.arange(4))
    jax.effects_barrier()
    assert log == {0: [[0, 1], [1, 2]], 1: [[2, 3], [3, 4]]}


def test_order_across_devices() -> None:
    log: list[float] = []

    def tell(x: Any) -> None:
        call(lambda v: log.append(float(v)), None, x, ordered=True)

    slow = jax.jit(lambda x: tell((x @ x).sum()))
    quick = jax.jit(tell)
    x = jax.device_put(jnp.ones([200, 200]), jax.devices()[0])
    y = jax.device_put(3.0, jax.devices()[1])
    for _ in range(3):
        slow(x)
        quick(y)
    jax.effects_barrier()
    assert log == [200.0**3, 3.0] * 3


def test_ordered_calls_on_two_devices_and_then_on_one() -> None:
    log: list[Any] = []

    def program(x: Any) -> Any:
        return [call(lambda v: log.append(v.shape), (), x, ordered=True), x][1]

    for run in (jax.jit(on_each(program)), program, jax.jit(program)):
        run(X)
    jax.effects_barrier()
    assert log == [(2,), (2,), (4,), (4,)]


def test_arrays_that_xla_divides() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
    x = jax.device_put(X, jax.NamedSharding(mesh, P("i")))
    shapes: list[Any] = []

    def seen(v: Any) -> Any:
        shapes.append(v.shape)
        return v * 2

    np.testing.assert_array_equal(jax.jit(lambda x: call(seen, x, x, pure=True) + 1)(x), X * 2 + 1)
    assert set(shapes) == {(4,)}
    for ordered in (False, True):
        with pytest.raises(NotImplementedError, match=r"in jax\.shard_map"):
            jax.jit(lambda x, o=ordered: doubled(x, ordered=o))(x)


def test_what_only_some_axes_are_divided_of_by_hand() -> None:
    with pytest.raises(NotImplementedError, match="all mesh axes are partitioned manually"):
        jax.jit(on_each(doubled, axis_names={"i"}))(X)
