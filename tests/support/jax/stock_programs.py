"""JAX programs without a call of hostcall's, which reach everything of JAX's that it replaces.

    IMPORTED="MODULE..." python stock_programs.py

imports the modules and prints, as JSON, what becomes of each program: the texts of its jaxpr, of
its lowering with all source places, of what XLA makes of it, its results, and how it is run.
"""

import importlib
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

X = np.arange(1, 5, dtype=np.float32)
FLAGS = X > 2


def branches(flag: Any, x: Any) -> Any:
    return lax.cond(flag, jnp.sin, jnp.cos, x)


def loop(x: Any) -> Any:
    return lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, jnp.sin(v[1]) * x), (0, x))[1]


def scan(x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        return carry * jnp.sin(x), jnp.cos(x)  # of which nothing depends on the carry

    return lax.scan(step, x, None, length=3)[0]


def scatter(x: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    return lax.scatter_apply(x, jnp.array([[1]]), jnp.sin, numbers, update_shape=(1,))


def pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "VALID").sum()


def largest(a: Any, b: Any) -> Any:
    return jnp.where(a > b, a, b)


def doubled_by_callback(x: Any) -> Any:
    return jax.pure_callback(lambda v: 2 * v, jax.typeof(x), x, vmap_method="sequential")


def effects(x: Any) -> Any:
    def step(carry: Any, value: Any) -> Any:
        jax.debug.callback(lambda _: None, value, ordered=True)
        jax.experimental.io_callback(lambda _: None, None, value)
        return carry + value, lax.cond(value > 1, doubled_by_callback, jnp.sin, value)

    return lax.scan(step, x[0], x)


@jax.custom_batching.custom_vmap
def unbatchable(x: Any) -> Any:
    return x


@unbatchable.def_vmap
def _refuse(*_: Any) -> Any:
    raise ValueError("it cannot be batched")


def raising_loop(x: Any) -> Any:
    return lax.while_loop(lambda v: v < 5, lambda v: 2 * unbatchable(v), x)


def refused_in_a_loop(x: Any) -> Any:
    print_and_double = lambda v: (jax.experimental.io_callback(lambda: None, None), v * 2)[1]  # noqa: E731
    return lax.cond(x > 2, print_and_double, jnp.sin, x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a batch of branches": (jax.vmap(branches), (FLAGS, X)),
    "branches of a batch": (jax.vmap(branches, (None, 0)), (True, X)),
    "a batch of loops": (jax.vmap(loop), (X,)),
    "loops that end at different times": (
        jax.vmap(lambda x: lax.while_loop(lambda v: v < 5, lambda v: v * 2, x)),
        (X,),
    ),
    "a loop": (loop, (X[0],)),
    "a loop in a loop": (lambda x: lax.fori_loop(0, 3, lambda _, v: loop(v), x), (X[0],)),
    "a derivative forward": (lambda x: jax.jvp(loop, (x,), (x,)), (X[0],)),
    "a linear loop": (lambda x: jax.linearize(loop, x)[1](x), (X[0],)),
    "a partly known loop": (
        lambda x: jax.linearize(lambda v: lax.fori_loop(0, 3, lambda i, w: w * i, v), x)[1](x),
        (X[0],),
    ),
    "a derivative of a scan": (jax.grad(scan), (X[0],)),
    "a derivative of branches": (jax.grad(lambda x: branches(x > 2, x)), (X[0],)),
    "a rematerialized scan": (jax.grad(jax.checkpoint(scan)), (X[0],)),
    "a reduction": (lambda x: lax.reduce(x, jnp.float32(0), largest, (0,)), (X,)),
    "a reduction by a compiled function": (
        lambda x: lax.reduce(x, jnp.float32(0), jax.jit(largest), (0,)),
        (X,),
    ),
    "a pool": (pool, (X,)),
    "a pool of any function": (
        lambda x: lax.reduce_window(x, jnp.float32(0), largest, (2,), (1,), "VALID"),
        (X,),
    ),
    "a derivative of a pool": (jax.grad(pool), (X,)),
    "a scatter": (scatter, (X,)),
    "a scatter that adds": (lambda x: x.at[jnp.array([1, 1])].add(2.0), (X,)),
    "JAX's own callbacks": (effects, (X,)),
    "JAX's own callbacks, batched": (jax.vmap(doubled_by_callback), (X,)),
    "an error in a batch of branches": (
        jax.vmap(lambda flag, x: lax.cond(flag, unbatchable, jnp.cos, x)),
        (FLAGS, X),
    ),
    "an error in a batch of loops": (jax.vmap(raising_loop), (X,)),
    "an io_callback in a batch of branches": (jax.vmap(refused_in_a_loop), (X,)),
}


def described(program: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, str]:
    """Return the forms and the results of a program, each as a text."""
    try:
        jitted = jax.jit(program)
        lowered = jitted.lower(*args)
        compiled = lowered.compile()
        results = jitted(*args)
        jitted(*args)
        return {
            "jaxpr": str(jitted.trace(*args).jaxpr),
            "lowered": lowered.as_text(debug_info=True),
            "compiled": compiled.as_text(),
            "results": str(jax.tree.map(np.asarray, results)),
            "way": type(compiled._executable.unsafe_call).__qualname__,
            "programs in the fast path": str(jitted._cache_size()),
        }
    except Exception as error:
        return {"error": "".join(traceback.format_exception(error))}


def main(modules: list[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    print(json.dumps({name: described(*program) for name, program in PROGRAMS.items()}))  # noqa: T201


if __name__ == "__main__":
    main(os.environ["IMPORTED"].split())
