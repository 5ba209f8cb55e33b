"""Names for the functions of a library that have changed.

TensorFlow finds functions by their names, and still has the ones from before under the old names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from hostcall._tf import function_defs as defs
from hostcall._tf import function_names
from hostcall._tf.types import FunctionDefLibrary, Functions


def give(functions: Functions, changed: Collection[str], entry: str) -> None:
    """Rename the functions that have changed, and those that call them.

    Equal functions get equal names.

    Args:
      functions: FunctionDefs by their old names, changed in place.
      changed: the names of those that have changed.
      entry: the function that keeps its name, since what takes its place gets another one anyway.
    """
    new_names: dict[str, str] = {}

    def renamed(name: str) -> str:
        if name not in new_names:
            new_names[name] = name  # XLA compiles no function that calls itself
            new_names[name] = _renamed(functions[name], functions, name in changed, renamed)
        return new_names[name]

    for name in functions if changed else ():
        if renamed(name) != name and name != entry:
            functions[name].signature.name = new_names[name]


def new_functions(before: FunctionDefLibrary, after: FunctionDefLibrary) -> list[Any]:
    """List the functions whose names are new, which TensorFlow does not have."""
    known = {function.signature.name for function in before.function}
    return [function for function in after.function if function.signature.name not in known]


def is_changed(before: FunctionDefLibrary, after: FunctionDefLibrary, entry: str) -> bool:
    """Tell whether a function, or one that it calls, is another one than before.

    Each change adds nodes. The function itself keeps its name.
    """
    sizes = [
        len(function.node_def)
        for library in (before, after)
        for function in library.function
        if function.signature.name == entry
    ]
    return len(set(sizes)) > 1 or bool(new_functions(before, after))


def _renamed(
    function: Any, functions: Functions, is_changed: bool, renamed: Callable[[str], str]
) -> str:
    name: str = function.signature.name
    for node in defs.calls_in(function, functions):
        for called in defs.called_functions(node, functions):
            if called in functions and (new := renamed(called)) != called:
                is_changed = True
                _redirect(node, called, new)
    if not is_changed:
        return name
    return name + function_names.of_contents([function])


def _redirect(node: Any, old: str, new: str) -> None:
    if node.op == old:
        node.op = new
    for callee in defs.callees(node):
        if callee.name == old:
            callee.name = new
