"""Letting nodes pass references, where they pass what XLA has no values for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import tensorflow as tf

from hostcall._compiler.regions.references import data_inputs, is_call
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

# The name of the argument that each function has for the address of the launch's scope.
SCOPE = "hostcall_scope"

_INT64 = tf.int64.as_datatype_enum


class Program(Protocol):
    """What is written: the program around a function."""

    old_functions: Mapping[str, Any]

    def holds(self, function: str, value: str) -> bool: ...

    def host_ops(self, name: str) -> set[str]: ...

    def redirect(self, node: NodeDef) -> None: ...

    def add_region(
        self, function: str, region: FunctionDef, members: Iterable[str], inputs: Iterable[str]
    ) -> int: ...


class Retyping:
    """Of the nodes of one function.

    Args:
      program: what is written.
      name: of the function as it was.
      types: those of its values as they were.
    """

    def __init__(self, program: Program, name: str, types: defs.Types) -> None:
        self._program = program
        self._name = name
        self._types = types
        self._old = {node.name: node for node in program.old_functions[name].node_def}

    def type_of(self, value: str) -> int:
        """The dtype that a value has in the program, by the name that it had before."""
        return _INT64 if self._program.holds(self._name, value) else self._types.of(value)

    def run(self, node: NodeDef) -> None:
        """Changes the attributes of a node that passes values on."""
        taken = [self.type_of(value) for value in data_inputs(self._old[node.name])]
        if is_call(node, self._program.old_functions):
            self._call(node, taken)
        elif node.op == "Identity":
            node.attr["T"].type = taken[0]
        elif node.op == "IdentityN":
            node.attr["T"].list.type[:] = taken

    def _reshape(self, node: NodeDef, results: list[str]) -> None:
        """Says that references are scalars, and the scope too, which a loop returns."""
        shapes = node.attr["output_shapes"].list.shape
        for shape, value in zip(shapes, results, strict=False):
            if self._program.holds(self._name, value):
                shape.CopyFrom(tf.TensorShape([]).as_proto())
        if node.op in op_kinds.LOOP_OPS and len(shapes):
            shapes.add()

    def _call(self, node: NodeDef, taken: list[int]) -> None:
        results = [
            f"{node.name}:{result}:{i}"
            for result, types in self._types.of_node(node.name).items()
            for i in range(len(types))
        ]
        returned = [self.type_of(value) for value in results]
        if "output_shapes" in node.attr:
            self._reshape(node, results)
        if node.op in op_kinds.LOOP_OPS:
            node.attr["T"].list.type[:] = [*taken, _INT64]
        elif node.op in op_kinds.BRANCH_OPS:
            node.attr["Tin"].list.type[:] = [*taken[1:], _INT64]
            node.attr["Tout"].list.type[:] = returned
        elif node.op in op_kinds.CALL_OPS:
            node.attr["Tin"].list.type[:] = [*taken, _INT64]
            node.attr["Tout"].list.type[:] = returned
        self._program.redirect(node)
