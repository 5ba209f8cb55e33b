"""Checks of sizes that only XLA knows, added to the functions that it compiles.

Two kernels check them (csrc/tensorflow/size_checks.cc). They pass values on, and refuse two kinds
that XLA would get wrong: results of conditionals whose branches return different sizes, and list
elements of another dtype than the list's. A refused op is put on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hostcall._compiler.semantics import slices
from hostcall._compiler.sizes import sources
from hostcall._compiler.sizes.flow import ANY_DIMENSION
from hostcall._compiler.sizes.search import Search
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds, protos
from hostcall._tf.graph.function_edits import FunctionEdits
from hostcall._tf.types import NodeDef

_LIST = "HostcallList"
# Ops that read or write the elements of a list.
LIST_OPS = frozenset(
    {"TensorListConcat", "TensorListConcatV2", "TensorListGather", "TensorListGetItem"}
    | {"TensorListPopBack", "TensorListPushBack", "TensorListSetItem", "TensorListStack"}
)
# Ops whose XLA kernels end the process where these operands, if constants of the program, do not
# fit the others.
_GUARDED: Mapping[str, int] = {
    "BatchToSpaceND": 1,
    "MatrixDiagPartV2": 1,
    "MatrixDiagPartV3": 1,
    "MatrixSetDiagV2": 2,
    "MatrixSetDiagV3": 2,
    "TopKV2": 1,
    "UnsortedSegmentMax": 2,
    "UnsortedSegmentMin": 2,
    "UnsortedSegmentProd": 2,
    "UnsortedSegmentSum": 2,
}
_SOURCES = sources.ALWAYS | {slices.OP}
# Ops that get a check.
CHECKED = LIST_OPS | op_kinds.BRANCH_OPS | _GUARDED.keys() | _SOURCES


def add(search: Search) -> set[str]:
    """Check sizes of branches and lists in functions to compile; return the changed names."""
    changed = set[str]()
    if not search.has(CHECKED):
        return changed
    for name, function in search.compiled.items():
        edits = FunctionEdits(function)
        _check_sizes(edits, name, search)
        for node in defs.nodes_of(function, LIST_OPS):
            if node.attr["element_dtype"].type != defs.VARIANT:
                _check_list(edits, node)
        if guarded := defs.nodes_of(function, _GUARDED):
            constants = {node.name for node in defs.nodes_of(function, {"Const"})}
            types = defs.Types(function, search.functions)
            for node in guarded:
                if defs.source(node.input[_GUARDED[node.op]]) not in constants:
                    _guard(edits, node, types)
        if edits.write():
            changed.add(name)
    return changed


def label(search: Search) -> set[str]:
    """Let ops in functions to compile take hostcall's kernels; return the changed names."""
    changed = set()
    for name, function in search.compiled.items():
        for node in defs.nodes_of(function, {"Where"}):
            if (name, node.name) not in search.blocked:
                op_kinds.take_own_kernel(node)
                changed.add(name)
    return changed


def _check_sizes(edits: FunctionEdits, name: str, search: Search) -> None:
    """Check the sizes of branches, and those that XLA bounds by a number that only it knows."""
    function = search.compiled[name]
    for node in defs.nodes_of(function, op_kinds.BRANCH_OPS | _SOURCES):
        place = (name, node.name)
        allowed = search.bounded.get(place, set())
        if place in search.blocked:
            continue
        if node.op in op_kinds.BRANCH_OPS:
            _check_results(edits, node, sources.arrays(node), allowed)
        elif place in search.without_bounds:
            _check_results(edits, node, sorted({i for i, _ in allowed}), allowed)


def _check_results(
    edits: FunctionEdits, node: NodeDef, results: Sequence[int], allowed: set[tuple[int, int]]
) -> None:
    """Check some results of a node, of which XLA may bound the `allowed` dimensions."""
    results = [i for i in results if (i, ANY_DIMENSION) not in allowed]
    if not results:
        return
    values = [*defs.results_of(node, {}).items()]
    check = protos.node_def_pb2.NodeDef(
        name=edits.unused(f"{node.name}/sizes"), op=op_kinds.KNOWN_SIZES
    )
    for position, (value, dtype) in enumerate(values[i] for i in results):
        edits.change(value, f"{check.name}:output:{position}")
        check.input.append(value)
        check.attr["T"].list.type.append(dtype)
    check.attr["node"].s = node.name.encode()
    pairs = sorted((results.index(i), dim) for i, dim in allowed if i in results)
    check.attr["bounded"].list.i.extend(n for pair in pairs for n in pair)
    edits.after(node.name, [check])


def _check_list(edits: FunctionEdits, node: NodeDef) -> None:
    check = protos.node_def_pb2.NodeDef(name=edits.unused(f"{node.name}/list"), op=_LIST)
    check.input.append(node.input[0])
    check.attr["dtype"].type = node.attr["element_dtype"].type
    check.attr["user"].s = node.name.encode()
    node.input[0] = f"{check.name}:output:0"
    edits.before(node.name, [check])


def _guard(edits: FunctionEdits, node: NodeDef, types: defs.Types) -> None:
    """Let a node wait for one that refuses operands for which XLA would end the process."""
    values = defs.data_inputs(node)
    names = {value: f"hostcall_arg_{i}" for i, value in enumerate(dict.fromkeys(values))}
    alone = protos.function_pb2.FunctionDef(node_def=[node])
    alone.node_def[0].input[:] = [names[value] for value in values]
    for value, name in names.items():
        alone.signature.input_arg.add(name=name, type=types.of(value))
    result = op_kinds.op_def(node.op).output_arg[0]
    dtype = defs.types_of(node, op_kinds.op_def(node.op), result)[0]
    alone.signature.output_arg.add(name="hostcall_result", type=dtype)
    alone.ret["hostcall_result"] = f"{node.name}:{result.name}:0"
    guard = protos.node_def_pb2.NodeDef(
        name=edits.unused(f"{node.name}/guard"), op="HostcallGuard", input=names
    )
    guard.attr["T"].list.type.extend(map(types.of, names))
    guard.attr["op"].s = alone.SerializeToString(deterministic=True)
    edits.before(node.name, [guard])
    node.input.append(f"^{guard.name}")
