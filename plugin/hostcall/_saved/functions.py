"""Python functions that saved graphs call: their qualified names, and the search by name."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from hostcall._functions import declarations
from hostcall._functions.options import check_function
from hostcall._saved import pickled_functions
from hostcall._saved.tokens import FunctionRecord, Problem, SavedFunctionError
from hostcall._tf import autograph
from hostcall_runtime import _permissions
from hostcall_runtime._processes import has_its_name

# Functions found in public modules, by id, with their places: a search takes milliseconds.
_public: dict[int, tuple[object, str]] = {}


def qualified_name(function: Callable[..., Any]) -> str | None:
    """Return the qualified name by which another process finds a function; None without one."""
    # It is the module and the qualname that Python reports, if the function is really there
    # (itself, or as an object of `hostcall.callback`). NumPy's ufuncs and other functions of C
    # modules do not report a place. They get a public module that has them under that name.
    function = autograph.without_autograph(function)
    module = getattr(function, "__module__", None)
    own = None
    if has_its_name(function):
        name = _importable(function.__module__)
        own = None if name is None else f"{name}:{function.__qualname__}"
    # A function written in Python knows its place; if that is private, look for a public one.
    if _is_private(module) or (own is None and not hasattr(function, "__code__")):
        return _in_public_modules(function) or own
    return own


def reason(function: Callable[..., Any]) -> str:
    """Return why a function has no qualified name, in a few words."""
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


def _importable(module: str) -> str | None:
    """Return the name that imports a module; for a script only if it was run with `-m`."""
    if module != "__main__":
        return module
    spec = getattr(sys.modules[module], "__spec__", None)
    return None if spec is None else spec.name


def _is_private(module: object) -> bool:
    return any(part.startswith("_") and part != "__main__" for part in str(module).split("."))


def _in_public_modules(function: object) -> str | None:
    """Return the place of a function in a public module, of its own package if possible."""
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


F = TypeVar("F", bound=Callable[..., Any])


def provide(name: str, function: Callable[..., Any]) -> None:
    """Provide the function that loaded graphs call for a name, instead of importing one.

    Args:
      name: the name in the graph: `"module:name"`, or the name that was given to the function
        before the graph was saved.
      function: the function to call, or a `hostcall.callback`.

    Raises:
      TypeError: when `function` is not callable.

    Examples:
      >>> hostcall.provide("train:normalize", lambda x: x / x.max())
    """
    check_function(function, "hostcall.provide")
    declarations.give_name(_checked_name(name), function)


def register(function: F, name: str) -> F:
    """Register a function under a name, by which graphs that are saved here call it elsewhere.

    Use it for functions that cannot be imported: lambdas, nested functions, methods of objects.
    The process that loads the graph registers its own function under the name. Registering a name
    again replaces its function. The function is kept until the process ends.

    Args:
      function: the function that is passed to a script op, or to `hostcall.callback`.
      name: any text, such as `"mypackage::normalize"`.

    Returns:
      `function`.

    Raises:
      TypeError: when `function` is not callable.
      ValueError: when the name is empty.

    Examples:
      >>> halve = hostcall.register(lambda x: x / 2, "examples::halve")
      >>> float(tf.numpy_function(halve, [tf.constant(3.0)], tf.float32))
      1.5
    """
    check_function(function, "hostcall.register")
    declarations.give_name(_checked_name(name), function)
    return function


def saved_function(function: FunctionRecord, at: str) -> tuple[Any, Any]:
    """Return the saved function called at `at`, and its pickled shape function, or raise."""
    if (found := _named(function)) is not None:
        return found, None
    problem = problem_of(function)
    if problem is None and function.pickled is not None:
        return pickled_functions.unpickled(function.pickled)
    if problem is None:
        assert function.place is not None
        imported = _imported(function.place)
        if not isinstance(imported, Problem):
            return imported, None
        problem = imported
    called_at = f", called at {at}" if at else ""
    raise SavedFunctionError(
        f"hostcall: a graph calls the Python function {function.label}{called_at}, which this "
        f"process does not have, and {problem.reason}. If you trust the graph, write in this "
        f"process, before the call:\n\n    {problem.line}"
    ) from problem.error


def problem_of(function: FunctionRecord) -> Problem | None:
    """Return the problem that keeps a function from being found, without any import; or None."""
    if _named(function) is not None:
        return None
    if function.pickled is not None:
        return pickled_functions.problem_of(function.pickled)
    place = function.place
    provide = f"hostcall.provide({json.dumps(function.label)}, function)"
    if place is None:
        return Problem("no function has this name here", provide)
    module = place.partition(":")[0]
    if (reason := _permissions.why_not(place)) is not None:
        return Problem(reason, _permissions.line_for(place))
    if not _permissions.has_module(module):
        return Problem(_permissions.why_missing(module), _permissions.line_for_directory(module))
    return None


def _named(function: FunctionRecord) -> Callable[..., Any] | None:
    """Return the function that this process registered under one of the names, or None."""
    names = filter(None, (function.name, function.place, function.label))
    return next((one for one in map(declarations.find_named, names) if one is not None), None)


def _imported(place: str) -> Callable[..., Any] | Problem:
    """Return the function at a place in an allowed module, or the Problem with it."""
    module = place.partition(":")[0]
    provide = f'hostcall.provide("{place}", function)'
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # a module may raise any exception
        return Problem(
            f"the import of {module} has failed: {type(error).__name__}: {error}", provide, error
        )
    try:
        found = _permissions.member(found, place)
    except _permissions.PlaceError as error:
        line = _permissions.line_for(place, alone=True) if error.can_be_allowed else provide
        return Problem(error.reason, line)
    if isinstance(found, type | types.ModuleType) or not callable(found):
        return Problem(f"{place} is not a function, but a {type(found).__name__}", provide)
    member: Callable[..., Any] = found
    return member


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"hostcall: {name!r} is not a name for a function.")
    return name
