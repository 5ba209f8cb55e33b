"""Nodes that take part in a FunctionDef besides those that TensorFlow traced."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import op_kinds, protos

_INT32 = tf.int32.as_datatype_enum
_COMPARISONS = frozenset({"Equal", "NotEqual"})


class NodeWriter:
    """Makes nodes.

    Args:
      prefix: of their names; a number follows.
      device: of the nodes.

    Attributes:
      nodes: the NodeDefs, in their order.
    """

    def __init__(self, prefix: str, device: str = "") -> None:
        self._prefix = prefix
        self._device = device
        self.nodes: list[Any] = []

    def add(self, op: str, *inputs: str, **types: int) -> str:
        """Add a node; returns its first result. `types` are attributes."""
        name = f"{self._prefix}_{len(self.nodes)}"
        node = protos.node_def_pb2.NodeDef(name=name, op=op, input=inputs, device=self._device)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype
        if op in _COMPARISONS:
            node.attr["incompatible_shape_error"].b = True
        self.nodes.append(node)
        return f"{name}:{op_kinds.op_def(op).output_arg[0].name}:0"

    def constant(self, value: Any, dtype: int, shape: list[int] | None = None) -> str:
        """Add a constant of a dtype, by its number in TensorFlow; returns it."""
        result = self.add("Const", dtype=dtype)
        tensor = tf.make_tensor_proto(value, tf.as_dtype(dtype), shape)
        self.nodes[-1].attr["value"].tensor.CopyFrom(tensor)
        return result

    def join(self, first: str, second: str, dtype: int) -> str:
        """Add the concatenation of two vectors of a dtype; returns it."""
        axis = self.constant(0, _INT32)
        result = self.add("ConcatV2", first, second, axis, T=dtype, Tidx=_INT32)
        self.nodes[-1].attr["N"].i = 2
        return result
