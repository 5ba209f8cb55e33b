"""The cost of JAX calls outside of programs, on arrays of several devices, and of a first call."""

import contextlib
import time
from collections.abc import Callable
from functools import partial

import jax
import numpy as np

import hostcall.jax
from benchmarks.jax_programs import Call, as_numpy, by_hostcall, by_pure_callback
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Array, add_one
from benchmarks.timing import FULL, Effort, Run, Samples, measure, measure_once_a_round

TITLE = "Calls of pure functions in JAX"

DEVICES = 8
SIZES = {"4 KiB": 1 << 10, "64 KiB": 1 << 14, "1 MiB": 1 << 18, "4 MiB": 1 << 20, "32 MiB": 1 << 23}
WAYS = {"jax.pure_callback": by_pure_callback, "hostcall.jax.call": by_hostcall}
PEER, OURS = WAYS


def outside(call: Call, x: jax.Array) -> Run:
    """Return a run of a call outside of any program."""
    function = as_numpy(add_one)
    declared = jax.ShapeDtypeStruct(x.shape, x.dtype)
    if call is by_pure_callback:
        return lambda: jax.pure_callback(function, declared, x).block_until_ready()
    return lambda: hostcall.jax.call(function, declared, x, pure=True).block_until_ready()


def divided(call: Call, size: int) -> Run:
    """Return a run of a program whose arrays XLA divides among all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    by_rows = jax.sharding.NamedSharding(mesh, jax.P("x"))
    x = jax.device_put(np.ones(max(size, jax.device_count()), np.float32), by_rows)
    program = jax.jit(lambda v: call(add_one, v) * 2, out_shardings=by_rows)
    return lambda: program(x).block_until_ready()


def first(call: Call, x: Array) -> float:
    """Return the seconds of the first call of a new program."""
    program = jax.jit(lambda v: call(lambda a: add_one(a), v) * 2)
    start = time.perf_counter()
    program(x).block_until_ready()
    return time.perf_counter() - start


def rows_of(name: str, measured: Callable[..., dict[str, Samples]], make: object) -> list[Row]:
    """Return the row of JAX's way, and that of ours beside it."""
    samples = measured({f"{way}, {name}": make(call) for way, call in WAYS.items()})  # type: ignore[operator]
    peer, ours = f"{PEER}, {name}", f"{OURS}, {name}"
    return [alone(peer, samples[peer]), beside(samples, ours, peer, at_most(0.8))]


def main(effort: Effort = FULL) -> list[Row]:
    with contextlib.suppress(RuntimeError):  # another question has used JAX in this process
        jax.config.update("jax_num_cpu_devices", DEVICES)
    x = jax.device_put(np.float32(1))
    steady, once = partial(measure, effort=effort), partial(measure_once_a_round, effort=effort)
    largest = effort.of(max(SIZES.values()))
    rows = rows_of("outside of programs", steady, lambda call: outside(call, x))
    for label, size in SIZES.items():
        if size <= largest:
            name = f"{label} on {DEVICES} devices"
            rows += rows_of(name, steady, lambda call, size=size: divided(call, size))
    return rows + rows_of(
        "a first call", once, lambda call: partial(first, call, np.ones(4, np.float32))
    )
