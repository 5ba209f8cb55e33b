"""Where JAX's versions differ in what hostcall asks of them: one function a difference."""

from __future__ import annotations

import inspect
from typing import Any

from jax._src.interpreters import mlir as _private_mlir
from jax.interpreters import mlir as _mlir

_SETS_SHARDING_IN_A_MODULE = len(inspect.signature(_private_mlir.set_sharding).parameters) > 2

_TYPES_ARE_OF_A_MODULE = len(inspect.signature(_mlir.aval_to_ir_type).parameters) > 1


def type_of(module_context: Any, aval: Any) -> Any:
    """The type of MLIR's for an abstract value. Before 0.10: whatever the module."""
    module = (module_context,) if _TYPES_ARE_OF_A_MODULE else ()
    return _mlir.aval_to_ir_type(*module, aval)


def set_sharding(module_context: Any, op: Any, sharding: Any) -> None:
    """Says which sharding the results of an op of a module have. Before 0.9: of any module."""
    module = (module_context,) if _SETS_SHARDING_IN_A_MODULE else ()
    _private_mlir.set_sharding(*module, op, sharding)


def parent_of(op: Any) -> Any | None:
    """What an op is in, or None. From 0.11 on: also for functions that are in no module yet."""
    try:
        return op.parent
    except ValueError:
        return None
