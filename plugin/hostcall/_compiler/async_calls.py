"""Calls without side effects: begun early where they may overlap, else one at a time.

XLA runs a small program one step after the other, and any program in an order of its own. A long
call should begin as soon as its operands exist, and go on while the program begins other calls and
computes. So a script op becomes two ops: one begins the call, and one takes the results. A third
op, a gate, precedes the ops that take results. Its operands are the values to compute before the
program waits, which XLA takes for data.

A call stays one op if its operands are the same in each iteration of a loop. XLA makes a single
custom call without side effects once, before the loop, but would keep two ops in the loop.

TensorFlow makes each stateful script op wait for the one before. `free` ends this for pure ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._compiler import control_flow
from hostcall._compiler.ordering import Effects
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime import _scheduling

START, DONE, GATE = "HostcallStart", "HostcallDone", "HostcallGate"


def free(library: FunctionDefLibrary) -> None:
    """Let the calls of pure functions run in any order; change the library in place."""
    for function in library.function:
        stateful = defs.nodes_of(function, op_kinds.STATEFUL_SCRIPT_OPS)
        pure = {node.name for node in stateful if _is_pure(node)}
        controls: dict[str, list[str]] = {}  # the control inputs that each pure call keeps
        for node in defs.program_order(function) if pure else ():
            if node.name not in pure:
                continue
            node.attr[attributes.UNORDERED].b = True
            values = defs.data_inputs(node)
            waits_for = [
                waited
                for control in node.input[len(values) :]
                for waited in controls.get(defs.source(control), [control])
            ]
            controls[node.name] = list(dict.fromkeys(waits_for))
            node.input[:] = [*values, *controls[node.name]]


def _is_pure(node: NodeDef) -> bool:
    entry = lookup.unchecked_entry_of(node)
    return isinstance(entry, CallbackSpec) and entry.options.pure


def takes_turns(node: NodeDef) -> bool:
    """Return whether a node makes calls without effects one at a time; native code may overlap."""
    spec = _spec_without_effect(node)
    return spec is not None and not spec.user.is_concurrent


def _spec_without_effect(node: NodeDef) -> CallbackSpec | None:
    """Return the spec of a node that calls Python without side effects; else None."""
    spec = lookup.spec_of(node) if op_kinds.has_no_effect(node) else None
    return spec if spec is not None and spec.custom_call == CallbackSpec.custom_call else None


# Ops worth overlapping with a call: XLA makes more than one pass over their operands. The branches
# and calls that hold one of them are, too.
_HEAVY = frozenset(
    {
        *op_kinds.SCRIPT_OPS,
        *op_kinds.LOOP_OPS,
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

# The most values that one gate takes from one op.
_MOST_VALUES = 16
# The dtypes of the arrays that a gate takes.
_ARRAYS = frozenset(
    tf.as_dtype(name).as_datatype_enum
    for name in (
        *("bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)


def begin_early(ordered: FunctionDefLibrary, entry: str, library: FunctionDefLibrary) -> None:
    """Make calls overlap in a function and in the functions of a library that it reaches."""
    # The `ordered` copies, `entry` among them, change in place. Functions of `library` in which
    # calls overlap are added to them as copies.
    # The ordered functions are made from these, so they hold no other calls.
    if any(map(op_kinds.has_no_effect, defs.all_nodes(library, op_kinds.SCRIPT_OPS))):
        functions = {f.signature.name: f for f in (*library.function, *ordered.function)}
        _Overlapping(ordered, entry, functions).rewritten(entry)


class _Gate(NamedTuple):
    """The values that come before a gate, and the calls whose results are taken after it."""

    awaited: list[str]
    calls: list[str]


class _Overlapping:
    def __init__(
        self, ordered: FunctionDefLibrary, entry: str, functions: dict[str, FunctionDef]
    ) -> None:
        self._ordered = ordered
        self._own = {function.signature.name for function in ordered.function}
        self._entry = functions[entry]
        self._functions = functions
        self._names: dict[str, str] = {}
        self._heavy = Effects(functions, None, _HEAVY)
        self._bodies: set[str] = set()  # of the loops found so far

    def rewritten(self, name: str) -> str:
        """Return the name of a function's replacement: its own if it is ours or unchanged."""
        if name not in self._functions:
            return name
        if name not in self._names:
            self._names[name] = name  # ends the recursion for a function that calls itself
            self._names[name] = self._rewrite(name)
        return self._names[name]

    def _rewrite(self, name: str) -> str:
        function = self._functions[name]
        if name not in self._own:
            function = protos.copy_of(function)
        gates = self._gates(function)
        changes = bool(gates)
        for node in function.node_def:
            if node.op in op_kinds.LOOP_OPS:
                self._bodies.add(node.attr["body"].func.name)
            changes |= defs.redirect(node, self._functions, self.rewritten)
        if not changes:
            return name
        if gates:
            _write(function, gates, self._functions)
            self._entry.attr[attributes.TRACKS_RUN].b = True
        if name in self._own:
            return name
        new_name = f"{self._entry.signature.name}__early_{len(self._names)}_{name}"
        function.signature.name = new_name
        self._ordered.function.add().CopyFrom(function)
        return new_name

    def _gates(self, function: FunctionDef) -> list[_Gate]:
        """Return the gates before the results of calls that overlap with something."""
        if not any(map(op_kinds.has_no_effect, function.node_def)):
            return []
        live = protos.copy_of(function)  # what a result or a side effect needs
        defs.drop_dead_nodes(live, self._functions)
        nodes = list(live.node_def)
        used = {value for node in nodes for value in node.input} | set(function.ret.values())
        calls = {i for i, node in enumerate(nodes) if _may_begin_early(node)}
        if calls and function.signature.name in self._bodies:
            same = _same_in_each_iteration(function, self._functions)
            calls = {i for i in calls if nodes[i].name not in same}
        if not calls:
            return []
        types = defs.Types(function, self._functions)
        awaited = {i: [_handle(nodes[i].name)] for i in calls}
        beside = {
            i: [value for value in _values(node, types) if value in used]
            for i, node in enumerate(nodes)
            if i not in calls and self._heavy.of_node(node)
        }
        steps = _scheduling.steps_of(defs.predecessors(nodes), calls)
        return _named(_scheduling.gates_of(steps, beside), nodes, awaited | beside)


def _named(
    gates: list[_scheduling.Gate], nodes: list[NodeDef], values: Mapping[int, list[str]]
) -> list[_Gate]:
    """Return the gates in the terms of a function: values of nodes, and names of calls."""
    return [
        _Gate(
            [v for i in gate.awaited for v in values[i]] + [_gate_value(number - 1)] * (number > 0),
            [nodes[i].name for i in gate.calls],
        )
        for number, gate in enumerate(gates)
    ]


def _may_begin_early(node: NodeDef) -> bool:
    spec = _spec_without_effect(node)
    return (
        spec is not None
        and spec.user.is_concurrent
        and not spec.options.shares_memory
        and spec.options.table is None  # XLA may know the results when it compiles
    )


def _same_in_each_iteration(body: FunctionDef, functions: Mapping[str, Any]) -> set[str]:
    """Return the names of the nodes in a loop's body that compute the same in each iteration."""
    same = {body.signature.input_arg[i].name for i in control_flow.invariants(body)}
    for node in defs.program_order(body):
        has_effect = defs.definition_of(node, functions).is_stateful
        if not has_effect and same.issuperset(map(defs.source, defs.data_inputs(node))):
            same.add(node.name)
    return same


def _values(node: NodeDef, types: defs.Types) -> list[str]:
    """Return the values of a node that a custom call can take."""
    return [
        f"{node.name}:{name}:{i}"
        for name, dtypes in types.of_node(node.name).items()
        for i, dtype in enumerate(dtypes)
        if dtype in _ARRAYS
    ][:_MOST_VALUES]


def _write(function: FunctionDef, gates: list[_Gate], functions: Mapping[str, Any]) -> None:
    """Replace each call behind a gate by two nodes, and add one node for each gate."""
    nodes = {node.name: node for node in function.node_def}
    for gate in gates:
        for call in gate.calls:
            start = function.node_def.add()
            start.CopyFrom(nodes[call])
            start.name = _start_name(call)
            _refer(start, nodes[call])
            start.op = START
    written = [
        function.node_def.add(name=f"hostcall_gate_{i}", op=GATE, input=gate.awaited)
        for i, gate in enumerate(gates)
    ]
    types = defs.Types(function, functions)
    for i, (node, gate) in enumerate(zip(written, gates, strict=True)):
        node.attr["Tawaited"].list.type[:] = [types.of(value) for value in gate.awaited]
        for call in gate.calls:
            _take_results(nodes[call], _gate_value(i))


def _take_results(call: NodeDef, gate: str) -> None:
    """Turn a call into the node that takes its results, under the same name."""
    values = defs.data_inputs(call)
    controls = call.input[len(values) :]
    call.input[:] = [*values, _handle(call.name), gate, *controls]
    _refer(call, call)
    call.op = DONE
    call.attr["Tawaited"].list.type[:] = [defs.INT64, defs.INT64]


def _refer(node: NodeDef, call: NodeDef) -> None:
    """Record on a node the script op that it stands for."""
    node.attr["script_op"].s = call.name.encode()
    node.attr["kind"].s = call.op.encode()


def _start_name(call: str) -> str:
    return f"{call}/hostcall_start"


def _handle(call: str) -> str:
    return f"{_start_name(call)}:handle:0"


def _gate_value(index: int) -> str:
    return f"hostcall_gate_{index}:gate:0"
