"""Overlap: calls without side effects begin early, and are waited for late.

XLA runs a small program one step after the other, and any program in an order of its own. A call
that takes long should begin as soon as its operands are there, and go on while the program begins
other calls and computes. So such a script op becomes two: one begins the call, and one takes the
results. A third op, a gate, comes before those that take results. It takes values of what shall run
before anything waits. These are data for XLA, so its order is the one that is meant here.

The order is a schedule of each function: what begins calls first, what waits for them last.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._callbacks import lookup
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef

START, DONE, GATE = "HostcallStart", "HostcallDone", "HostcallGate"

# What a call may well go on beside, but for loops, branches and calls: what takes XLA more than one
# pass over its operands.
_HEAVY = frozenset(
    {
        *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "XlaDot"),
        *("Conv2D", "Conv3D", "DepthwiseConv2dNative", "Conv2DBackpropInput"),
        *("Conv2DBackpropFilter", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
        *("XlaDotV2", "XlaConv", "XlaConvV2", "XlaCallModule", "HostcallRegion"),
        *("Cholesky", "Qr", "Svd", "SelfAdjointEigV2", "MatrixInverse", "MatrixSolve"),
        *("MatrixTriangularSolve", "MatrixDeterminant", "LogMatrixDeterminant"),
        *("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", "RFFT", "RFFT2D", "RFFT3D"),
        *("IRFFT", "IRFFT2D", "IRFFT3D", "TopKV2", "XlaSort", "XlaVariadicSort"),
    }
)

# As many values as one gate takes of one op.
_MOST_VALUES = 16
_INT64 = tf.int64.as_datatype_enum
# What XLA has arrays of.
_ARRAYS = frozenset(
    tf.as_dtype(name).as_datatype_enum
    for name in (
        *("bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)

# When a node runs, where several could: see `_schedule`.
_BEGINS, _LEADS_TO_CALL, _OTHER, _WAITS = range(4)
_Step = tuple[int, str]


class _Gate(NamedTuple):
    """Values that come first, and the calls whose results are taken after that."""

    awaited: list[str]
    calls: list[str]


def begin_early(ordered: FunctionDefLibrary, entry: str, library: FunctionDefLibrary) -> None:
    """Has calls overlap in a function and in all that it reaches.

    Args:
      ordered: functions of ours, `entry` among them. Changed in place; copies of functions of
        `library` are added where calls overlap in these.
      entry: the name of the function.
      library: all functions that it may reach.
    """
    functions = {f.signature.name: f for f in (*library.function, *ordered.function)}
    if any(op_kinds.has_no_effect(node) for f in functions.values() for node in f.node_def):
        _Overlapping(ordered, entry, functions).rewritten(entry)


class _Overlapping:
    def __init__(
        self, ordered: FunctionDefLibrary, entry: str, functions: dict[str, FunctionDef]
    ) -> None:
        self._ordered = ordered
        self._own = {function.signature.name for function in ordered.function}
        self._entry = functions[entry]
        self._functions = functions
        self._names: dict[str, str] = {}
        self._heavy: dict[str, bool] = {}

    def rewritten(self, name: str) -> str:
        """The name of what takes a function's place: its own where that is ours, or unchanged."""
        if name not in self._functions:
            return name
        if name not in self._names:
            self._names[name] = name  # what a function that calls itself finds
            self._names[name] = self._rewrite(name)
        return self._names[name]

    def _rewrite(self, name: str) -> str:
        function = self._functions[name]
        if name not in self._own:
            function = protos.function_pb2.FunctionDef()
            function.CopyFrom(self._functions[name])
        gates = self._gates(function)
        changes = bool(gates)
        for node in function.node_def:
            for callee in defs.callees(node):
                new = self.rewritten(callee.name)
                changes |= new != callee.name
                callee.name = new
            if node.op in self._functions and (new := self.rewritten(node.op)) != node.op:
                node.op, changes = new, True
        if not changes:
            return name
        if gates:
            _write(function, gates, self._functions)
            self._entry.attr[attributes.KEEPS_RESIDUALS].b = True
        if name in self._own:
            return name
        new_name = f"{self._entry.signature.name}__early_{len(self._names)}_{name}"
        function.signature.name = new_name
        self._ordered.function.add().CopyFrom(function)
        return new_name

    def _gates(self, function: FunctionDef) -> list[_Gate]:
        """Where the results of calls are taken that overlap with something."""
        if not any(map(op_kinds.has_no_effect, function.node_def)):
            return []
        nodes = _live(function, self._functions)
        values = {value for node in nodes for value in node.input if not value.startswith("^")}
        used = values | set(function.ret.values())
        taken = set(map(defs.source, used))
        calls = {node.name for node in nodes if node.name in taken and _may_begin_early(node)}
        if not calls:
            return []
        types = defs.Types(function, self._functions)
        beside = {
            node.name: [value for value in _values(node, types) if value in used]
            for node in nodes
            if node.name not in calls and self._is_heavy(node)
        }
        return _gates_of(_schedule(nodes, calls), beside)

    def _is_heavy(self, node: NodeDef) -> bool:
        if node.op in _HEAVY or node.op in op_kinds.SCRIPT_OPS or node.op in op_kinds.LOOP_OPS:
            return True
        return any(map(self._holds_heavy, defs.called_functions(node, self._functions)))

    def _holds_heavy(self, name: str) -> bool:
        if name not in self._heavy:
            self._heavy[name] = False  # what a function that calls itself finds
            function = self._functions.get(name)
            self._heavy[name] = function is not None and any(map(self._is_heavy, function.node_def))
        return self._heavy[name]


def _may_begin_early(node: NodeDef) -> bool:
    if not op_kinds.has_no_effect(node):
        return False
    spec = lookup.spec_of(node)
    return (
        spec is not None
        and spec.custom_call == "hostcall"
        and not spec.declaration.shares_memory
        and spec.declaration.table is None  # XLA may know the results when it compiles
    )


def _live(function: FunctionDef, functions: Mapping[str, Any]) -> list[NodeDef]:
    """The nodes that run: those that a result or an effect needs."""
    kept = protos.function_pb2.FunctionDef()
    kept.CopyFrom(function)
    defs.drop_dead_nodes(kept, functions)
    return list(kept.node_def)


def _values(node: NodeDef, types: defs.Types) -> list[str]:
    """The values of a node that a custom call can take."""
    return [
        f"{node.name}:{name}:{i}"
        for name, dtypes in types.of_node(node.name).items()
        for i, dtype in enumerate(dtypes)
        if dtype in _ARRAYS
    ][:_MOST_VALUES]


def _schedule(nodes: list[NodeDef], calls: set[str]) -> list[_Step]:
    """The steps of a function in an order that its edges allow.

    Each call has two: it begins, as early as can be, and is waited for, as late as can be.
    """
    before = defs.predecessors(nodes)
    after: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(before):
        for j in sources:
            after[j].append(i)
    leads_to_call = _ancestors(before, [i for i, n in enumerate(nodes) if n.name in calls])
    missing = [len(sources) for sources in before]

    def when(i: int) -> int:
        if nodes[i].name in calls:
            return _BEGINS
        return _LEADS_TO_CALL if i in leads_to_call else _OTHER

    ready = [(when(i), i) for i, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    steps = []
    while ready:
        kind, i = heapq.heappop(ready)
        steps.append((kind, nodes[i].name))
        if kind == _BEGINS:
            heapq.heappush(ready, (_WAITS, i))
            continue
        for j in after[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, (when(j), j))
    return steps


def _ancestors(before: list[list[int]], of: list[int]) -> set[int]:
    pending, found = list(of), set[int]()
    while pending:
        for j in before[pending.pop()]:
            if j not in found:
                found.add(j)
                pending.append(j)
    return found


def _overlapping(steps: Iterable[_Step], beside: Mapping[str, list[str]]) -> set[str]:
    """The calls that go on while another does, or while something heavy is computed."""
    under_way: set[str] = set()
    found: set[str] = set()
    for kind, name in steps:
        if kind == _BEGINS:
            if under_way:
                found |= {name, *under_way}
            under_way.add(name)
        elif kind == _WAITS:
            under_way.remove(name)
        elif name in beside:
            found |= under_way
    return found


def _gates_of(steps: list[_Step], beside: Mapping[str, list[str]]) -> list[_Gate]:
    """Those before the steps that wait for calls which overlap with something."""
    overlapping = _overlapping(steps, beside)
    gates: list[_Gate] = []
    awaited: list[str] = []  # since the last gate
    under_way = 0
    for kind, name in steps:
        if kind == _BEGINS and name in overlapping:
            awaited.append(_handle(name))
            under_way += 1
        elif kind == _WAITS and name in overlapping:
            if awaited:
                gates.append(_Gate(awaited + [_gate_value(len(gates) - 1)] * bool(gates), []))
                awaited = []
            gates[-1].calls.append(name)
            under_way -= 1
        elif under_way:
            awaited += beside.get(name, [])
    return gates


def _start_name(call: str) -> str:
    return f"{call}/hostcall_start"


def _handle(call: str) -> str:
    return f"{_start_name(call)}:handle:0"


def _gate_name(index: int) -> str:
    return f"hostcall_gate_{index}"


def _gate_value(index: int) -> str:
    return f"{_gate_name(index)}:gate:0"


def _write(function: FunctionDef, gates: list[_Gate], functions: Mapping[str, Any]) -> None:
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
            _make_done(nodes[call], _gate_value(i))


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
    call.input[:] = [*values, _handle(call.name), gate, *controls]
    _refer(call, call)
    call.op = DONE
    call.attr["Tawaited"].list.type[:] = [_INT64, _INT64]


def _refer(node: NodeDef, call: NodeDef) -> None:
    """Says on a node which script op it stands for."""
    node.attr["script_op"].s = call.name.encode()
    node.attr["kind"].s = call.op.encode()
