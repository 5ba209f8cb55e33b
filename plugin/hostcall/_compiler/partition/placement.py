"""Devices: where the parts of a function run that is compiled for another device than the CPU.

Host ops run on the CPU of the same machine, clusters on the function's device. TensorFlow copies
the values that cross. It also places what is left: nodes that cost nothing, and those that call
functions, whose own nodes are placed when they are partitioned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Set
from typing import Any

import tensorflow as tf

from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

_CPU = "CPU"
_LOWER_ATTR = "_lower_using_switch_merge"
_RESOURCE = tf.resource.as_datatype_enum


def is_accelerator(device: str) -> bool:
    """Whether a device, by its full name, is another one than a CPU; "" is none."""
    return type_of(device) != _CPU


def type_of(device: str) -> str:
    """The type of a device, by its full name; that of a CPU for ""."""
    return str(tf.DeviceSpec.from_string(device).device_type or _CPU)


def suffix_of(device: str) -> str:
    """What to add to the names of functions that are for this device."""
    spec = tf.DeviceSpec.from_string(device)
    return f"_on_{spec.device_type}_{spec.device_index}"


def place(
    function: FunctionDef,
    clusters: Set[str],
    host_ops: Collection[str],
    functions: Mapping[str, Any],
    device: str,
) -> None:
    """Gives each node of a partitioned function its device, or leaves it to TensorFlow.

    Args:
      function: the FunctionDef on the host, which calls the clusters. Changed in place.
      clusters: the names of the functions of its clusters.
      host_ops: the names of the nodes that run on the host.
      functions: those that it may call, by name.
      device: the full name of the function's device.
    """
    host = tf.DeviceSpec.from_string(device).replace(device_type=_CPU, device_index=0).to_string()
    consumers: dict[str, list[NodeDef]] = defaultdict(list)
    for node in function.node_def:
        for value in node.input:
            consumers[defs.source(value)].append(node)
    returned = set(map(defs.source, function.ret.values()))
    for node in reversed(defs.program_order(function)):
        node.device = ""
        if node.op in op_kinds.LOOP_OPS | op_kinds.BRANCH_OPS:
            _lower(node)
        if not clusters.isdisjoint(callee.name for callee in defs.callees(node)):
            node.device = device
            # Else TensorFlow takes integers of 32 bits to and from the host's memory.
            node.attr[defs.MUST_COMPILE].b = True
        elif defs.called_functions(node, functions) or defs.handles(node, _RESOURCE, functions):
            continue  # these run where what they call runs, or where the resource is
        elif node.name in host_ops:
            node.device = host
        elif node.name not in returned:
            # What the host alone uses is not sent to the device and back.
            users = {user.device for user in consumers[node.name]}
            node.device = host if users == {host} else ""


def return_handles_themselves(function: FunctionDef, functions: Mapping[str, Any]) -> None:
    """Returns the handles of resources themselves instead of identities of theirs.

    A cluster that returned one would tie it to the devices that all of its own ops have in common,
    which need not be that of the resource.

    Args:
      function: a FunctionDef. Changed in place.
      functions: those that it may call, by name.
    """
    identities = {
        f"{node.name}:output:0": node.input[0]
        for node in function.node_def
        if node.op == "Identity" and defs.handles(node, _RESOURCE, functions)
    }

    def origin(value: str) -> str:
        while value in identities:
            value = identities[value]
        return value

    defs.edit_results(function, origin)


def _lower(node: NodeDef) -> None:
    """Has TensorFlow make nodes of a loop or branch, which run where they are placed.

    The kernel of such an op would run all that it calls on its own device. In a function for XLA,
    TensorFlow leaves the op as it is.
    """
    node.attr[_LOWER_ATTR].b = True
    if node.op in op_kinds.LOOP_OPS:
        node.attr["parallel_iterations"].i = 1  # those of a kernel do not overlap either
