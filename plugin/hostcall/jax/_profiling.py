"""Calls as events in the traces of JAX's profiler, by the names of their functions.

JAX tells only Python whether a trace is being taken, and to ask costs as much as a tenth of a small
call. So a program asks once, when it begins: calls of one that began before a trace are not events.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from hostcall.jax import _names
from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")

_annotation = jax.profiler.TraceAnnotation
_is_traced: Callable[[], bool] = bool  # never
if _names.has(_names.PROFILES):
    _is_traced = _annotation.is_enabled

_is_shown = False


def look() -> None:
    """Make calls from now on events if a trace is being taken, and no events otherwise."""
    global _is_shown
    if (on := _is_traced()) is not _is_shown:
        _runtime.annotate(_annotation if on else None)
        _is_shown = on
