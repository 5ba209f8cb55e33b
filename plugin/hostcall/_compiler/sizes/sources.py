"""Sources: ops whose results have sizes that are known only at run time.

XLA gives these sizes a *bounded dimension*: a buffer of the largest size, with the true size beside
it. A test compiles each of XLA's kernels, and fails for one that makes a bounded dimension and is
missing here (tests/kernels/test_wrong_kernels.py).

Conditionals whose branches return different sizes are sources too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import tensorflow as tf

from hostcall._compiler.analyses.sizes import Inferred, Shape, Source, argument_shapes
from hostcall._compiler.ops import OPS
from hostcall._tf.graph import attributes, op_kinds
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, Functions, NodeDef


def find_unequal_branches(functions: Functions) -> set[Source]:
    """Find the conditionals whose branches differ in size."""
    return {
        (name, node.name)
        for name, function in functions.items()
        for node in defs.nodes_of(function, op_kinds.BRANCH_OPS)
        if _may_differ(node) and _differ(node, functions)
    }


def open_sizes(functions: Functions, unequal: Collection[Source]) -> set[str]:
    """Note that the sizes of some conditionals are open; return the names of their functions."""
    # For gradients, TensorFlow notes the sizes of the first branch, and computes with them.
    for name, conditional in unequal:
        (node,) = (n for n in functions[name].node_def if n.name == conditional)
        shapes = [
            [tf.TensorShape(None if s is None else [*s]) for s in _result_shapes(f, functions)]
            for f in (functions[called] for called in defs.called_functions(node, functions))
        ]
        for i in arrays(node):
            first, *others = (results[i] for results in shapes)
            joined = functools.reduce(tf.TensorShape.most_specific_compatible_shape, others, first)
            if i < len(noted := node.attr["output_shapes"].list.shape):
                noted[i].CopyFrom(joined.as_proto())
    return {name for name, _ in unequal}


def arrays(node: NodeDef) -> list[int]:
    """List the numbers of a conditional's results that are arrays for XLA."""
    types = node.attr["Tout"].list.type
    return [i for i, dtype in enumerate(types) if dtype not in defs.NO_ARRAYS]


def _may_differ(node: NodeDef) -> bool:
    """Return whether tracing leaves result sizes open, or has seen different ones."""
    # To read an attribute that is not there would add it.
    shapes = node.attr["output_shapes"].list.shape if "output_shapes" in node.attr else ()
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


def _result_shapes(function: FunctionDef, functions: Functions) -> list[Shape | None]:
    inferred = Inferred(function, argument_shapes(function), functions)
    values = [function.ret[result.name] for result in function.signature.output_arg]
    return [inferred.shape(*inferred.position(value)) for value in values]


def _sizes_differ(one: Shape | None, other: Shape | None) -> bool:
    if one is None or other is None:
        return False
    if len(one) != len(other):
        return True
    return any(None not in pair and pair[0] != pair[1] for pair in zip(one, other, strict=True))


# Sources whatever their operands are, and those of others that are open.
ALWAYS = frozenset(name for name, op in OPS.items() if op.is_bounded)
BY_OPERANDS: Mapping[str, tuple[int, ...]] = {
    name: op.bounded_by for name, op in OPS.items() if op.bounded_by
}
# Ops whose results XLA never knows when it compiles.
OPAQUE_OPS = op_kinds.BRANCH_OPS | op_kinds.LOOP_OPS | op_kinds.SCRIPT_OPS


def sizing_operands(node: NodeDef) -> Sequence[int]:
    """Return the positions of the operands that may make a bounded dimension in a node."""
    if node.op.startswith("Xla") or node.op in OPAQUE_OPS:
        return ()
    return BY_OPERANDS.get(node.op) or op_kinds.constant_operands(node)


def in_function(function: FunctionDef, is_entry: bool) -> bool:
    """Return quickly whether a function may hold a source; XLA knows the arguments of an entry."""
    # Large functions have few kinds of ops.
    by_kind: dict[str, list[Any]] = {}
    for node in function.node_def:
        by_kind.setdefault(node.op, []).append(node)
    if not ALWAYS.isdisjoint(by_kind):
        return True
    constant = {node.name for node in by_kind.get("Const", ())}
    wanted = [
        found
        for nodes in by_kind.values()
        if sizing_operands(nodes[0])
        for found in _open_sizes(nodes, constant)
    ]
    if not wanted:
        return False
    known = _known(function, is_entry)
    return any(not _sizes_are_known(node, inputs, known, function) for node, inputs in wanted)


def _open_sizes(
    nodes: Sequence[Any], constant: AbstractSet[str]
) -> Iterator[tuple[Any, list[str]]]:
    """Yield the nodes of one kind with sizes that no constants give, and what gives the sizes."""
    positions: dict[int, Sequence[int]] = {}  # by the number of inputs, which may vary
    for node in nodes:
        count = len(node.input)
        if count not in positions:
            positions[count] = sizing_operands(node)
        inputs = [node.input[i].partition(":")[0] for i in positions[count]]
        if not constant >= {*inputs}:
            yield node, inputs


def _known(function: FunctionDef, is_entry: bool) -> set[str]:
    """Return the nodes and arguments whose values XLA knows when it compiles."""
    known = {arg.name for arg in function.signature.input_arg} if is_entry else set()
    for node in defs.program_order(function):
        if node.op == "Const" or node.op in op_kinds.SHAPE_OPS:
            known.add(node.name)
            continue
        definition = op_kinds.op_def_or_none(node.op)
        if definition is None or definition.is_stateful or node.op in OPAQUE_OPS:
            continue
        if all(defs.source(value) in known for value in node.input if not value.startswith("^")):
            known.add(node.name)
    return known


def _sizes_are_known(
    node: NodeDef, inputs: Sequence[str], known: AbstractSet[str], function: FunctionDef
) -> bool:
    unknown = [name for name in inputs if name not in known]
    if node.op != "StridedSlice" or not unknown:
        return not unknown
    # Taking one element, as in the usual `x[i]`, fixes the size whatever the position is.
    nodes = {n.name: n for n in defs.nodes_of(function, {"Pack"})}
    shrinks = node.attr["shrink_axis_mask"].i
    for name in unknown:
        parts = nodes[name].input if name in nodes else ()
        if not parts or any(
            defs.source(part) not in known and not shrinks >> i & 1 for i, part in enumerate(parts)
        ):
            return False
    return True
