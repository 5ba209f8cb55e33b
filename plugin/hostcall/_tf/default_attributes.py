"""Attributes that SavedModels leave out because they have the default value."""

from __future__ import annotations

from typing import Any

from hostcall._tf import op_kinds, protos
from hostcall._tf.types import FunctionDefLibrary


def with_defaults(library: FunctionDefLibrary) -> Any:
    """A copy of a FunctionDefLibrary in which all nodes have all their attributes.

    Which kernels an op has is asked by its attributes, and a missing one answers no question.
    """
    copy = protos.function_pb2.FunctionDefLibrary()
    copy.CopyFrom(library)
    for node in (node for function in copy.function for node in function.node_def):
        definition = op_kinds.op_def_or_none(node.op)
        for attr in definition.attr if definition is not None else ():
            if attr.HasField("default_value") and attr.name not in node.attr:
                node.attr[attr.name].CopyFrom(attr.default_value)
    return copy
