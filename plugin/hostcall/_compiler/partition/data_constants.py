"""Ops for which XLA would compile a cluster anew with each value that they are given.

XLA wants to know some operands when it compiles: where a slice begins, how long a range is, along
which axis a sum goes. TensorFlow then keys the cluster, with all the work in it, on every value
that such an operand is computed from. So these ops run on the host, where their operands depend on
data; they are rarely what takes time. Where operands follow from shapes, nothing is gained by that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._compiler.partition.varying_values import VaryingValues
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

_VARIANT = tf.variant.as_datatype_enum

# What indices and sizes are computed with. It takes less time than to start a program.
_INDEX_OPS = frozenset(
    {"AddV2", "Cast", "ConcatV2", "ExpandDims", "Identity", "Maximum", "Minimum", "Mul", "Pack"}
    | {"Reshape", "Shape", "Squeeze", "StridedSlice", "Sub"}
)

_REASON = "XLA wants to know operand '{operand}' when it compiles, and it depends on data"


class DataConstants:
    """Finds them in some functions.

    Args:
      functions: FunctionDefs by name.
      constant_operands: the positions of the operands of an op that XLA wants to know, by its
        NodeDef.
    """

    def __init__(
        self, functions: Mapping[str, Any], constant_operands: Callable[[Any], Sequence[int]]
    ) -> None:
        self._functions = functions
        self._constant_operands = constant_operands

    @functools.cached_property
    def _varying(self) -> VaryingValues:
        return VaryingValues(self._functions)

    def reason(self, function: str, node: NodeDef) -> str:
        """Why a node is for the host, if it is.

        Args:
          function: the name of its function.
          node: its NodeDef.
        """
        operands = self._operands(function, node)
        return _REASON.format(operand=_operand_name(node, operands[0])) if operands else ""

    def index_nodes(self, function: FunctionDef, found: set[str]) -> set[str]:
        """The nodes that compute the operands of others, and are too little to compile.

        Args:
          function: a FunctionDef.
          found: the nodes of it for which there is a reason, by name.
        """
        nodes = {node.name: node for node in function.node_def}
        pending = []
        for name in found:
            operands = self._operands(function.signature.name, nodes[name])
            pending += [defs.source(nodes[name].input[i]) for i in operands]
        seen: set[str] = set()
        while pending:
            node = nodes.get(pending.pop())
            if node is not None and node.name not in seen and node.op in _INDEX_OPS:
                seen.add(node.name)
                pending += [defs.source(v) for v in node.input if not v.startswith("^")]
        return seen - found

    def _operands(self, function: str, node: NodeDef) -> list[int]:
        if node.op.startswith("Xla") or node.op in self._functions or defs.callees(node):
            return []  # XLA alone has a kernel, or the functions that it calls are asked
        operands = self._constant_operands(node)
        # Lists cannot leave a compiled program, and would take all that uses them along.
        if not operands or defs.handles(node, _VARIANT, self._functions):
            return []
        return [i for i in operands if self._varying.includes(function, node.input[i])]


def _operand_name(node: NodeDef, position: int) -> str:
    """What an op calls its operand at a position."""
    for argument in op_kinds.op_def(node.op).input_arg:
        count = 1
        if argument.number_attr:
            count = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        if position < count:
            return str(argument.name)
        position -= count
    return str(position)
