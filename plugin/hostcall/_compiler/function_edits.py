"""Nodes that are added to a FunctionDef, and values that change places, written in one go."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from hostcall._tf import function_defs as defs
from hostcall._tf import protos
from hostcall._tf.types import FunctionDef


class FunctionEdits:
    """What is to change in a FunctionDef.

    The order of a function's nodes is that of their effects, so that a new node has its place.

    Args:
      function: the FunctionDef. `write` changes it in place.
    """

    def __init__(self, function: FunctionDef) -> None:
        self._function: Any = function
        self._before: dict[str, list[Any]] = {}
        self._after: dict[str, list[Any]] = {}
        self._values: dict[str, str] = {}

    @functools.cached_property
    def _names(self) -> set[str]:
        return {node.name for node in self._function.node_def}

    def unused(self, name: str) -> str:
        """A name that no node has, and that is not given again."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def before(self, node: str, new: Iterable[Any]) -> None:
        """Add NodeDefs in front of a node; of values that change they take the new ones."""
        self._before.setdefault(node, []).extend(new)

    def after(self, node: str, new: Iterable[Any]) -> None:
        """Add NodeDefs behind a node; of values that change they take the old ones."""
        self._after.setdefault(node, []).extend(new)

    def change(self, old: str, new: str) -> None:
        """Give all that uses a value another one."""
        self._values[old] = new

    def write(self) -> bool:
        """Change the function; return whether there was something to change."""
        if not (self._before or self._after or self._values):
            return False
        nodes = []
        for node in self._function.node_def:
            taking = [*self._before.get(node.name, ()), node]
            for each in taking:
                for index, value in enumerate(each.input):
                    if value in self._values:
                        each.input[index] = self._values[value]
            nodes += [*taking, *self._after.get(node.name, ())]
        defs.edit_results(self._function, lambda value: self._values.get(value, value))
        copies = [protos.copy_of(node) for node in nodes]
        del self._function.node_def[:]
        self._function.node_def.extend(copies)
        return True
