"""The same programs in JAX; apart, since JAX is loaded by the questions that compare with it."""

from collections.abc import Callable

import jax
import numpy as np

from benchmarks.programs import Array, Function


def as_numpy(function: Function) -> Function:
    """JAX hands its own arrays to a callback, on which NumPy's functions would run compiled."""
    return lambda v: function(np.asarray(v))


def one_call(function: Function, x: Array) -> Callable[[], object]:
    """A compiled function that calls a Python function by pure_callback."""
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    program = jax.jit(lambda v: jax.pure_callback(as_numpy(function), result, v))
    argument = jax.device_put(x)
    return lambda: program(argument).block_until_ready()


def loop_of_calls(function: Function, x: Array, count: int) -> Callable[[], object]:
    """A compiled lax.fori_loop that calls it in each round."""
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)

    def step(_: jax.Array, v: jax.Array) -> jax.Array:
        return jax.pure_callback(as_numpy(function), result, v)

    program = jax.jit(lambda v: jax.lax.fori_loop(0, count, step, v))
    argument = jax.device_put(x)
    return lambda: program(argument).block_until_ready()
