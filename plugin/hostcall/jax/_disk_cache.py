"""Programs with calls in JAX's cache on disk, where later processes find them.

A program holds the ids of its calls, and ids are of a process. They are the same in each process
(`hostcall_runtime._registry`) for functions that have a place there. Programs that call others,
as a lambda or a function of a notebook, are kept out: nobody would find them. JAX before 0.11
writes no programs with callbacks at all.
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


def is_on() -> bool:
    """Whether JAX may keep programs that are compiled now."""
    config = jax.config
    return bool(config.jax_compilation_cache_dir and config.jax_enable_compilation_cache)


def identity(function: Function, context: Any) -> Sequence[object]:
    """What a call has in common with the same one in another process, beside its place.

    All that XLA's program depends on and JAX does not look at is part of it: see `_overlap`.

    Args:
      function: what is called.
      context: of the lowering.
    """
    if not is_on():
        return ()
    form = function.may_begin_early, _patching.are_installed()
    version = importlib.metadata.version("hostcall")
    return *form, version, *context.avals_in, "->", *context.avals_out


def unwritten(stock: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's `_compile_and_write_cache`, which does not write what no other process can find."""

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


def _is_found_elsewhere(callback: Any) -> bool:
    """Whether another process has a call of hostcall's under the same id, or it is JAX's matter."""
    if not isinstance(callback, Owned):
        return True
    origin: Any = callback.target.origin
    return isinstance(origin, Function) and not origin.is_native and _has_place(origin.function)


def _has_place(function: Any) -> bool:
    """Whether a function lies in a module, or a script that is run from a file, under its name."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    found: Any = module if getattr(module, "__file__", None) else None
    for part in getattr(function, "__qualname__", "<none>").split("."):
        found = getattr(found, part, None)
    return found is not None and getattr(found, "__hostcall_function__", found) is function
