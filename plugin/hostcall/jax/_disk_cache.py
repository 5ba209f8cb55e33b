"""Programs with calls in JAX's cache on disk, where later processes find them.

A program holds callback ids, which are valid in one process. `hostcall_runtime._registry` gives a
call the same id in each process. This works for functions that another process finds by module and
name. hostcall keeps out programs that call other functions, such as a lambda or a function of a
notebook. JAX before 0.11 writes no programs with callbacks at all.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src import compiler as _compiler

from hostcall.jax._functions import Function
from hostcall.jax._lowering import Owned
from hostcall_runtime import _patching
from hostcall_runtime._processes import has_its_name


def is_on() -> bool:
    """Return whether JAX may write the programs that it compiles now to disk."""
    config = jax.config
    return bool(config.jax_compilation_cache_dir and config.jax_enable_compilation_cache)


def identity(function: Function, context: Any) -> Sequence[object]:
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
    ) -> Any:
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
    return isinstance(origin, Function) and not origin.is_native and _has_place(origin.function)


def _has_place(function: object) -> bool:
    """Return whether a module, or a script run from a file, has the function under its name."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return bool(getattr(module, "__file__", None)) and has_its_name(function)
