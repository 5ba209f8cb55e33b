"""The values that a partitioned function copies between its device and the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler.partition import placement
from hostcall._explain.callback_facts import Body, value_of
from hostcall._explain.facts import ScriptOp, Transfer, Value
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef

# Strings live in the host's memory, and so do the handles of resources and variants on a device.
_NEVER_SENT = frozenset(dtype.as_datatype_enum for dtype in (tf.string, tf.resource, tf.variant))


def of_function(
    old: FunctionDef,
    new: FunctionDef,
    body: Body,
    functions: Mapping[str, Any],
    called: Iterable[ScriptOp],
) -> tuple[Transfer, ...]:
    """Return the values that cross between the device and the host in one call, each once.

    Args:
      old: the FunctionDef before partitioning.
      new: the FunctionDef that replaces it, whose nodes have devices.
      body: the Body of `old`, which has the shapes.
      functions: the functions that `old` may call, by name.
      called: the script ops on the host, which know more about their results.
    """
    types = defs.Types(old, functions)
    results = {op.node: op.results for op in called}

    def facts(value: str) -> Value:
        node, _, result = value.partition(":")
        if node in results:
            return results[node][types.position(node, result)]
        return value_of(tf.TensorSpec(body.shape_of(value), types.of(value)))

    on_host = {
        node.name
        for node in new.node_def
        if node.device and not placement.is_accelerator(node.device)
    }
    return tuple(
        Transfer(value, to, facts(value))
        for value, to in _crossing(old, on_host)
        if types.of(value) not in _NEVER_SENT
    )


def _crossing(function: FunctionDef, on_host: set[str]) -> dict[tuple[str, str], None]:
    """Return the values of the edges between the host and the device, with their destinations."""
    constants = {node.name for node in function.node_def if node.op == "Const"}
    found: dict[tuple[str, str], None] = {}
    for node in defs.program_order(function):
        to_host = node.name in on_host
        for value in node.input:
            source = defs.source(value)
            if value.startswith("^") or source in constants:
                continue
            if (source in on_host) != to_host:
                found[value, "host" if to_host else "device"] = None
    for value in function.ret.values():
        if defs.source(value) in on_host:
            found[value, "device"] = None
    return found
