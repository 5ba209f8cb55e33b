"""Programs for two devices, for a process that has two and says what each of them returns.

It also keeps a cache on disk, which programs with callbacks must stay out of.
"""

import collections
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hostcall.jax

CHECKS: dict[str, Callable[[], Any]] = {}

call = hostcall.jax.call
P = jax.sharding.PartitionSpec
MESH = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
X = np.arange(4, dtype=np.float32)


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    CHECKS[function.__name__] = function
    return function


def on_each(function: Any, **options: Any) -> Any:
    return jax.jit(jax.shard_map(function, mesh=MESH, in_specs=P("i"), out_specs=P("i"), **options))


def doubled(x: Any, **options: Any) -> Any:
    return call(lambda v: v * 2, x, x, **options)


def refusal(function: Any, *args: Any) -> str:
    try:
        jax.block_until_ready(function(*args))
    except NotImplementedError as error:
        return str(error)
    return "nothing was raised"


@check
def pmap() -> Any:
    options: Any = ({}, {"pure": True}, {"ordered": True})
    return [jax.pmap(lambda x, o=o: doubled(x, **o))(X[:2]).tolist() for o in options]


@check
def pmap_of_a_loop() -> Any:
    log: list[int] = []

    def iteration(i: Any) -> Any:
        call(lambda v: log.append(int(v)), None, i)
        return i + 1

    jax.pmap(lambda i: lax.while_loop(lambda i: i < 3, iteration, i))(jnp.arange(2))
    jax.effects_barrier()
    return sorted(log)


@check
def shard_map() -> Any:
    two = on_each(lambda x: call(lambda v: (v + 1, v * 2), (x, x), x))
    eager = jax.shard_map(doubled, mesh=MESH, in_specs=P("i"), out_specs=P("i"))
    return [y.tolist() for y in (*two(X), eager(X))]


@check
def order_on_each_device() -> Any:
    log = collections.defaultdict(list)

    def program(i: Any, x: Any) -> Any:
        for y in (x, x + 1):
            call(lambda i, v: log[int(i[0])].append(v.tolist()), None, i, y, ordered=True)
        return x

    on_each(program)(np.arange(2), np.arange(4))
    jax.effects_barrier()
    return [log[0], log[1]]


@check
def order_across_devices() -> Any:
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
    return log


@check
def ordered_on_two_devices_and_then_on_one() -> Any:
    log: list[Any] = []

    def program(x: Any) -> Any:
        return [call(lambda v: log.append(v.shape), (), x, ordered=True), x][1]

    on_each(program)(X)
    program(X)
    jax.jit(program)(X)
    jax.effects_barrier()
    return log


@check
def divided_by_xla() -> Any:
    x = jax.device_put(X, jax.NamedSharding(MESH, P("i")))
    shapes: list[Any] = []

    def seen(v: Any) -> Any:
        shapes.append(v.shape)
        return v * 2

    pure = jax.jit(lambda x: call(seen, x, x, pure=True) + 1)(x).tolist()
    refused = [refusal(jax.jit(lambda x, o=o: doubled(x, ordered=o)), x) for o in (0, 1)]
    return [pure, set(shapes) == {(4,)}, *("in jax.shard_map" in r for r in refused)]


@check
def divided_by_xla_in_part() -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(1, 2), ("i", "j"))
    return refusal(
        jax.jit(
            jax.shard_map(doubled, mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={"i"})
        ),
        X,
    )


@check
def cache_on_disk() -> Any:
    results = []
    with tempfile.TemporaryDirectory() as directory:
        jax.config.update("jax_compilation_cache_dir", directory)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        for factor in (2, 3):
            function = functools.partial(np.multiply, np.float32(factor))
            program = jax.jit(lambda x, f=function: call(f, x, x, pure=True))
            results.append(program(X).tolist())
            jax.clear_caches()
        kept = os.listdir(directory)
        jax.jit(lambda x: x * 7)(X)
        return [*results, kept, bool(os.listdir(directory))]


def main() -> None:
    """Runs all, and writes what each returns as JSON."""
    sys.stdout.write(json.dumps({name: function() for name, function in CHECKS.items()}))
