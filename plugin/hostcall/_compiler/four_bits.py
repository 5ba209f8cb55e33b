"""Integers of four bits at the border of a compiled function, where XLA misreads them.

TensorFlow's tensors have one int4 or uint4 in a byte, and XLA's programs two. TensorFlow hands the
buffers over as they are: a program reads every other argument as zero, and returns half of its
results. Variables are such buffers, too.

So a function that takes or returns these becomes a *caller* of a copy that takes and returns
integers of eight bits. The caller runs on the host and casts. The copy is a must-compile function
of its own, whose kernel is made like any other. Ops on variables of four bits go to the host, which
values leave as integers of eight bits as well. Inside a program, all is right.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from hostcall._tf.graph import attributes, function_edits, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef

_CALL = "hostcall_of_eight_bits"
_MISREAD = "XLA has two {dtype} in a byte, and the variable has one"


def cross(function: FunctionDef) -> bool:
    """Return whether a function takes or returns integers of four bits."""
    return not defs.WIDE.keys().isdisjoint(defs.fixed_types(function.signature))


def are_misread(library: FunctionDefLibrary, entry: str) -> bool:
    """Return whether XLA would misread values of a function; see reachable.cc."""
    functions = defs.reachable(library, entry)
    if cross(functions[entry]):
        return True
    nodes = (node for function in functions.values() for node in function.node_def)
    return any(map(misread_variable, nodes))


def called_wide(function: FunctionDef, digest: str, suffix: str) -> tuple[Any, Any]:
    """Return the caller of a function's copy that takes and returns wide integers, and the copy."""
    # The name of the caller has the `suffix`. TensorFlow has no other function of these names.
    copy: Any = protos.copy_of(function)
    copy.signature.name = f"{function.signature.name}{digest}{function_names.OF_EIGHT_BITS}"
    copy.attr[defs.MUST_COMPILE].b = True
    function_edits.set_context(copy, function)
    caller = _caller_of(copy, suffix)
    function_edits.take_wide(copy, defs.WIDE)
    function_edits.pass_wide(caller, caller.node_def[0], defs.WIDE)
    return caller, copy


def _caller_of(function: FunctionDef, suffix: str) -> FunctionDef:
    """Return a function that does nothing but call a must-compile function."""
    caller: FunctionDef = protos.function_pb2.FunctionDef(signature=function.signature)
    caller.signature.name += f"{suffix}__caller"
    caller.arg_attr.MergeFrom(function.arg_attr)
    caller.resource_arg_unique_id.update(function.resource_arg_unique_id)
    function_edits.set_context(caller, function)
    arguments = [arg.name for arg in caller.signature.input_arg]
    name = _CALL
    while name in arguments:
        name += "_"
    call = defs.call_node(name, function.signature, arguments, function.signature.is_stateful)
    call.attr[defs.MUST_COMPILE].b = True
    caller.node_def.append(call)
    for index, result in enumerate(caller.signature.output_arg):
        caller.ret[result.name] = f"{name}:output:{index}"
    del caller.signature.control_output[:]
    function_edits.add_control_output(caller, name)
    return caller


def mark_variables(library: FunctionDefLibrary) -> None:
    """Mark the ops on variables of four bits for the host, in place."""
    for function in library.function:
        if any(arg.type == defs.RESOURCE for arg in function.signature.input_arg):
            for node in function.node_def:
                if reason := misread_variable(node):
                    # No region may return what it reads: nothing there knows a variable's shape.
                    reads = len(op_kinds.op_def(node.op).output_arg) > 0
                    mark = attributes.BLOCKER if reads else attributes.WRONG
                    node.attr[mark].s = reason.encode()


def misread_variable(node: NodeDef) -> str:
    """Return why a program must not run an op on a variable of four bits; "" for other ops."""
    for attr in _attrs_of_variable(node.op):
        if attr in node.attr and node.attr[attr].type in defs.WIDE:
            return _MISREAD.format(dtype=tf.as_dtype(node.attr[attr].type).name)
    return ""


@functools.cache
def _attrs_of_variable(op: str) -> tuple[str, ...]:
    """Return the attributes of an op on variables that tell dtypes."""
    definition = op_kinds.op_def_or_none(op)
    if definition is None or all(arg.type != defs.RESOURCE for arg in definition.input_arg):
        return ()
    return tuple(attr.name for attr in definition.attr if attr.type == "type")
