"""Conditionals whose branches are known to return different sizes.

XLA makes a bounded dimension of such a result, and takes one that is 1 for that of whatever the
result is broadcast with. On the host, a branch returns what it has.
"""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf

from hostcall._compiler.bounded.inferred_shapes import Inferred, argument_shapes
from hostcall._compiler.bounded.sizes import Shape, Source
from hostcall._tf import attributes, op_kinds
from hostcall._tf import function_defs as defs
from hostcall._tf.types import Functions, NodeDef

REASON = "its branches return different sizes, which are only bounded in a compiled program"

_NO_ARRAYS = frozenset(t.as_datatype_enum for t in (tf.resource, tf.variant, tf.string))


def find(functions: Functions) -> dict[Source, str]:
    """Find them in FunctionDefs, with the reason why each is for the host."""
    found = {}
    for name, function in functions.items():
        for node in defs.nodes_of(function, op_kinds.BRANCH_OPS):
            if _may_differ(node) and _differ(node, functions):
                found[name, node.name] = REASON
    return found


def arrays(node: NodeDef) -> list[int]:
    """List the results of a conditional that XLA has arrays of, by their numbers."""
    types = node.attr["Tout"].list.type
    return [i for i, dtype in enumerate(types) if dtype not in _NO_ARRAYS]


def _may_differ(node: NodeDef) -> bool:
    """Whether tracing leaves sizes of results open, or has seen different ones.

    With a gradient TensorFlow writes a conditional anew, with the shapes of one branch.
    """
    shapes = node.attr["output_shapes"].list.shape
    return attributes.BRANCHES_DIFFER in node.attr or any(
        i >= len(shapes) or not tf.TensorShape(shapes[i]).is_fully_defined() for i in arrays(node)
    )


def _differ(node: NodeDef, functions: Functions) -> bool:
    names = defs.called_functions(node, functions)
    if not all(name in functions for name in names):
        return False
    results = [_result_shapes(functions[name], functions) for name in names]
    return any(
        _sizes_differ(one[i], other[i])
        for one, other in itertools.pairwise(results)
        for i in arrays(node)
    )


def _result_shapes(function: Any, functions: Functions) -> list[Shape | None]:
    inferred = Inferred(function, argument_shapes(function), functions)
    values = [function.ret[result.name] for result in function.signature.output_arg]
    return [inferred.shape(*inferred.position(value)) for value in values]


def _sizes_differ(one: Shape | None, other: Shape | None) -> bool:
    if one is None or other is None:
        return False
    if len(one) != len(other):
        return True
    return any(None not in pair and pair[0] != pair[1] for pair in zip(one, other, strict=True))
