"""The nodes of calls that begin early, in a FunctionDef."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef

START, DONE, GATE = "HostcallStart", "HostcallDone", "HostcallGate"

_INT64 = tf.int64.as_datatype_enum


class Gate(NamedTuple):
    """Values that come first, and the calls whose results are taken after that."""

    awaited: list[str]
    calls: list[str]


def _start_name(call: str) -> str:
    return f"{call}/hostcall_start"


def handle(call: str) -> str:
    return f"{_start_name(call)}:handle:0"


def _gate_name(index: int) -> str:
    return f"hostcall_gate_{index}"


def gate_value(index: int) -> str:
    return f"{_gate_name(index)}:gate:0"


def write(function: FunctionDef, gates: list[Gate], functions: Mapping[str, Any]) -> None:
    """Makes two nodes of each call that is behind a gate, and one of each gate."""
    nodes = {node.name: node for node in function.node_def}
    for gate in gates:
        for call in gate.calls:
            _add_start(function, nodes[call])
    written = [
        function.node_def.add(name=_gate_name(i), op=GATE, input=gate.awaited)
        for i, gate in enumerate(gates)
    ]
    types = defs.Types(function, functions)
    for i, (node, gate) in enumerate(zip(written, gates, strict=True)):
        node.attr["Tawaited"].list.type[:] = [types.of(value) for value in gate.awaited]
        for call in gate.calls:
            _make_done(nodes[call], gate_value(i))


def _add_start(function: FunctionDef, call: NodeDef) -> None:
    start = function.node_def.add()
    start.CopyFrom(call)
    start.name = _start_name(call.name)
    _refer(start, call)
    start.op = START


def _make_done(call: NodeDef, gate: str) -> None:
    """Makes a call what takes its results, under the same name."""
    values = [value for value in call.input if not value.startswith("^")]
    controls = call.input[len(values) :]
    call.input[:] = [*values, handle(call.name), gate, *controls]
    _refer(call, call)
    call.op = DONE
    call.attr["Tawaited"].list.type[:] = [_INT64, _INT64]


def _refer(node: NodeDef, call: NodeDef) -> None:
    """Says on a node which script op it stands for."""
    node.attr["script_op"].s = call.name.encode()
    node.attr["kind"].s = call.op.encode()
