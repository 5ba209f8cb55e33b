"""The differences between JAX versions in what hostcall uses.

A function that hostcall replaces may have other parameters in another version. Those may mean
something else, so hostcall then leaves the function alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
from jax._src.interpreters import mlir as _private_mlir
from jax.interpreters import mlir as _mlir

_MORE = " ..."  # ends a list of tried parameters after which any others may follow


def misfit(target: str, stock: object, wrap: Callable[[Any], Any], tried: Sequence[str]) -> str:
    """Return the reason why a function of JAX's cannot be replaced, or "" if it can."""
    # `stock` is the function, or the entry of a lowering rule, of which `wrap` makes hostcall's.
    # `tried` are the parameter names in each tested version; empty if `stock` is not a function.
    found = _parameters(stock)
    if tried and not any(_is_as(found, one) for one in tried):
        known = " or ".join(f"({one.replace(' ', ', ')})" for one in tried)
        return f"{target} with other parameters, ({found.replace(' ', ', ')}) for {known}"
    try:
        wrap(stock)
    except Exception as error:
        return f"another {target}, which cannot be replaced ({type(error).__name__}: {error})"
    return ""


def _parameters(stock: Any) -> str:
    try:
        return " ".join(inspect.signature(getattr(stock, "rule", stock)).parameters)
    except (TypeError, ValueError):
        return "unknown"


def _is_as(found: str, tried: str) -> bool:
    if tried.endswith(_MORE):
        return f"{found} ".startswith(f"{tried.removesuffix(_MORE)} ")
    return found == tried


_SETS_SHARDING_IN_A_MODULE = len(inspect.signature(_private_mlir.set_sharding).parameters) > 2
_TYPES_ARE_OF_A_MODULE = len(inspect.signature(_mlir.aval_to_ir_type).parameters) > 1


def type_of(module_context: Any, aval: Any) -> object:
    """Return the MLIR type of an abstract value. JAX before 0.10 takes no module for it."""
    module = (module_context,) if _TYPES_ARE_OF_A_MODULE else ()
    return _mlir.aval_to_ir_type(*module, aval)


def set_sharding(module_context: Any, op: object, sharding: Any) -> None:
    """Set the sharding of the results of an op. JAX before 0.9 takes no module for it."""
    module = (module_context,) if _SETS_SHARDING_IN_A_MODULE else ()
    _private_mlir.set_sharding(*module, op, sharding)


def varying_as(arguments: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Return results which vary along the mesh axes that arguments vary along, in `shard_map`."""
    # Elsewhere, and with check_vma=False, there are none.
    axes = {axis for one in arguments for axis in _axes_along_which(jax.typeof(one))}
    return [_varying(result, tuple(axes)) for result in results] if axes else list(results)


def _axes_along_which(aval: Any) -> Collection[str]:
    """Return the axes along which a value varies. JAX before 0.10 has them under another name."""
    kind = getattr(aval, "manual_axis_type", None)
    axes: Collection[str] = getattr(aval, "vma", ()) if kind is None else kind.varying
    return axes


def _varying(value: Any, axes: tuple[str, ...]) -> jax.Array:
    """Return a value as one that varies along `axes`. JAX before 0.8.2 has another name for it."""
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, axes, to="varying")
    return jax.lax.pvary(value, axes)


def parent_of(op: Any) -> Any | None:
    """Return the parent of an op, or None. From JAX 0.11 on a function may be in no module yet."""
    try:
        return op.parent
    except ValueError:
        return None
