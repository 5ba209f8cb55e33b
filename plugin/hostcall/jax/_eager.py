"""Calls outside of programs, each a program of its own: the like of a call is prepared once.

JAX finds the program of each such call by all that is known of the call, and runs one
that reaches Python by the longest of its ways. A call that is like an earlier one, in its line of
the user's code, its function, options, and arrays' shapes, finds that one's program here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import util as _util

from hostcall.jax import _names, _values

# The shape and dtype of an argument.
Kind = tuple[tuple[int, ...], Any]


def kinds_of(leaves: Sequence[Any]) -> tuple[Kind, ...] | None:
    """Return the kinds of the arguments of a call outside of programs; None for any other call."""
    if not _names.has(_names.EAGER) or _values.is_tracing():
        return None
    # Under these, JAX runs a program once more, op by op, to find what made a NaN.
    if jax.config.jax_debug_nans or jax.config.jax_debug_infs:
        return None
    kinds = [kind for kind in map(_kind_of, leaves) if kind is not None]
    return tuple(kinds) if len(kinds) == len(leaves) else None


def _kind_of(value: Any) -> Kind | None:
    """Return the kind of an array, or None for what JAX converts, keys, and divided arrays."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        if not isinstance(value.dtype, np.dtype) or len(value.sharding.device_set) > 1:
            return None
    elif not _values.is_taken(value):
        return None
    return value.shape, value.dtype


def structs_of(result: Any) -> tuple[tuple[jax.ShapeDtypeStruct, ...], Any] | None:
    """Return a declared result as leaves and a structure, which have a hash; None if it has not."""
    leaves, tree = jax.tree.flatten(result)
    if any(type(leaf) is not jax.ShapeDtypeStruct for leaf in leaves):
        return None
    return tuple(leaves), tree


class Call(NamedTuple):
    """A call that is ready to be bound: its primitive with all parameters, and its results."""

    primitive: Any
    params: dict[str, Any]
    results: Any  # the structure


class EagerProgram:
    """The program of a call, compiled for each placement of the arguments."""

    def __init__(self, call: Call, kinds: Sequence[Kind]) -> None:
        self._call = call
        self._kinds = kinds
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def run(self, arrays: Sequence[Any]) -> Any:
        """Return the results for arrays of the program's kinds."""
        places = tuple(map(_place_of, arrays))
        compiled = self._compiled.get(places)
        if compiled is None:
            compiled = self._compiled[places] = self._compile(places)
        return self._call.results.unflatten(compiled.unsafe_call(*arrays))

    def _compile(self, places: Sequence[Any]) -> Any:
        primitive, params, _ = self._call

        def program(*args: Any) -> Any:
            return primitive.bind(*args, **params)

        program.__name__ = program.__qualname__ = primitive.name
        structs = [
            jax.ShapeDtypeStruct(*kind, sharding=place)
            for kind, place in zip(self._kinds, places, strict=True)
        ]
        with jax.disable_jit(False):
            return jax.jit(program).lower(*structs).compile()._executable


def _place_of(array: Any) -> Any:
    """Return where an array has to stay, or None for one that JAX moves to the program."""
    return array.sharding if isinstance(array, jax.Array) and array.committed else None


def once(prepare: Callable[..., EagerProgram]) -> Callable[..., EagerProgram]:
    """Keep what a function returns, by its arguments and JAX's settings, as JAX keeps programs."""
    kept: Callable[..., EagerProgram] = _util.cache()(prepare)
    return kept
