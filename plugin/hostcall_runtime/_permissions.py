"""The permission to import Python functions that files name, and what a name may lead to.

Saved models, exported programs and workers share it, with TensorFlow and without.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from typing import Any

ENVIRONMENT = "HOSTCALL_ALLOW"

_NAMES = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_MODULE_OR_FUNCTION = re.compile(f"{_NAMES}(:{_NAMES})?")


def allow(*modules: str) -> None:
    """Allow files to import Python functions from modules.

    A saved model or an exported program names the Python functions that it calls, and a file is not
    trusted. So functions are imported only from the modules that are allowed here, or in the
    environment variable `HOSTCALL_ALLOW`, separated by commas. A SavedModel imports a function at
    its first call, an exported program when it is loaded.

    A file chooses which functions of an allowed module it calls, and with which arguments. So allow
    little: a module that holds your callbacks and nothing else, or `"numpy:sort"`, one function
    that a file may call, rather than all of NumPy, which also writes files.

    Args:
      *modules: names of modules, of packages, each with all modules in it, and of single functions,
        as `"module:name"`.

    Raises:
      ValueError: when a name is not a valid name of a module or function.

    Examples:
      >>> hostcall.allow("mypackage.callbacks", "numpy:sort")
    """
    for module in modules:
        _allowed[_checked(module)] = None


def is_allowed(module: str, name: str | None = None) -> bool:
    """Return whether files may import from a module: everything, or the function of this name."""
    if name is not None and f"{module}:{name}" in _allowed:
        return True
    return any(module == one or module.startswith(one + ".") for one in _allowed)


def allowed() -> list[str]:
    """Return what is allowed, in the order in which it was allowed."""
    return list(_allowed)


def why_not(place: str) -> str | None:
    """Return why a file may not import `module:name`, or None if it may."""
    module, _, name = place.partition(":")
    return None if is_allowed(module, name) else f"not allowed to import {module}"


def line_for(place: str, package: str = "hostcall", alone: bool = False) -> str:
    """Return the line that allows `module:name`, with its module if that is narrow, or `alone`."""
    # `package` is the one whose `allow` the user has at hand.
    module = place.partition(":")[0]
    named = place if alone or _has_much_more(module) else module
    line = f"{package}.allow({json.dumps(named, ensure_ascii=False)})"
    return f"{line}    # or {ENVIRONMENT}={named} in the environment"


def why_missing(module: str) -> str:
    """Return the reason for a module without a top-level package here."""
    top = module.partition(".")[0]
    return f"there is no module {top} here: its directory is not in sys.path"


def line_for_directory(module: str) -> str:
    """Return the line by which such a module is found."""
    top = module.partition(".")[0]
    return (
        f'sys.path.append("...")    # the directory of {top}; or PYTHONPATH=... in the environment'
    )


def has_module(module: str) -> bool:
    """Return whether a module's top-level package exists; the module itself is not imported."""
    top = module.partition(".")[0]
    return top in sys.modules or _spec_of(top) is not None


class PlaceError(Exception):
    """An error for a name that leads to nothing, or to what is not allowed.

    Attributes:
      reason: what is wrong, in a few words.
      can_be_allowed: whether it can be allowed by the place, and by nothing less.
    """

    def __init__(self, reason: str, can_be_allowed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.can_be_allowed = can_be_allowed


def member(found: Any, place: str) -> object:
    """Return what `module:name` leads to from the imported module, or raise a PlaceError."""
    name = place.partition(":")[2]
    homes: list[str | None] = []
    for number, part in enumerate(name.split(".")):
        # Follow only classes below the module: other objects lead out of the module.
        if number and not isinstance(found, type):
            raise PlaceError(f"{place} is not a function of a module or of a class in it")
        found = None if part.startswith("__") else getattr(found, part, None)
        homes.append(_home(found))
    if found is None:
        raise PlaceError(f"{place} does not exist (any more)")
    # A name that a module has imported is not its own: os.system after `import os`.
    strangers = [home for home in homes if home is not None and not is_allowed(home)]
    if strangers and place not in _allowed:
        raise PlaceError(f"{place} comes from {strangers[0]}, which is not allowed", True)
    return found


def _home(found: Any) -> str | None:
    """Return the module that a function reports as its own, or None."""
    function = getattr(found, "__hostcall_function__", found)
    home = getattr(function, "__module__", None)
    # An object reports the module of its class, which says nothing of the object's own place.
    is_objects = home == type(function).__module__
    return home if isinstance(home, str) and not is_objects else None


def _has_much_more(module: str) -> bool:
    """Return whether a module is Python's own or a whole package, from which little is wanted."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    spec = _spec_of(module) if module == top else None
    return spec is not None and spec.submodule_search_locations is not None


def _spec_of(top: str) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a top-level module, without importing it, or None."""
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a file may hold any text as a name
        return None


def _checked(module: object) -> str:
    if not isinstance(module, str) or _MODULE_OR_FUNCTION.fullmatch(module) is None:
        raise ValueError(
            f"hostcall: {module!r} is not a name of a module, such as 'package.losses', nor of a "
            "function, such as 'numpy:sort'."
        )
    return module


def _of_environment() -> dict[str, None]:
    given = os.environ.get(ENVIRONMENT, "").split(",")
    return {_checked(name.strip()): None for name in given if name.strip()}


_allowed = _of_environment()  # a dict keeps their order
