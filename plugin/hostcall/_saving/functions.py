"""Python functions that saved graphs may call, and their qualified names."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import json
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from hostcall._functions import named_functions
from hostcall._functions.declaration import check_function
from hostcall._saving import pickled_functions
from hostcall._saving.tokens import Function, Problem, SavedFunctionError
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


F = TypeVar("F", bound=Callable[..., Any])

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ENVIRONMENT = "HOSTCALL_ALLOW"


def allow(*modules: str) -> None:
    """Allows graphs that are loaded to import Python functions from modules.

    A saved graph names its Python functions, and names in a file may be anybody's. So nothing is
    imported for them but from the modules that are allowed here, or in the environment variable
    `HOSTCALL_ALLOW`, where commas stand between them. A function is imported when it is first
    called.

    Args:
      *modules: names of modules and packages. With a package all that is in it is allowed.

    Raises:
      ValueError: when one is no name of a module.

    Examples:
      >>> hostcall.allow("mypackage.callbacks", "scipy")
    """
    for module in modules:
        _allowed[_checked(module)] = None


def provide(name: str, function: Callable[..., Any]) -> None:
    """Gives graphs that are loaded a function for a name in them, instead of importing one.

    Args:
      name: the name in the graph: `"module:name"`, or one that was given to the function before
        the graph was saved.
      function: what is called; also a `hostcall.callback`.

    Raises:
      TypeError: when `function` is not callable.

    Examples:
      >>> hostcall.provide("train:normalize", lambda x: x / x.max())
    """
    check_function(function, "hostcall.provide")
    named_functions.give(_checked_name(name), function)


def register(function: F, name: str) -> F:
    """Gives a function a name, by which graphs call it that are saved here and loaded elsewhere.

    For functions that cannot be imported: lambdas, functions in functions, methods of objects. The
    process that loads the graph registers its own function under the name. A name that is given
    once more is the newer function's. The function is kept until the process ends.

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
    named_functions.give(_checked_name(name), function)
    return function


def find(function: Function, at: str) -> tuple[Any, Any]:
    """The function or `hostcall.callback` that a saved graph names.

    Args:
      function: what the graph says of it.
      at: where it was called, for messages.

    Returns:
      The function, and the shape function that it was carried with, or None.

    Raises:
      SavedFunctionError: when it is not there, or must not be imported or read.
    """
    if (found := _named(function)) is not None:
        return found, None
    problem = problem_of(function)
    if problem is None and function.pickled is not None:
        return pickled_functions.find(function.pickled)
    if problem is None:
        assert function.place is not None
        found = _imported(function.place)
        if not isinstance(found, Problem):
            return found, None
        problem = found
    raise SavedFunctionError(message(function.label, at, problem)) from _import_error(problem)


def message(label: str, at: str, problem: Problem) -> str:
    """The text of the error."""
    called_at = f", called at {at}" if at else ""
    return (
        f"hostcall: a graph calls the Python function {label}{called_at}, which this process does "
        f"not have, and {problem.reason}. If you trust the graph, write in this process, before "
        f"the call:\n\n    {problem.line}"
    )


def problem_of(function: Function) -> Problem | None:
    """What keeps a function from being found, as far as is told without an import; or None."""
    if _named(function) is not None:
        return None
    if function.pickled is not None:
        return pickled_functions.problem_of(function.pickled)
    place = function.place
    provide = f"hostcall.provide({json.dumps(function.label)}, function)"
    if place is None:
        return Problem("no function has this name here", provide)
    module = place.partition(":")[0]
    if not is_allowed(module):
        line = f'hostcall.allow("{module}")'
        line += f"    # or {_ENVIRONMENT}={module} in the environment"
        return Problem(f"nobody has allowed to import {module}", line)
    if not has_module(module):
        top = module.partition(".")[0]
        return Problem(f"there is no module {top} here: its directory is not in sys.path", provide)
    return None


def has_module(module: str) -> bool:
    """Whether a module may be there, as far as is told without an import: its package is."""
    top = module.partition(".")[0]
    try:
        return top in sys.modules or importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):  # whatever a file has for a name
        return False


def is_allowed(module: str) -> bool:
    """Whether functions of a module may be imported for a graph."""
    return any(module == one or module.startswith(one + ".") for one in _allowed)


def allowed() -> list[str]:
    """The modules that are allowed, in their order."""
    return list(_allowed)


def _named(function: Function) -> Any:
    """What was given here to one of the names of a function, or None."""
    names = filter(None, (function.name, function.place, function.label))
    return next((one for one in map(named_functions.find, names) if one is not None), None)


def _imported(place: str) -> Any:
    """The function at a place in an allowed module, or the Problem with it."""
    module, _, qualname = place.partition(":")
    provide = f'hostcall.provide("{place}", function)'
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # it may raise anything
        return _ImportProblem(
            f"the import of {module} has failed: {type(error).__name__}: {error}", provide, error
        )
    homes: list[str | None] = []
    for number, part in enumerate(qualname.split(".")):
        # From the module through classes, and not through anything else into what is not its own.
        if number and not isinstance(found, type):
            return Problem(f"{place} is no function of a module or of a class in it", provide)
        found = None if part.startswith("__") else getattr(found, part, None)
        homes.append(_home(found))
    if found is None:
        return Problem(f"{place} does not exist (any more)", provide)
    if isinstance(found, type | types.ModuleType) or not callable(found):
        return Problem(f"{place} is no function, but a {type(found).__name__}", provide)
    for home in homes:
        # What a module has imported is not its own: os.system where there is `import os`.
        if home is not None and not is_allowed(home):
            reason = f"{place} comes from {home}, which nobody has allowed to import"
            return Problem(reason, f'hostcall.allow("{home}")')
    return found


@dataclasses.dataclass(frozen=True)
class _ImportProblem(Problem):
    error: Exception


def _import_error(problem: Problem) -> Exception | None:
    return problem.error if isinstance(problem, _ImportProblem) else None


def _home(found: Any) -> str | None:
    """The module that a function says it is from, where it does."""
    function = getattr(found, "__hostcall_function__", found)
    home = getattr(function, "__module__", None)
    # An object says where its class is from, and lies where it lies.
    is_objects = home == type(function).__module__
    return home if isinstance(home, str) and not is_objects else None


def _checked(module: object) -> str:
    if not isinstance(module, str) or _MODULE.fullmatch(module) is None:
        raise ValueError(f"hostcall: {module!r} is no name of a module, such as 'package.losses'.")
    return module


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"hostcall: {name!r} is no name for a function.")
    return name


def _of_environment() -> dict[str, None]:
    given = os.environ.get(_ENVIRONMENT, "").split(",")
    return {_checked(name.strip()): None for name in given if name.strip()}


# The allowed modules; a dict, for their order.
_allowed = _of_environment()
