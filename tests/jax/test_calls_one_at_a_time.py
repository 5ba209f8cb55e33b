"""Calls run one at a time where nobody lets them overlap.

The large programs have as many and as large values as XLA wants for its own threads.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.jax.helpers import X
from tests.support.threads import Alone

LARGE = jnp.arange(100_000, dtype=jnp.float32)
CALLS = 12


def pure(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    return lambda x: hostcall.jax.call(function, x, x, pure=True, **how)


def effect(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: hostcall.jax.call(function, x, x)


def callback(function: Callable[..., Any]) -> Callable[..., Any]:
    return hostcall.callback(function, result=lambda x: x, stateful=False)


each_way = pytest.mark.parametrize("way", [pure, effect, callback])
each_size = pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])


def several(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: [call(x + i) for i in range(CALLS)]


def in_loops(call: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: Any) -> Any:
        step = lambda c, i: (c + call(x * i), None)  # noqa: E731
        y = jax.lax.scan(step, x, jnp.arange(8, dtype=x.dtype))[0]
        return [y, *[call(x - i) for i in range(4)]]

    return program


@each_size
@each_way
@pytest.mark.parametrize("program", [several, in_loops])
def test_calls_do_not_overlap(program: Any, way: Any, x: Any) -> None:
    alone = Alone()
    function = jax.jit(program(way(alone)))
    for _ in range(3):
        jax.block_until_ready(function(x))
    assert (alone.overlaps, alone.calls) == (0, 3 * CALLS)


def test_what_has_an_order_or_is_not_waited_for_is_refused() -> None:
    with pytest.raises(ValueError, match=r"concurrent=True .* pure=True"):
        hostcall.jax.call(np.sin, X, X, ordered=True, concurrent=True)
    with pytest.raises(ValueError, match="concurrent=True lets calls overlap"):
        hostcall.jax.call(np.sin, None, X, wait=False, concurrent=True)
