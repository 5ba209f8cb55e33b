"""JAX functions as exported programs, and those as ops of TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax


def export(jitted: Any, rules: dict[Any, Callable[..., Any]], target: str) -> Callable[..., Any]:
    """`jax.export.export` for CPUs, with lowering rules of hostcall's.

    Args:
      jitted: what `jax.jit` has made.
      rules: a lowering rule for each primitive that is not to be lowered as JAX does it.
      target: of the custom calls that those emit.
    """
    from jax._src.export import _export

    return _export.export(  # type: ignore[no-any-return]
        jitted,
        platforms=("cpu",),
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(target)],
        _override_lowering_rules=tuple(rules.items()),
    )


def readable(exported: Any, version: str) -> Any:
    """An exported function as TensorFlow reads it, whose StableHLO is of this version."""
    from hostcall_mlir import exporting  # takes long to import, and few programs cross

    code = exporting.rewritten(exported.mlir_module_serialized, version)
    return dataclasses.replace(exported, mlir_module_serialized=code)


def has_effects(exported: Any) -> bool:
    """Whether an exported function does more than return its results."""
    return bool(exported.ordered_effects or exported.unordered_effects)


def has_ordered_effects(exported: Any) -> bool:
    """Whether a token goes through an exported function."""
    return bool(exported.ordered_effects)


def run_in_tensorflow(exported: Any, tensors: Sequence[Any]) -> list[Any]:
    """The results of an exported function, an op of TensorFlow's, for flat tensors."""
    from jax.experimental.jax2tf import jax2tf  # imports TensorFlow, which call() does not need

    return list(jax2tf._run_exported_as_tf(tensors, exported))


def as_jax_tensor(value: Any) -> tuple[Any, Any]:
    """A tensor of a dtype that JAX has, as it is set up, and that dtype."""
    from jax.experimental.jax2tf import jax2tf

    tensor, dtype = jax2tf._tfval_to_tensor_jax_dtype(value)
    return tensor, dtype
