"""Checks of what only XLA can tell, when it knows all shapes.

Two kernels of ours (csrc/tensorflow/size_checks.cc) pass values on and refuse what XLA would get
wrong: results of conditionals whose branches return different sizes, and elements of another dtype
than a list has. What is refused is put on the host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler.bounded import unequal_branches
from hostcall._compiler.bounded.flow import ANY_DIMENSION
from hostcall._compiler.bounded.sizes import Source
from hostcall._compiler.function_edits import FunctionEdits
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds, protos
from hostcall._tf.types import Functions

_LIST = "HostcallList"
_VARIANT = tf.variant.as_datatype_enum
# What works with the elements of a list.
LIST_OPS = {
    "TensorListConcat",
    "TensorListConcatV2",
    "TensorListGather",
    "TensorListGetItem",
    "TensorListPopBack",
    "TensorListPushBack",
    "TensorListSetItem",
    "TensorListStack",
}
# What gets a check.
KINDS = LIST_OPS | op_kinds.BRANCH_OPS


def add(
    functions: Functions,
    bounded: Mapping[Source, set[tuple[int, int]]],
    hosted: Collection[Source],
) -> set[str]:
    """Add the checks to functions that are going to be compiled.

    Args:
      functions: FunctionDefs by name, changed in place.
      bounded: of conditionals, the (result, dimension)s that may be bounded, and are right so.
      hosted: what is not compiled anyway.

    Returns:
      The names of the functions that have changed.
    """
    changed = set()
    for name, function in functions.items():
        edits = FunctionEdits(function)
        for node in defs.nodes_of(function, op_kinds.BRANCH_OPS):
            if (name, node.name) not in hosted:
                _check_results(edits, node, bounded.get((name, node.name), set()))
        for node in defs.nodes_of(function, LIST_OPS):
            if node.attr["element_dtype"].type != _VARIANT:
                _check_list(edits, node)
        if edits.write():
            changed.add(name)
    return changed


def _check_results(edits: FunctionEdits, node: Any, allowed: set[tuple[int, int]]) -> None:
    results = [i for i in unequal_branches.arrays(node) if (i, ANY_DIMENSION) not in allowed]
    if not results:
        return
    types = node.attr["Tout"].list.type
    check = protos.node_def_pb2.NodeDef(
        name=edits.unused(f"{node.name}/sizes"), op=op_kinds.KNOWN_SIZES
    )
    for position, i in enumerate(results):
        edits.change(f"{node.name}:output:{i}", f"{check.name}:output:{position}")
        check.input.append(f"{node.name}:output:{i}")
        check.attr["T"].list.type.append(types[i])
    check.attr["conditional"].s = node.name.encode()
    pairs = sorted((results.index(i), dim) for i, dim in allowed if i in results)
    check.attr["bounded"].list.i.extend(n for pair in pairs for n in pair)
    edits.after(node.name, [check])


def _check_list(edits: FunctionEdits, node: Any) -> None:
    check = protos.node_def_pb2.NodeDef(name=edits.unused(f"{node.name}/list"), op=_LIST)
    check.input.append(node.input[0])
    check.attr["dtype"].type = node.attr["element_dtype"].type
    check.attr["user"].s = node.name.encode()
    node.input[0] = f"{check.name}:output:0"
    edits.before(node.name, [check])
