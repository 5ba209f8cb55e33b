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

from collections.abc import Collection

import tensorflow as tf

from hostcall._compiler.analyses import loops, turns
from hostcall._compiler.analyses.effects import Effects
from hostcall._ops import lookup
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.program import Function, Node, ProgramModel, Value, dtypes, predecessors
from hostcall._tf.types import AnyNode, FunctionDef, FunctionDefLibrary
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


def _is_pure(node: AnyNode) -> bool:
    spec = lookup.own_spec_of(node)
    return spec is not None and spec.options.pure


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
    # The `ordered` functions, `entry` among them, change in place. Functions of `library` in which
    # calls overlap are added to them as copies.
    # The ordered functions are made from these, so they hold no other calls.
    if any(map(op_kinds.has_no_effect, defs.all_nodes(library, op_kinds.SCRIPT_OPS))):
        program = ProgramModel([*library.function, *ordered.function])
        overlapping = _Overlapping(program, entry, {f.signature.name for f in ordered.function})
        overlapping.rewritten(entry)
        ordered.function.extend(overlapping.copies)


class _Overlapping:
    def __init__(self, program: ProgramModel, entry: str, own: set[str]) -> None:
        self._program = program
        self._own = own
        self._entry = program[entry]
        self._names: dict[str, str] = {}
        self._heavy = Effects(program, None, _HEAVY)
        self._bodies: set[str] = set()  # of the loops found so far
        self.copies: list[FunctionDef] = []

    def rewritten(self, name: str) -> str:
        """Return the name of a function's replacement: its own if it is ours or unchanged."""
        if name not in self._program:
            return name
        if name not in self._names:
            self._names[name] = name  # ends the recursion for a function that calls itself
            self._names[name] = self._rewrite(name)
        return self._names[name]

    def _rewrite(self, name: str) -> str:
        function = self._program[name]
        if name not in self._own:
            function = Function(self._program, protos.copy_of(function.proto))
        changes = self._overlap(function)
        for node in function.nodes:
            if node.op in op_kinds.LOOP_OPS:
                self._bodies.add(node.attr["body"].func.name)
            changes |= defs.redirect(node, self._program, self.rewritten)
        if not changes:
            return name
        new = function.write()
        if name not in self._own:
            new.signature.name = f"{self._entry.name}__early_{len(self._names)}_{name}"
            self.copies.append(new)
        return new.signature.name

    def _overlap(self, function: Function) -> bool:
        """Let calls overlap that may, also with what is heavy; return whether there are any."""
        if not any(map(op_kinds.has_no_effect, function.nodes)):
            return False
        live = function.live()  # what a result or a side effect needs
        nodes = [node for node in function.nodes if node in live]
        calls = {i for i, node in enumerate(nodes) if _may_begin_early(node)}
        if calls and function.name in self._bodies:
            same = _same_in_each_iteration(function)
            calls = {i for i in calls if nodes[i] not in same}
        if not calls:
            return False
        beside = {i for i, n in enumerate(nodes) if i not in calls and self._heavy.of_node(n)}
        steps = _scheduling.steps_of(predecessors(nodes), calls)
        gates = _scheduling.gates_of(steps, beside)
        if gates:
            _write(function, nodes, gates, live)
            self._entry.proto.attr[attributes.TRACKS_RUN].b = True
        return bool(gates)


def _may_begin_early(node: Node) -> bool:
    spec = turns.spec_without_effect(node)
    return (
        spec is not None
        and spec.user.is_concurrent
        and not spec.options.shares_memory
        and spec.options.table is None  # XLA may know the results when it compiles
    )


def _same_in_each_iteration(body: Function) -> set[Node]:
    """Return the nodes in a loop's body that compute the same in each iteration."""
    same = {body.arguments[i].node for i in loops.invariants(body.proto)}
    for node in body.in_order():
        if not node.is_stateful and same.issuperset(value.node for value in node.operands):
            same.add(node)
    return same


def _write(
    function: Function, nodes: list[Node], gates: list[_scheduling.Gate], live: Collection[Node]
) -> None:
    """Replace each call behind a gate by two nodes, and add one node for each gate."""
    starts = {i: _start(function, nodes[i]) for gate in gates for i in gate.calls}
    used = {value for node in live for value in node.operands} | {*function.results.values()}
    handles = {i: start.results for i, start in starts.items()}
    last: list[Value] = []  # the gate before
    for number, gate in enumerate(gates):
        awaited = [v for i in gate.awaited for v in handles.get(i) or _values(nodes[i], used)]
        node = function.add(f"hostcall_gate_{number}", GATE, [*awaited, *last])
        node.attr["Tawaited"].list.type[:] = dtypes(node.operands)
        last = node.results
        for i in gate.calls:
            _take_results(nodes[i], [*handles[i], *last])


def _values(node: Node, used: Collection[Value]) -> list[Value]:
    """Return the values of a node that are used, and that a custom call can take."""
    arrays = [value for value in node.results if value.dtype in _ARRAYS]
    return [value for value in arrays[:_MOST_VALUES] if value in used]


def _start(function: Function, call: Node) -> Node:
    """Add a node that begins a call."""
    name = f"{call.name}/hostcall_start"
    return _refer(function.add(name, START, call.operands, call.controls, like=call), call)


def _take_results(call: Node, awaited: list[Value]) -> None:
    """Turn a call into the node that takes its results, under the same name."""
    _refer(call, call)
    call.op, call.operands = DONE, [*call.operands, *awaited]
    call.attr["Tawaited"].list.type[:] = [defs.INT64, defs.INT64]


def _refer(node: Node, call: Node) -> Node:
    """Record on a node the script op that it stands for."""
    node.attr["script_op"].s = call.name.encode()
    node.attr["kind"].s = call.op.encode()
    return node
