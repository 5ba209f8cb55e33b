"""Tests that our callbacks keep the promises of JAX's own on several devices."""

import collections
import functools
import os
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall.jax

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


def test_programs_with_callbacks_stay_out_of_the_cache_on_disk() -> None:
    with tempfile.TemporaryDirectory() as directory:
        jax.config.update("jax_compilation_cache_dir", directory)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        for factor in (2, 3):
            function = functools.partial(np.multiply, np.float32(factor))
            program = jax.jit(lambda x, f=function: call(f, x, x, pure=True))
            np.testing.assert_array_equal(program(X), factor * X)
            jax.clear_caches()
        assert os.listdir(directory) == []
        jax.jit(lambda x: x * 7)(X)
        assert os.listdir(directory)
