"""Execution of partitioned functions: their rendezvous, and one thread where that is enough.

The parts of a function on several devices meet by a rendezvous. TensorFlow's call kernels make one
from the settings of the function runtime. Some runtimes lack them, say that of an iterator that
sessions share. So hostcall's kernels bring a rendezvous (partitioned_function_kernel.cc).

Handing a callback of a few microseconds from thread to thread takes many. TensorFlow has an
executor that runs a function's nodes one after the other, on the caller's thread. It knows loops
and branches only as calls of functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._tf import attributes, op_kinds
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef

# On a function: TensorFlow passes it the rendezvous of the calling kernel.
_SHARED_ATTR = "shared_rendezvous"


def bring_rendezvous(functions: Mapping[str, Any]) -> None:
    """Make each call of the functions of a partitioning bring its own rendezvous."""
    on_host = {name for name, f in functions.items() if attributes.CLUSTER not in f.attr}
    for name in on_host:
        functions[name].attr[_SHARED_ATTR].b = True
        for node in functions[name].node_def:
            if node.op in defs.CALL_OPS and node.attr["f"].func.name in on_host:
                node.attr[attributes.INNER_CALL].b = True


EXECUTOR = b"SINGLE_THREADED_EXECUTOR"

# TensorFlow lowers an op with it to nodes that only its other executor can run.
_LOWER_ATTR = "_lower_using_switch_merge"


def all_are_for(device: str, functions: Iterable[Any]) -> bool:
    """Return whether no node of some FunctionDefs is meant for another device."""
    here = tf.DeviceSpec.from_string(device)
    wanted = {node.device for function in functions for node in function.node_def}
    return all(here.make_merged_spec(tf.DeviceSpec.from_string(w)) == here for w in wanted)


def run_in_sequence(functions: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Make partitioned functions run on one thread, if none of their nodes could run in parallel.

    All nodes must be for one device: nodes on several devices wait for each other in an order that
    is not known here.

    Args:
      functions: the functions of a partitioning.
      old: other functions that clusters may call.
    """
    on_host = [f for f in functions.values() if attributes.CLUSTER not in f.attr]
    if not all(map(_is_sequence, on_host)):
        return
    clusters = functions.keys() - {function.signature.name for function in on_host}
    for function in on_host:
        function.attr[attributes.SEQUENTIAL].b = True
        for node in function.node_def:
            node.attr.pop(_LOWER_ATTR, None)
            called = clusters.intersection(defs.called_functions(node, functions))
            # TensorFlow's kernels may run a cluster, and use the executor of its call.
            is_lowered = any(_is_lowered(name, {**old, **functions}) for name in called)
            if "executor_type" in node.attr and not is_lowered:
                node.attr["executor_type"].s = EXECUTOR
            if _may_fail_unnamed(node):
                node.attr[attributes.NOTES_ERRORS].b = True


def _is_lowered(name: str, functions: Mapping[str, Any]) -> bool:
    """Return whether a function, or one that it calls, has an op that becomes several nodes."""
    reached = defs.reachable_in(functions, name).values()
    return any(_LOWER_ATTR in node.attr for function in reached for node in function.node_def)


def _is_sequence(function: FunctionDef) -> bool:
    """Return whether a function's nodes that take time or have effects wait for each other."""
    if defs.has_frames(function):
        return False
    nodes = defs.program_order(function)
    before: list[int] = []
    count = 0
    for node, predecessors in zip(nodes, defs.predecessors(nodes), strict=True):
        takes_time = _takes_time(node)
        count += takes_time
        before.append(max((before[i] for i in predecessors), default=0) + takes_time)
    return max(before, default=0) == count


def _may_fail_unnamed(node: NodeDef) -> bool:
    """Return whether an error of a node would name neither the node nor its failing part."""
    if node.op in ("Const", "NoOp") or node.op in op_kinds.SCRIPT_OPS or defs.callees(node):
        return False
    return op_kinds.op_def_or_none(node.op) is not None


def _takes_time(node: NodeDef) -> bool:
    if node.op in op_kinds.SCRIPT_OPS or defs.callees(node):
        return True
    definition = op_kinds.op_def_or_none(node.op)
    # It calls a function or has an effect. Reading a variable is quick, and waits for nothing.
    return definition is None or (definition.is_stateful and node.op != "ReadVariableOp")
