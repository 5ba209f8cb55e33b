"""Indices that are places in a value of the program, so that its size bounds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hostcall._tf import function_defs as defs

# The results of ops that are places in their first operand.
_PLACES = frozenset(
    {"ArgMax:output:0", "ArgMin:output:0", "TopKV2:indices:0", "Unique:idx:0", "Where:index:0"}
)
# Ops whose results are elements of their first operand.
_SELECTING = frozenset({"ExpandDims", "Identity", "Reshape", "Squeeze", "StridedSlice"})


def holder(value: str, nodes: Mapping[str, Any]) -> str:
    """Return the value in which all indices are places, or "" if none is known."""
    while (node := nodes.get(defs.source(value))) is not None and node.op in _SELECTING:
        value = node.input[0]
    if node is None or f"{node.op}:{value.partition(':')[2]}" not in _PLACES:
        return ""
    return str(node.input[0])
