"""Overlap: calls without side effects begin early, and are waited for late.

XLA runs a small program one step after the other, and any program in an order of its own. A call
that takes long should begin as soon as its operands are there, and go on while the program begins
other calls and computes. So such a script op becomes two: one begins the call, and one takes the
results. A third op, a gate, comes before those that take results. It takes values of what shall run
before anything waits. These are data for XLA, so its order is the one that is meant here.

The order is a schedule of each function: what begins calls first, what waits for them last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from hostcall._callbacks import lookup
from hostcall._compiler.overlap import loop_invariants
from hostcall._compiler.overlap.nodes import Gate, gate_value, handle, write
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime import _overlap

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
            same = loop_invariants.of_body(function, self._functions)
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
