"""The names by which another process finds a Python function: `module:qualname`."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from hostcall._tf import autograph

# What public modules hold, by its id, with its place: looking at all modules takes milliseconds.
_public: dict[int, tuple[object, str]] = {}


def qualified_name(function: Callable[..., Any]) -> str | None:
    """Where another process finds a function, None where it has no such place.

    That is the module and the name that Python says it has, where the function lies there indeed
    (itself, or as an object of `hostcall.callback`); for what does not say so, as NumPy's ufuncs
    and other functions of C modules, a public module that has it under its own name.
    """
    function = autograph.without_autograph(function)
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    own = None
    if (
        isinstance(module, str)
        and isinstance(qualname, str)
        and _lies_at(module, qualname, function)
    ):
        name = _importable(module)
        own = None if name is None else f"{name}:{qualname}"
    # What is written in Python knows its place, and where that is private there is a public one.
    if _is_private(module) or (own is None and not hasattr(function, "__code__")):
        return _in_public_modules(function) or own
    return own


def reason(function: Callable[..., Any]) -> str:
    """Why a function has no such name, in a few words."""
    function = autograph.without_autograph(function)
    if isinstance(function, functools.partial):
        return "a functools.partial"
    if isinstance(function, types.MethodType):
        return f"a method of a {type(function.__self__).__name__} object"
    qualname = getattr(function, "__qualname__", "")
    if qualname.endswith("<lambda>"):
        return "a lambda"
    if "<locals>" in qualname:
        return "defined inside of another function"
    module = getattr(function, "__module__", None)
    if not qualname:
        return f"an object of class {type(function).__name__}"
    if module == "__main__":
        return "defined in the script that runs, which other processes cannot import"
    return f"{module}.{qualname} is something else by now"


def _lies_at(module: str, qualname: str, function: object) -> bool:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is not None and getattr(found, "__hostcall_function__", found) is function


def _importable(module: str) -> str | None:
    """The name by which others import a module; scripts have one where they are run by `-m`."""
    if module != "__main__":
        return module
    spec = getattr(sys.modules[module], "__spec__", None)
    return None if spec is None else spec.name


def _is_private(module: object) -> bool:
    return any(part.startswith("_") and part != "__main__" for part in str(module).split("."))


def _in_public_modules(function: object) -> str | None:
    """The place of a function in a public module: its own package, if that has it, or any."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        return None
    known, place = _public.get(id(function), (None, ""))
    if known is function:
        return place
    parts = str(getattr(function, "__module__", "")).split(".")
    packages = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    found = _public_ones(packages, name, function) or _public_ones([*sys.modules], name, function)
    if not found:
        return None
    place = f"{min(found, key=lambda module: (module.count('.'), module))}:{name}"
    _public[id(function)] = function, place
    return place


def _public_ones(modules: list[str], name: str, function: object) -> list[str]:
    return [
        module
        for module in modules
        if getattr(sys.modules.get(module), "__dict__", {}).get(name) is function
        and module != "__main__"
        and not _is_private(module)
    ]
