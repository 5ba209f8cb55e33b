"""Transfers: which values of a partitioned function cross between its device and the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler.partition import placement
from hostcall._explain.bodies import Body
from hostcall._explain.callback_facts import value_of
from hostcall._explain.facts import ScriptOp, Transfer, Value
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef

_TO_HOST, _TO_DEVICE = "host", "device"

# These are in the host's memory, or are what is there of something on the device.
_NEVER_SENT = frozenset(dtype.as_datatype_enum for dtype in (tf.string, tf.resource, tf.variant))


def of_function(
    old: FunctionDef,
    new: FunctionDef,
    body: Body,
    functions: Mapping[str, Any],
    called: Iterable[ScriptOp],
) -> tuple[Transfer, ...]:
    """What crosses in one call, each value once.

    Args:
      old: the FunctionDef as it was.
      new: what has taken its place, whose nodes have devices.
      body: of `old`, which knows shapes.
      functions: those that `old` may call, by name.
      called: the script ops on the host, of whose results more is known.
    """
    types = defs.Types(old, functions)
    results = {op.node: op.results for op in called}

    def facts(value: str) -> Value:
        node, _, result = value.partition(":")
        if node in results:
            return results[node][types.position(node, result)]
        return value_of(tf.TensorSpec(body.shape_of(value), types.of(value)))

    on_host = {node.name for node in new.node_def if _is_on_host(node.device)}
    crossing = _crossing(old, on_host)
    sent = ((value, to) for value, to in crossing if types.of(value) not in _NEVER_SENT)
    return tuple(Transfer(value, to, facts(value)) for value, to in sent)


def _crossing(function: FunctionDef, on_host: set[str]) -> dict[tuple[str, str], None]:
    """The values of the edges between the host and the device, with their destinations."""
    constants = {node.name for node in function.node_def if node.op == "Const"}
    found: dict[tuple[str, str], None] = {}
    for node in defs.program_order(function):
        to_host = node.name in on_host
        for value in node.input:
            source = defs.source(value)
            if value.startswith("^") or source in constants:
                continue
            if (source in on_host) != to_host:
                found[value, _TO_HOST if to_host else _TO_DEVICE] = None
    for value in function.ret.values():
        if defs.source(value) in on_host:
            found[value, _TO_DEVICE] = None
    return found


def _is_on_host(device: str) -> bool:
    return bool(device) and not placement.is_accelerator(device)
