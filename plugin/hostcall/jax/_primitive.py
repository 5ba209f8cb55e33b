"""The primitive that stands for a call in JAX's programs. Its rules are in `_rules`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import dispatch as _dispatch
from jax._src.core import Primitive

from hostcall.jax import _values
from hostcall.jax._functions import Function

# Has several results. Outside of any program it runs as a program of its own.
call_p = Primitive("hostcall")
call_p.multiple_results = True
call_p.def_impl(functools.partial(_dispatch.apply_primitive, call_p))


def bind(
    function: Function,
    args: Sequence[Any],
    results: Sequence[jax.ShapeDtypeStruct],
    effect: Any | None,
    vmap_method: str | None,
    joint: tuple[str, ...] | None = None,
) -> list[Any]:
    """The results of a call, a list of arrays or tracers.

    Args:
      function: what is called.
      args: its flat arguments.
      results: its flat results.
      effect: None for a pure function, else one of those in `_effects`.
      vmap_method: as in `jax.pure_callback`.
      joint: of a call that devices make together, the mesh axes that its arrays are divided along;
        None where nobody says so. See `_joint`.
    """
    avals = tuple(_values.aval_of(result.shape, result.dtype) for result in results)
    called: list[Any] = call_p.bind(
        *args,
        function=function,
        result_avals=avals,
        effect=effect,
        vmap_method=vmap_method,
        joint=joint,
    )
    return called
