"""The functions that have a name in this process, by which a saved graph may ask for them."""

from __future__ import annotations

import types
import weakref
from typing import Any

# Given by `hostcall.register` and `hostcall.provide`: as long as the process, since a graph may be
# loaded any time.
_given: dict[str, Any] = {}

# Callbacks with a name, which live as long as the user keeps them.
_callbacks: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def give(name: str, function: Any) -> None:
    """Gives a function a name, which then is no other function's."""
    _given[name] = function


def note_callback(name: str, callback: Any) -> None:
    """Remembers a `hostcall.callback` that has a name."""
    _callbacks[name] = callback


def find(name: str) -> Any:
    """The function or `hostcall.callback` that has a name here, or None."""
    found = _given.get(name)
    return _callbacks.get(name) if found is None else found


def name_of(function: Any) -> str | None:
    """The name that was given to a function by `give`, or None."""
    return next((name for name, one in [*_given.items()] if _is_same(one, function)), None)


def _is_same(one: Any, other: Any) -> bool:
    if getattr(one, "__hostcall_function__", one) is other or one is other:
        return True
    # A bound method is made anew each time that it is looked up.
    return isinstance(one, types.MethodType) and bool(one == other)
