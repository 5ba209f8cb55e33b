"""Floats of eight bits in loops and branches on an accelerator.

TensorFlow lowers those to `Switch` and `Merge`, and has neither for such floats. So loops and
branches carry them as floats of sixteen bits, which hold each of their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef

_NARROW = frozenset(
    getattr(tf.dtypes.experimental, name).as_datatype_enum
    for name in ("float8_e5m2", "float8_e4m3fn")
)
_WIDE = tf.float16.as_datatype_enum
# Of the names of functions that take and return wide floats.
_SUFFIX = "__of_wide_floats"


def carry(functions: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Has loops and branches outside of clusters carry wide floats instead of narrow ones.

    Args:
      functions: the FunctionDefs of a partitioned function, by name. Changed in place; what loops
        and branches call gets a copy, which is added.
      others: those that they may call besides.
    """
    pending = [f for f in functions.values() if attributes.CLUSTER not in f.attr]
    while pending:
        function = pending.pop()
        for node in list(function.node_def):
            if node.op in op_kinds.LOOP_OPS | op_kinds.BRANCH_OPS and _carries_narrow(node):
                pending += _call_with_wide(node, functions, others)
                _pass_wide(function, node)


def _carries_narrow(node: NodeDef) -> bool:
    return any(defs.handles(node, dtype, {}) for dtype in _NARROW)


def _call_with_wide(
    node: NodeDef, functions: dict[str, Any], others: Mapping[str, Any]
) -> list[Any]:
    """Makes a node call functions of wide floats; returns those that are new."""
    made = []
    for callee in defs.callees(node):
        old, callee.name = callee.name, callee.name + _SUFFIX
        if callee.name not in functions:
            new = protos.function_pb2.FunctionDef()
            new.CopyFrom(functions[old] if old in functions else others[old])
            _take_wide(new)
            functions[callee.name] = new
            made.append(new)
    return made


def _take_wide(function: FunctionDef) -> None:
    """Makes a function take and return wide floats instead of narrow ones."""
    function.signature.name += _SUFFIX
    for arg in _narrow_of(function.signature.input_arg):
        defs.cast_uses(function, f"{arg.name}__narrow", arg.name, _WIDE, arg.type)
        arg.type = _WIDE
    for arg in _narrow_of(function.signature.output_arg):
        returned = function.ret[arg.name]
        wide = defs.add_cast(function, f"{arg.name}__wide", returned, arg.type, _WIDE)
        function.ret[arg.name] = wide
        arg.type = _WIDE


def _narrow_of(arguments: Any) -> list[Any]:
    return [arg for arg in arguments if arg.type in _NARROW]


def _pass_wide(function: FunctionDef, node: NodeDef) -> None:
    """Makes a loop or branch take and return wide floats."""
    definition = op_kinds.op_def(node.op)
    taken, returned = definition.input_arg[-1], definition.output_arg[0]
    first = len(definition.input_arg) - 1  # the others are one value each
    for index, dtype in enumerate(_types(node, taken.type_list_attr)):
        if dtype in _NARROW:
            value = node.input[first + index]
            wide = defs.add_cast(function, f"{node.name}__in_{index}", value, dtype, _WIDE)
            node.input[first + index] = wide
    for index, dtype in enumerate(_types(node, returned.type_list_attr)):
        if dtype in _NARROW:
            value = f"{node.name}:{returned.name}:{index}"
            defs.cast_uses(function, f"{node.name}__out_{index}", value, _WIDE, dtype)
    for name in {taken.type_list_attr, returned.type_list_attr}:
        types = _types(node, name)
        node.attr[name].list.type[:] = [_WIDE if dtype in _NARROW else dtype for dtype in types]


def _types(node: NodeDef, attr: str) -> list[int]:
    return list(node.attr[attr].list.type)
