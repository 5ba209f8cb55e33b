"""A rewrite of programs with calls for XLA; JAX lowers, shows and exports the original module.

Calls without side effects run while their program goes on: see `hostcall_mlir.passes.overlap`. If a
program fails, `_execution` drops the results of its early calls. No function takes tokens alone,
which XLA cannot compile: see `hostcall_mlir.passes.tokens`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hostcall.jax import _names
from hostcall.jax._lowering import Owned


def overlapping(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap JAX's `backend_compile_and_load` so that calls overlap in programs for one CPU."""

    @functools.wraps(stock)
    def backend_compile_and_load(
        backend: Any, module: object, executable_devices: Any, options: object, host_callbacks: Any
    ) -> Any:
        owned = [callback for callback in host_callbacks if isinstance(callback, Owned)]
        if owned and backend.platform == "cpu" and len(executable_devices) == 1:
            module = _with_overlap(module, owned)
        if any(one.target.site and one.target.site.ordered for one in owned):
            from hostcall_mlir.exporting import tokens

            module = tokens.with_numbers(module) or module
        return stock(backend, module, executable_devices, options, host_callbacks)

    return backend_compile_and_load


def _with_overlap(module: object, owned: Sequence[Owned]) -> Any:
    keep = [one.callback_id for one in owned if not one.target.origin.may_begin_early]
    if len(keep) == len(owned) or not _names.has(_names.EXECUTION):
        return module
    from hostcall_mlir.exporting import overlap  # slow to import, and not all programs make calls

    return overlap.overlapping(module, keep) or module
