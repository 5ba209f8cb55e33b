"""Writing a program with regions: calls of them, references, and the scope of the launch.

Each function that the program reaches takes one more argument, the scope: the address of what the
regions of a launch share. Loops carry it along. Where a value is a reference, its type is int64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler.regions.function_body import FunctionBody
from hostcall._compiler.regions.references import References, data_inputs
from hostcall._compiler.regions.retyping import SCOPE
from hostcall._tf import function_defs as defs
from hostcall._tf import protos
from hostcall._tf.types import FunctionDef, NodeDef

_INT64 = tf.int64.as_datatype_enum


class Rewriter:
    """Writes one program.

    Args:
      functions: the FunctionDefs that it reaches, by name.
      references: which of their values are references.
      entry: the name of the first of them.
      suffix: of the name of the new one.

    Attributes:
      old_functions: as given.
      functions: the new FunctionDefs, those of regions too.
      regions: the names of the functions of regions, in the order of their indices.
      members: of each region the name of the function that it is of, the names of its nodes, and
        the values that it takes.
    """

    def __init__(
        self, functions: Mapping[str, Any], references: References, entry: str, suffix: str
    ) -> None:
        self.old_functions = functions
        self._references = references
        self._entry = entry
        self._suffix = suffix
        self._new_names: dict[tuple[str, bool], str] = {}
        self.functions: dict[str, Any] = {}
        self.regions: list[str] = []
        self.members: list[tuple[str, list[str], list[str]]] = []

    def run(self) -> str:
        """Writes the program; returns the name of its first function."""
        return self._function(self._entry, is_body=False)

    def _function(self, name: str, is_body: bool) -> str:
        """The name of what takes the place of a function; the body of a loop returns the scope."""
        key = (name, is_body)
        if key in self._new_names:
            return self._new_names[key]
        number = f"_{len(self._new_names)}_{name}" if self._new_names else ""
        new_name = self._new_names[key] = f"{self._entry}{self._suffix}{number}"
        function: Any = protos.copy_of(self.old_functions[name])
        function.signature.name = new_name
        defs.drop_dead_nodes(function, self.old_functions)
        self.functions[new_name] = function
        FunctionBody(self, name, function).write()
        self._sign(name, function, is_body)
        return new_name

    def _sign(self, name: str, function: FunctionDef, is_body: bool) -> None:
        signature, old = function.signature, self.old_functions[name]
        for i, arg in enumerate(signature.input_arg):
            if self.holds(name, arg.name):
                arg.type = _INT64
                function.arg_attr.pop(i, None)
                function.resource_arg_unique_id.pop(i, None)
        for result in signature.output_arg:
            if self.holds(name, old.ret[result.name]):
                result.type = _INT64
        signature.input_arg.add(name=SCOPE, type=_INT64)
        if is_body:
            signature.output_arg.add(name=SCOPE, type=_INT64)
            function.ret[SCOPE] = SCOPE

    def holds(self, function: str, value: str) -> bool:
        """Whether a value of a function as it was is a reference."""
        return self._references.holds(function, value)

    def host_ops(self, name: str) -> set[str]:
        """The nodes of a function that are on the host."""
        return self._references.host_ops[name]

    def redirect(self, node: NodeDef) -> None:
        """Lets a call be one of the new functions, which take the scope as well."""
        for attr, callee in _called(node):
            callee.name = self._function(callee.name, is_body=attr == "body")
        if node.op in self.old_functions:
            node.op = self._function(node.op, is_body=False)
        data = data_inputs(node)
        node.input[:] = [*data, SCOPE, *[v for v in node.input if v.startswith("^")]]

    def add_region(
        self, function: str, region: FunctionDef, members: Iterable[str], inputs: Iterable[str]
    ) -> int:
        """Adds the function of a region; returns the index of the region."""
        index = len(self.regions)
        region.signature.name = f"{self._entry}{self._suffix}_region_{index}"
        defs.set_context(region, self.old_functions[function])
        if function != self._entry:  # whose name the caller knows
            defs.note_function(region.node_def, function)
        self.regions.append(region.signature.name)
        self.functions[region.signature.name] = region
        self.members.append((function, list(members), list(inputs)))
        return index


def _called(node: NodeDef) -> list[tuple[str, Any]]:
    """The NameAttrLists in a node's attributes, with the names of these."""
    found = []
    for name in sorted(node.attr):
        value = node.attr[name]
        callees = [value.func] if value.HasField("func") else value.list.func
        found += [(name, callee) for callee in callees]
    return found
