"""The same programs in JAX; apart, so that only the questions that compare with JAX load it."""

from collections.abc import Callable

import jax
import numpy as np

import hostcall.jax
from benchmarks.steps import Array, Function


def as_numpy(function: Function) -> Function:
    """Convert arguments to NumPy arrays; on JAX's arrays, NumPy's functions would run compiled."""
    return lambda v: function(np.asarray(v))


def one_call(function: Function, x: Array, from_array: bool = False) -> Callable[[], object]:
    """Return a run of a compiled function that calls a Python function by pure_callback."""
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    program = jax.jit(lambda v: jax.pure_callback(as_numpy(function), result, v))
    argument = x if from_array else jax.device_put(x)
    return lambda: program(argument).block_until_ready()


Call = Callable[[Function, jax.Array], jax.Array]


def by_pure_callback(function: Function, v: jax.Array) -> jax.Array:
    result: jax.Array = jax.pure_callback(as_numpy(function), v, v)
    return result


def by_hostcall(function: Function, v: jax.Array) -> jax.Array:
    result: jax.Array = hostcall.jax.call(function, v, v, pure=True)
    return result


def loop_of_calls(call: Call, function: Function, x: Array, count: int) -> Callable[[], object]:
    """Return a run of a compiled lax.fori_loop that calls a function in each iteration."""

    def step(_: jax.Array, v: jax.Array) -> jax.Array:
        return call(function, v)

    program = jax.jit(lambda v: jax.lax.fori_loop(0, count, step, v))
    argument = jax.device_put(x)
    return lambda: program(argument).block_until_ready()
