"""Calls without side effects: begun early where they may overlap, else one at a time.

XLA makes such a call once, before the loop, if it is one custom call without side effects. The two
that a call becomes which begins early stay in the loop.

Their ops are stateful, so TensorFlow lets each wait for the one before it.

XLA runs a small program one step after the other, and any program in an order of its own. A call
that takes long should begin as soon as its operands are there, and go on while the program begins
other calls and computes. So such a script op becomes two: one begins the call, and one takes the
results. A third op, a gate, comes before those that take results. It takes values of what shall run
before anything waits. These are data for XLA, so its order is the one that is meant here.

The order is a schedule of each function: what begins calls first, what waits for them last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime import _overlap

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


def of_body(body: FunctionDef, functions: Mapping[str, Any]) -> set[str]:
    """The names of the nodes of a loop's body that compute the same each time."""
    same = {body.signature.input_arg[i].name for i in arguments(body)}
    for node in defs.program_order(body):
        values = [value for value in node.input if not value.startswith("^")]
        has_effect = defs.definition_of(node, functions).is_stateful
        if not has_effect and all(defs.source(value) in same for value in values):
            same.add(node.name)
    return same


def arguments(body: FunctionDef) -> set[int]:
    """The positions of the arguments that a loop's body returns as they are."""
    nodes = {node.name: node for node in body.node_def}

    def origin(value: str) -> str:
        name = defs.source(value)
        while name in nodes and nodes[name].op == "Identity":
            name = defs.source(nodes[name].input[0])
        return name

    signature = body.signature
    pairs = zip(signature.input_arg, signature.output_arg, strict=True)
    return {i for i, (arg, ret) in enumerate(pairs) if origin(body.ret[ret.name]) == arg.name}


def free(library: FunctionDefLibrary) -> None:
    """Lets the calls of pure functions run in any order.

    Args:
      library: functions, changed in place.
    """
    for function in library.function:
        stateful = defs.nodes_of(function, op_kinds.STATEFUL_SCRIPT_OPS)
        pure = {node.name for node in stateful if _is_pure(node)}
        if pure:
            _free(function, pure)


def _is_pure(node: NodeDef) -> bool:
    entry = lookup.unchecked_entry_of(node)
    return isinstance(entry, CallbackSpec) and entry.declaration.pure


def _free(function: FunctionDef, pure: set[str]) -> None:
    controls: dict[str, list[str]] = {}  # of the pure ones, whom they have to wait for after all
    for node in defs.program_order(function):
        if node.name not in pure:
            continue
        node.attr[attributes.UNORDERED].b = True
        values = [value for value in node.input if not value.startswith("^")]
        waits_for = [
            waited
            for control in node.input[len(values) :]
            for waited in controls.get(defs.source(control), [control])
        ]
        controls[node.name] = list(dict.fromkeys(waits_for))
        node.input[:] = [*values, *controls[node.name]]


def takes_turns(node: NodeDef) -> bool:
    """Whether a node is a script op with such calls. Native code runs beside anything."""
    if not op_kinds.has_no_effect(node):
        return False
    spec = lookup.spec_of(node)
    if spec is None or spec.custom_call != CallbackSpec.custom_call:
        return False
    return not spec.is_concurrent


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
# What XLA has arrays of.
_ARRAYS = frozenset(
    tf.as_dtype(name).as_datatype_enum
    for name in (
        *("bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)


def begin_early(ordered: FunctionDefLibrary, entry: str, library: FunctionDefLibrary) -> None:
    """Has calls overlap in a function and in all that it reaches.

    Args:
      ordered: functions of ours, `entry` among them. Changed in place; copies of functions of
        `library` are added where calls overlap in these.
      entry: the name of the function.
      library: all functions that it may reach.
    """
    # All calls of the others are theirs.
    script_ops = (node for f in library.function for node in defs.nodes_of(f, op_kinds.SCRIPT_OPS))
    if any(map(op_kinds.has_no_effect, script_ops)):
        functions = {f.signature.name: f for f in (*library.function, *ordered.function)}
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
        self._bodies: set[str] = set()  # of the loops that were met

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
            if node.op in op_kinds.LOOP_OPS:
                self._bodies.add(node.attr["body"].func.name)
            for callee in defs.callees(node):
                new = self.rewritten(callee.name)
                changes |= new != callee.name
                callee.name = new
            if node.op in self._functions and (new := self.rewritten(node.op)) != node.op:
                node.op, changes = new, True
        if not changes:
            return name
        if gates:
            write(function, gates, self._functions)
            self._entry.attr[attributes.TRACKS_RUN].b = True
        if name in self._own:
            return name
        new_name = f"{self._entry.signature.name}__early_{len(self._names)}_{name}"
        function.signature.name = new_name
        self._ordered.function.add().CopyFrom(function)
        return new_name

    def _gates(self, function: FunctionDef) -> list[Gate]:
        """Where the results of calls are taken that overlap with something."""
        if not any(map(op_kinds.has_no_effect, function.node_def)):
            return []
        nodes = _live(function, self._functions)
        values = {value for node in nodes for value in node.input if not value.startswith("^")}
        used = values | set(function.ret.values())
        calls = {i for i, node in enumerate(nodes) if _may_begin_early(node)}
        if calls and function.signature.name in self._bodies:
            same = of_body(function, self._functions)
            calls = {i for i in calls if nodes[i].name not in same}
        if not calls:
            return []
        types = defs.Types(function, self._functions)
        awaited = {i: [handle(nodes[i].name)] for i in calls}
        beside = {
            i: [value for value in _values(node, types) if value in used]
            for i, node in enumerate(nodes)
            if i not in calls and self._is_heavy(node)
        }
        steps = _overlap.steps_of(defs.predecessors(nodes), calls)
        return _named(_overlap.gates_of(steps, beside), nodes, awaited | beside)

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


def _named(
    gates: list[_overlap.Gate], nodes: list[NodeDef], values: Mapping[int, list[str]]
) -> list[Gate]:
    """The gates in the terms of a function: values of nodes, and names of calls."""
    return [
        Gate(
            [v for i in gate.awaited for v in values[i]] + [gate_value(number - 1)] * (number > 0),
            [nodes[i].name for i in gate.calls],
        )
        for number, gate in enumerate(gates)
    ]


def _may_begin_early(node: NodeDef) -> bool:
    if not op_kinds.has_no_effect(node):
        return False
    spec = lookup.spec_of(node)
    return (
        spec is not None
        and spec.custom_call == "hostcall"
        and spec.is_concurrent
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
