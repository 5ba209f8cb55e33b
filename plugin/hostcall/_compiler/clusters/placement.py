"""Devices of the parts of a partitioned function.

Host ops run on the CPU of the same machine, and clusters on the function's device. TensorFlow
copies the values that cross. It also places the other nodes: nodes that cost nothing, and nodes
that call functions, whose own nodes are placed when they are partitioned.

On an accelerator, TensorFlow lowers loops and branches to `Switch` and `Merge`, and has neither for
floats of eight bits. So they carry these as floats of sixteen bits, which hold all their values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

import tensorflow as tf

from hostcall._compiler import devices
from hostcall._compiler.clusters import execution
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.solver import solve
from hostcall._tf.types import FunctionDef, NodeDef

_WIDE = {
    tf.as_dtype(name).as_datatype_enum: tf.float16.as_datatype_enum
    for name in ("float8_e5m2", "float8_e4m3fn")
}
# The end of the names of functions that take and return wide floats.
_SUFFIX = "__of_wide_floats"


def carry(functions: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Make loops and branches outside of clusters carry wide floats, in place or in copies."""

    def widen(name: str) -> Iterator[str]:
        for node in defs.nodes_of(functions[name], op_kinds.CONTROL_FLOW_OPS):
            if any(defs.handles(node, dtype, {}) for dtype in _WIDE):
                yield from _call_with_wide(node, functions, others)
                function_edits.pass_wide(functions[name], node, _WIDE)

    on_host = [name for name, f in functions.items() if attributes.CLUSTER not in f.attr]
    solve(on_host, widen)


def _call_with_wide(
    node: NodeDef, functions: dict[str, Any], others: Mapping[str, Any]
) -> list[str]:
    """Make a node call functions of wide floats; return the names of those that are new."""
    made = []
    for callee in defs.callees(node):
        old, callee.name = callee.name, callee.name + _SUFFIX
        if callee.name not in functions:
            new = protos.copy_of(functions[old] if old in functions else others[old])
            new.signature.name += _SUFFIX
            function_edits.take_wide(new, _WIDE)
            functions[callee.name] = new
            made.append(callee.name)
    return made


def place(
    function: FunctionDef,
    clusters: Set[str],
    host_ops: Collection[str],
    functions: Mapping[str, Any],
    device: str,
) -> None:
    """Assign each node of a function its device, in place, or leave it to TensorFlow."""
    host = (
        tf.DeviceSpec.from_string(device)
        .replace(device_type=devices.CPU, device_index=0)
        .to_string()
    )
    consumers: dict[str, list[NodeDef]] = defaultdict(list)
    for node in function.node_def:
        for value in node.input:
            consumers[defs.source(value)].append(node)
    returned = set(map(defs.source, function.ret.values()))
    for node in reversed(defs.program_order(function)):
        node.device = ""
        if node.op in op_kinds.CONTROL_FLOW_OPS:
            _lower(node)
        if not clusters.isdisjoint(callee.name for callee in defs.callees(node)):
            node.device = device
            # Otherwise TensorFlow moves integers of 32 bits to and from the host's memory.
            node.attr[defs.MUST_COMPILE].b = True
        elif defs.called_functions(node, functions) or defs.handles(node, defs.RESOURCE, functions):
            continue  # these run where the called functions run, or where the resource is
        elif node.name in host_ops:
            node.device = host
        elif node.name not in returned:
            # A value that only the host uses is not sent to the device and back.
            users = {user.device for user in consumers[node.name]}
            node.device = host if users == {host} else ""


def return_handles_themselves(function: FunctionDef, functions: Mapping[str, Any]) -> None:
    """Make a function return the handles of resources themselves, not their identities."""
    # A cluster that returned an identity would tie it to the devices that all ops of the cluster
    # have in common, which need not include the resource's device.
    identities = {
        f"{node.name}:output:0": node.input[0]
        for node in function.node_def
        if node.op == "Identity" and defs.handles(node, defs.RESOURCE, functions)
    }

    def origin(value: str) -> str:
        while value in identities:
            value = identities[value]
        return value

    function_edits.edit_results(function, origin)


def _lower(node: NodeDef) -> None:
    """Make TensorFlow lower a loop or branch to nodes, which run where they are placed."""
    # The kernel of a loop or branch would run all called functions on its own device. In a function
    # for XLA, TensorFlow leaves the op as it is.
    node.attr[execution.LOWER_ATTR].b = True
    if node.op in op_kinds.LOOP_OPS:
        node.attr["parallel_iterations"].i = 1  # a kernel's iterations do not overlap either
