"""The function that runs clusters and host ops, and clusters that are compiled once.

TensorFlow keeps compiled programs by the name of the function. A function that is traced again, by
a new `tf.function` of it say, has clusters that differ only in their names. So `share` makes the
names from the contents, the names of the nodes included.

The parts of a function on several devices meet by a rendezvous, which TensorFlow's call kernels
make from the settings of the function runtime. Some runtimes lack them, say that of an iterator
that sessions share. So hostcall's kernels bring one (partitioned_function_kernel.cc).

Handing a callback of a few microseconds from thread to thread takes many. TensorFlow has an
executor that runs a function's nodes one after the other, on the caller's thread. It knows loops
and branches only as calls of functions.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._tf.graph import attributes, function_edits, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef

_DIGITS = 32  # of a digest


def share(functions: dict[str, FunctionDef], others: Mapping[str, FunctionDef]) -> None:
    """Rename clusters, and copies of `others` that they call, by their contents, to share them."""
    shared = _Shared({**others, **functions})
    clusters = [name for name, each in functions.items() if attributes.CLUSTER in each.attr]
    renamed = {name: shared.name_of(name) for name in clusters if shared.may_be(name)}
    for name in renamed:
        del functions[name]
    for function in functions.values():
        for node in function.node_def:
            for callee in defs.callees(node):
                if callee.name in renamed:
                    node.attr[attributes.CLUSTER_NAME].s = callee.name.encode()
                    callee.name = renamed[callee.name]
    functions.update(shared.functions)


class _Shared:
    """Functions under names made from their contents."""

    def __init__(self, functions: Mapping[str, FunctionDef]):
        self.functions: dict[str, FunctionDef] = {}
        self._all = functions
        self._may_be_shared: dict[str, bool] = {}
        self._names: dict[str, str] = {}

    def may_be(self, name: str) -> bool:
        """Return whether a function, with all that it calls, need not belong to one program."""
        if name not in self._may_be_shared:
            self._may_be_shared[name] = False  # XLA compiles no recursion
            function = self._all.get(name)
            self._may_be_shared[name] = function is not None and all(
                node.op not in self._all
                and not _has_state(node)
                and all(self.may_be(callee.name) for callee in defs.callees(node))
                for node in function.node_def
            )
        return self._may_be_shared[name]

    def name_of(self, name: str) -> str:
        """Return the new name of a function that may be shared."""
        if name in self._names:
            return self._names[name]
        copy: FunctionDef = protos.copy_of(self._all[name])
        _number_arguments(copy)
        for node in copy.node_def:
            for callee in defs.callees(node):
                callee.name = self.name_of(callee.name)
        copy.signature.name = ""
        digest = hashlib.sha256(copy.SerializeToString(deterministic=True)).hexdigest()
        new_name = f"{function_names.without_number(name)}_{digest[:_DIGITS]}"
        copy.signature.name = self._names[name] = new_name
        self.functions[new_name] = copy
        return new_name


def _number_arguments(function: FunctionDef) -> None:
    """Name the arguments as those of clusters, since TensorFlow's names may hold numbers."""
    new = {a.name: f"hostcall_arg_{i}" for i, a in enumerate(function.signature.input_arg)}
    for argument in function.signature.input_arg:
        argument.name = new[argument.name]
    for node in function.node_def:
        node.input[:] = [_renamed(value, new) for value in node.input]
    function_edits.edit_results(function, lambda value: _renamed(value, new))


def _renamed(value: str, new: Mapping[str, str]) -> str:
    name = defs.source(value)
    return value.replace(name, new[name], 1) if name in new else value


def _has_state(node: NodeDef) -> bool:
    """Return whether a run of a node depends on other runs, or on the program around it."""
    # A resource keeps its own state, so it does not count. A call has the state of the function,
    # which is checked as well. A callback counts, since it lives as long as its program.
    definition = op_kinds.op_def_or_none(node.op)
    if definition is None or op_kinds.calls_python(node):
        return True
    if not definition.is_stateful or node.op in op_kinds.CHECKS or defs.callees(node):
        return False
    return not defs.handles(node, defs.RESOURCE, {})


# On a function: TensorFlow passes it the rendezvous of the calling kernel.
_SHARED_ATTR = "shared_rendezvous"


def bring_rendezvous(functions: Mapping[str, Any]) -> None:
    """Make each call of the functions of a partitioning bring its own rendezvous."""
    on_host = {name for name, f in functions.items() if attributes.CLUSTER not in f.attr}
    for name in on_host:
        functions[name].attr[_SHARED_ATTR].b = True
        for node in functions[name].node_def:
            if node.op in op_kinds.CALL_OPS and node.attr["f"].func.name in on_host:
                node.attr[attributes.INNER_CALL].b = True


EXECUTOR = b"SINGLE_THREADED_EXECUTOR"

# TensorFlow lowers an op with it to nodes that only its other executor can run.
LOWER_ATTR = "_lower_using_switch_merge"


def all_are_for(device: str, functions: Iterable[Any]) -> bool:
    """Return whether no node of some FunctionDefs is meant for another device."""
    wanted = {node.device for function in functions for node in function.node_def}
    return all(_is_for(device, each) for each in wanted)


@functools.lru_cache(256)
def _is_for(device: str, wanted: str) -> bool:
    here = tf.DeviceSpec.from_string(device)
    return bool(here.make_merged_spec(tf.DeviceSpec.from_string(wanted)) == here)


def run_in_sequence(functions: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Make partitioned functions run on one thread if none of their nodes could run in parallel."""
    # All nodes must be for one device: nodes on several devices wait for each other in an order
    # that is not known here. Clusters may call `old` functions, too.
    on_host = [f for f in functions.values() if attributes.CLUSTER not in f.attr]
    if not all(map(_is_sequence, on_host)):
        return
    clusters = functions.keys() - {function.signature.name for function in on_host}
    known = {**old, **functions}
    for function in on_host:
        function.attr[attributes.SEQUENTIAL].b = True
        for node in function.node_def:
            node.attr.pop(LOWER_ATTR, None)
            called = clusters.intersection(defs.called_functions(node, functions))
            # TensorFlow's kernels may run a cluster, and use the executor of its call.
            is_lowered = any(_is_lowered(name, known) for name in called)
            if "executor_type" in node.attr and not is_lowered:
                node.attr["executor_type"].s = EXECUTOR
            if _may_fail_unnamed(node):
                node.attr[attributes.NOTES_ERRORS].b = True


def _is_lowered(name: str, functions: Mapping[str, Any]) -> bool:
    """Return whether a function, or one that it calls, has an op that becomes several nodes."""
    reached = defs.reachable_in(functions, name).values()
    return any(LOWER_ATTR in node.attr for function in reached for node in function.node_def)


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
