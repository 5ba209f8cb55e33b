"""The primitive that stands for a call in JAX's programs. Its rules are in `_rules`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import dispatch as _dispatch
from jax._src.core import Primitive

from hostcall.jax import _keys, _values
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
    data = [_keys.struct_of_data(result) for result in results]
    avals = tuple(_values.aval_of(struct.shape, struct.dtype) for struct in data)
    called: list[Any] = call_p.bind(
        *map(_keys.data_of, args),
        function=function,
        result_avals=avals,
        effect=effect,
        vmap_method=vmap_method,
        joint=joint,
    )
    return [_keys.of_data(v, result.dtype) for v, result in zip(called, results, strict=True)]
