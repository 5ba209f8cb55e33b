"""Rewrites of loops and branches that XLA would compile wrong, or crash on.

XLA does not compute the condition of a loop whose iterations it can count, even if the condition
has side effects. So ordinary calls compute it, before the loop and at the end of each iteration:

    while cond(x):          go = cond(x)
        x = body(x)   ->    while go:
                                x = body(x)
                                go = cond(x)

XLA would end the process if the branches of a conditional returned different shapes. So each branch
passes its results through a node that compares their shapes: `csrc/tensorflow/size_checks.cc`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._compiler.analyses import loops
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import function_edits, op_kinds, protos
from hostcall._tf.types import FunctionDef, NodeDef

# Also the name of the argument and of the result that carry the condition.
_CARRIED = "hostcall_condition"
_ITERATION = "hostcall_iteration"


def carry(
    functions: Mapping[str, Any], has_effect: Callable[[str], bool], prefix: str
) -> dict[str, Any]:
    """Return functions whose loops, changed in copies, have no side effects in their conditions."""
    carried = dict(functions)
    pending = list(functions)
    for name in pending:
        function = carried[name]
        found = [
            index
            for index, node in enumerate(function.node_def)
            if node.op in op_kinds.LOOP_OPS and _must_carry(node, carried, has_effect)
        ]
        if found:
            carried[name] = protos.copy_of(function)
        for index in reversed(found):  # `_carry` inserts a node before each
            stem = f"{prefix}__{name}__{function.node_def[index].name}".replace("/", "__")
            for new in _carry(carried[name], index, carried, stem):
                carried[new.signature.name] = new
                pending.append(new.signature.name)  # there may be loops in it
    return carried


def _must_carry(
    node: NodeDef, functions: Mapping[str, Any], has_effect: Callable[[str], bool]
) -> bool:
    if not has_effect(node.attr["cond"].func.name):
        return False
    # Both conditions below hold for each loop that TensorFlow's Python code makes.
    results = functions[node.attr["cond"].func.name].signature.output_arg
    body = functions[node.attr["body"].func.name]
    arguments = enumerate(body.signature.input_arg)
    resources = {number for number, argument in arguments if argument.type == defs.RESOURCE}
    return [result.type for result in results] == [defs.BOOL] and resources <= loops.invariants(
        body
    )


def before_resources(types: Sequence[int]) -> int:
    """Return the position in front of the resources, or behind all if values are mixed."""
    # TensorFlow moves resources behind all other arguments, and may crash where a function is used
    # twice. They are there already, unless the user's values are mixed.
    resources = [dtype == defs.RESOURCE for dtype in types]
    first = resources.index(True) if True in resources else len(types)
    return first if all(resources[first:]) else len(types)


def carry_through(function: FunctionDef, loop: NodeDef, value: str, dtype: int) -> str:
    """Let a loop carry one more scalar, before its resources; return the scalar behind the loop."""
    types = loop.attr["T"].list.type
    position = before_resources(types)
    loop.input.insert(position, value)
    for i in reversed(range(position, len(types))):
        result = f"{loop.name}:output"
        function_edits.replace_value(function, f"{result}:{i}", f"{result}:{i + 1}")
    _insert_shape(loop, position, len(types))
    types.insert(position, dtype)
    return f"{loop.name}:output:{position}"


def add_result(node: NodeDef, dtype: int) -> str:
    """Let a branch or a call return one more scalar, behind its results; return the scalar."""
    types = node.attr["Tout"].list.type
    _insert_shape(node, len(types), len(types))
    types.append(dtype)
    return f"{node.name}:output:{len(types) - 1}"


def _insert_shape(node: NodeDef, position: int, count: int) -> None:
    """Insert the shape of a scalar into the shapes of a node's results, if it has all of them."""
    shapes = node.attr["output_shapes"].list.shape if "output_shapes" in node.attr else ()
    if shapes and len(shapes) == count:
        shapes.insert(position, tf.TensorShape([]).as_proto())


def _carry(function: FunctionDef, index: int, functions: Mapping[str, Any], stem: str) -> list[Any]:
    """Change one loop of a function so that it carries its condition; return the new functions."""
    loop = function.node_def[index]
    condition = functions[loop.attr["cond"].func.name]
    body = functions[loop.attr["body"].func.name]
    count = len(loop.attr["T"].list.type)
    values, order = list(loop.input[:count]), list(loop.input[count:])
    first = _call(f"{loop.name}/{_CARRIED}", condition, [*values, *order])
    loop.input[:] = [*values, f"{first.name}:output:0", *order]
    loop.attr["T"].list.type.append(defs.BOOL)
    if loop.attr["output_shapes"].list.shape:
        loop.attr["output_shapes"].list.shape.add()  # the shape of a scalar
    carried = _condition(condition, f"{stem}__condition")
    same = loops.invariants(body)
    iteration = _without_results(body, same, f"{stem}__iteration") if same else body
    around = _body(body, iteration, same, condition, f"{stem}__body")
    loop.attr["cond"].func.name = carried.signature.name
    loop.attr["body"].func.name = around.signature.name
    # Without edges, nodes run in their order here: at the end, the call and the loop would be last.
    function.node_def.insert(index, first)
    return [carried, around, *([iteration] if iteration is not body else [])]


def _condition(condition: FunctionDef, name: str) -> FunctionDef:
    """Return a condition that returns its last argument."""
    new = _new(name, condition)
    new.signature.output_arg.add(name=_CARRIED, type=defs.BOOL)
    new.ret[_CARRIED] = _CARRIED
    return new


def _without_results(body: FunctionDef, numbers: set[int], name: str) -> FunctionDef:
    """Return a copy of a body without some of its results."""
    iteration = protos.copy_of(body)
    iteration.signature.name = name
    for number in sorted(numbers, reverse=True):
        iteration.ret.pop(iteration.signature.output_arg[number].name)
        del iteration.signature.output_arg[number]
    return iteration


def _body(
    body: FunctionDef, iteration: FunctionDef, same: set[int], condition: FunctionDef, name: str
) -> FunctionDef:
    """Return a body that also computes the condition for the next iteration."""
    # It calls `iteration`: the old body without the results that are its arguments. The new body
    # returns these (`same`) itself: XLA accepts no variable from a call, and recognizes constants
    # and sizes only in returned arguments.
    new = _new(name, body)
    new.signature.is_stateful = True
    new.signature.output_arg.extend(body.signature.output_arg)
    new.signature.output_arg.add(name=_CARRIED, type=defs.BOOL)
    arguments = [argument.name for argument in body.signature.input_arg]
    called = _call(_ITERATION, iteration, arguments)
    outputs = itertools.count()
    results = [
        argument if number in same else f"{_ITERATION}:output:{next(outputs)}"
        for number, argument in enumerate(arguments)
    ]
    after = _call(f"{_ITERATION}/{_CARRIED}", condition, [*results, f"^{_ITERATION}"])
    new.node_def.extend([called, after])
    for result, value in zip(body.signature.output_arg, results, strict=True):
        new.ret[result.name] = value
    new.ret[_CARRIED] = f"{after.name}:output:0"
    for node in (called, after):
        function_edits.add_control_output(new, node.name)
    return new


def _new(name: str, function: FunctionDef) -> FunctionDef:
    """Return an empty function that takes the arguments of another one and the condition."""
    new: FunctionDef = protos.function_pb2.FunctionDef()
    new.signature.name = name
    new.signature.input_arg.extend(function.signature.input_arg)
    new.signature.input_arg.add(name=_CARRIED, type=defs.BOOL)
    for number, attributes in function.arg_attr.items():
        new.arg_attr[number].CopyFrom(attributes)
    # TensorFlow adds an attribute that is missing, and then takes the function for another one.
    for attribute, value in function.attr.items():
        new.attr[attribute].CopyFrom(value)
    return new


def _call(name: str, function: FunctionDef, inputs: list[str]) -> NodeDef:
    return defs.call_node(name, function.signature, inputs, stateful=True)


_NAME = "hostcall_branch_results"


def compare_results(branch: FunctionDef, conditional: str, branches: Sequence[str]) -> None:
    """Pass a branch's results through a node that compares their shapes with other branches."""
    results = [r for r in branch.signature.output_arg if r.type not in defs.NO_ARRAYS]
    if not results:
        return
    node = branch.node_def.add(name=_NAME, op="HostcallBranchResults")
    node.input.extend(branch.ret[result.name] for result in results)
    node.attr["T"].list.type.extend(result.type for result in results)
    node.attr["conditional"].s = conditional.encode()
    node.attr["key"].s = "/".join([conditional, *branches]).encode()
    node.attr["branches"].i = len(branches)
    for i, result in enumerate(results):
        branch.ret[result.name] = f"{_NAME}:outputs:{i}"
