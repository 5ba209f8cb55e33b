"""Indices that are places in a value of the program, so that its size bounds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hostcall._tf.graph import function_defs as defs

# The results of ops that are places among all elements of their first operand, or along an axis.
_PLACES = frozenset({"Unique:idx:0", "Where:index:0"})
_ALONG_AXIS = frozenset({"ArgMax:output:0", "ArgMin:output:0"})
_ALONG_LAST = frozenset({"TopKV2:indices:0"})
# Ops whose results are elements of their first operand.
_SELECTING = frozenset({"ExpandDims", "Identity", "Reshape", "Squeeze", "StridedSlice"})


class Holder(NamedTuple):
    """A value in which indices are places, along one dimension if that is known."""

    value: str
    dimension: int | None = None


def holder(value: str, nodes: Mapping[str, Any]) -> Holder | None:
    """Return where all indices are places, or None if that is not known."""
    while (node := nodes.get(defs.source(value))) is not None and node.op in _SELECTING:
        value = node.input[0]
    if node is None:
        return None
    result = f"{node.op}:{value.partition(':')[2]}"
    if result in _ALONG_AXIS:
        axis = defs.constant(nodes.get(defs.source(node.input[1])))
        if axis is not None:
            return Holder(node.input[0], int(axis))
    if result in _ALONG_LAST:
        return Holder(node.input[0], -1)
    return Holder(node.input[0]) if result in _PLACES | _ALONG_AXIS else None
