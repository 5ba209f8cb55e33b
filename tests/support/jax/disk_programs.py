"""Programs with calls in a process that keeps a cache on disk: which of them it finds there."""

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hostcall.jax

call = hostcall.jax.call

X = np.arange(4, dtype=np.float32)

made: list[float] = []


def negate(x: Any) -> Any:
    """Lies in a module under its name."""
    return -x


class Doubling:
    def __call__(self, x: Any) -> Any:
        return 2 * x


def note(x: Any) -> None:
    """The same, with a side effect."""
    made.append(float(np.sum(x)))


def _structured(pair: dict[str, Any]) -> Any:
    return pair["a"] + pair["b"]


def _of_a_branch(x: Any) -> Any:
    return jax.lax.cond(x[0] > 1, lambda: x, lambda: call(negate, x, x, pure=True))


def _in_a_loop(x: Any) -> Any:
    call(note, None, x, ordered=True)
    x = jax.lax.fori_loop(0, 3, lambda i, y: y + call(negate, y, y + i, pure=True), x)
    call(note, None, x, ordered=True)
    return x


def _beside(x: Any) -> Any:
    return sum(call(negate, x, x + i, pure=True, concurrent=True) for i in range(3))


def _called_twice(x: Any) -> Any:
    return [call(negate, x, x + i, pure=True) for i in range(2)]


def _local(x: Any) -> Any:
    def halve(x: Any) -> Any:
        return x / 2

    return call(halve, x, x, pure=True)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "pure": lambda x: call(negate, x, x, pure=True),
    "with a side effect": lambda x: call(note, None, x) or x + 1,
    "structures": lambda x: call(_structured, x, {"a": x, "b": 2 * x}, pure=True),
    "in a branch": _of_a_branch,
    "in a loop, in order": _in_a_loop,
    "called twice": _called_twice,
    "beside one another": _beside,
}

# Of functions that lie nowhere.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda x: call(lambda y: y / 2, x, x, pure=True),
    "object": lambda x: call(Doubling(), x, x, pure=True),
    "local": _local,
    "partial": lambda x: call(functools.partial(np.multiply, np.float32(2)), x, x, pure=True),
    "one of two": lambda x: call(negate, x, x, pure=True) + call(lambda y: y, x, x, pure=True),
}


def main(directory: str, names: list[str]) -> None:
    """Runs programs twice, with the cache in a directory.

    Writes, as JSON, for each program what it returns, what `note` has got, and whether it was found
    on disk.
    """
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    x = jnp.asarray(X)
    told = {}
    for name in names:
        program = jax.jit((PROGRAMS | OTHERS)[name])
        events.clear()
        made.clear()
        results = [jax.tree.map(lambda y: y.tolist(), program(x)) for _ in range(2)]
        jax.effects_barrier()
        told[name] = [*results, made.copy(), "/jax/compilation_cache/cache_hits" in events]
    sys.stdout.write(json.dumps(told))
