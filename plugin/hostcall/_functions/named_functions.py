"""The named functions of this process, which saved graphs look up by name."""

from __future__ import annotations

import types
import weakref
from typing import Any

# Names from `hostcall.register` and `hostcall.provide`. They stay as long as the process, since a
# graph may be loaded at any time.
_given: dict[str, Any] = {}

# Callbacks with a name, which live as long as the user keeps them.
_callbacks: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def give(name: str, function: Any) -> None:
    """Give a function a name; another function with this name loses it."""
    _given[name] = function


def note_callback(name: str, callback: Any) -> None:
    """Record a `hostcall.callback` that has a name."""
    _callbacks[name] = callback


def find(name: str) -> Any:
    """Return the function or `hostcall.callback` with this name, or None."""
    found = _given.get(name)
    return _callbacks.get(name) if found is None else found


def name_of(function: Any) -> str | None:
    """Return the name that `give` gave to a function, or None."""
    return next((name for name, one in [*_given.items()] if _is_same(one, function)), None)


def _is_same(one: Any, other: Any) -> bool:
    if getattr(one, "__hostcall_function__", one) is other or one is other:
        return True
    # Each lookup makes a new bound method, so identity does not tell.
    return isinstance(one, types.MethodType) and bool(one == other)
