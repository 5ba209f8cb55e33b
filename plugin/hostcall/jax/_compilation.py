"""The compilation of programs with calls: their rewrite for XLA, and JAX's cache on disk.

JAX lowers, shows and exports the original module. In the module for XLA, calls without side effects
run while their program goes on: see `hostcall_mlir.passes.overlap`. If a program fails,
`_execution` drops the results of its early calls. No function takes tokens alone, which XLA cannot
compile: see `hostcall_mlir.passes.tokens`.

Later processes find programs in the cache. A program holds callback ids, which are valid in one
process. `hostcall_runtime._registry` gives a call the same id in each process. This works for
functions that another process finds by module and name. hostcall keeps out programs that call other
functions, such as a lambda or a function of a notebook. JAX before 0.11 writes no programs with
callbacks at all.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src import compiler as _compiler

from hostcall.jax import _names
from hostcall.jax._functions import JaxFunction
from hostcall.jax._lowering import Owned
from hostcall_runtime import _patching
from hostcall_runtime._processes import has_its_name


def overlapping(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap JAX's `backend_compile_and_load` so that calls overlap in programs for one CPU."""

    @functools.wraps(stock)
    def backend_compile_and_load(
        backend: Any, module: object, executable_devices: Any, options: object, host_callbacks: Any
    ) -> object:
        owned = [callback for callback in host_callbacks if isinstance(callback, Owned)]
        if owned and backend.platform == "cpu" and len(executable_devices) == 1:
            module = _with_overlap(module, owned)
        if any(one.target.site and one.target.site.ordered for one in owned):
            from hostcall_mlir.exporting import tokens

            module = tokens.with_numbers(module) or module
        return stock(backend, module, executable_devices, options, host_callbacks)

    return backend_compile_and_load


def _with_overlap(module: object, owned: Sequence[Owned]) -> object:
    keep = [one.callback_id for one in owned if not one.target.origin.may_begin_early]
    if len(keep) == len(owned) or not _names.has(_names.EXECUTION):
        return module
    from hostcall_mlir.exporting import overlap  # slow to import, and not all programs make calls

    return overlap.overlapping(module, keep) or module


def is_on() -> bool:
    """Return whether JAX may write the programs that it compiles now to disk."""
    config = jax.config
    return bool(config.jax_compilation_cache_dir and config.jax_enable_compilation_cache)


def identity(function: JaxFunction, context: Any) -> Sequence[object]:
    """Return what, with its place, identifies a call in all processes: what JAX ignores, too."""
    if not is_on():
        return ()
    form = function.may_begin_early, _patching.are_installed()
    version = importlib.metadata.version("hostcall")
    return *form, version, *context.avals_in, "->", *context.avals_out


def unwritten(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap JAX's `_compile_and_write_cache` so that it skips programs no other process can use."""

    @functools.wraps(stock)
    def compile_and_write_cache(
        backend: Any,
        computation: Any,
        executable_devices: Any,
        compile_options: Any,
        host_callbacks: Sequence[Any],
        *key: Any,
    ) -> object:
        program = backend, computation, executable_devices, compile_options, host_callbacks
        if all(map(_is_found_elsewhere, host_callbacks)):
            return stock(*program, *key)
        return _compiler.backend_compile_and_load(*program)

    return compile_and_write_cache


def _is_found_elsewhere(callback: object) -> bool:
    """Return whether another process has this callback under the same id, or it is JAX's own."""
    if not isinstance(callback, Owned):
        return True
    origin: Any = callback.target.origin
    return isinstance(origin, JaxFunction) and not origin.is_native and _has_place(origin.function)


def _has_place(function: object) -> bool:
    """Return whether a module, or a script run from a file, has the function under its name."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return bool(getattr(module, "__file__", None)) and has_its_name(function)
