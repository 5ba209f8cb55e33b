"""Tensors of ones whose size is that of a tensor of bounded size.

XLA fills the padding with ones, too, and says of the result that its size is the bound. What is
computed of the tensor instead has its true size.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import function_defs as defs
from hostcall._tf import protos
from hostcall._tf.types import Functions, NodeDef

_BOOL = tf.bool.as_datatype_enum


def spell_out(functions: Functions) -> set[str]:
    """Put, in the place of each OnesLike in FunctionDefs, what it comes to.

    It is one where zero equals zero: `Cast(Equal(ZerosLike(x), ZerosLike(x)))`. The Cast takes the
    op's name, and calls its result as that does, so that what uses it need not change.

    Returns:
      The names of the functions that have changed.
    """
    changed = set()
    for name, function in functions.items():
        for node in defs.nodes_of(function, {"OnesLike"}):
            changed.add(name)
            position = [other.name for other in function.node_def].index(node.name)
            for new in reversed(_zeros_and_equal(node)):
                function.node_def.insert(position, new)
            node = function.node_def[position + 2]  # noqa: PLW2901 - the same one
            node.op = "Cast"
            node.input[0] = f"{node.name}/hostcall_equal:z:0"
            dtype = node.attr["T"].type
            del node.attr["T"]
            node.attr["SrcT"].type, node.attr["DstT"].type = _BOOL, dtype
    return changed


def _zeros_and_equal(node: NodeDef) -> list[Any]:
    name, dtype = node.name, node.attr["T"].type
    zeros = protos.node_def_pb2.NodeDef(
        name=f"{name}/hostcall_zeros", op="ZerosLike", input=[node.input[0]], device=node.device
    )
    equal = protos.node_def_pb2.NodeDef(
        name=f"{name}/hostcall_equal",
        op="Equal",
        input=[f"{name}/hostcall_zeros:y:0"] * 2,
        device=node.device,
    )
    zeros.attr["T"].type = equal.attr["T"].type = dtype
    equal.attr["incompatible_shape_error"].b = True
    return [zeros, equal]
