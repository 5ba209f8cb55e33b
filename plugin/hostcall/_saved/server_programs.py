"""What servers without Python compile in the place of a SavedModel's functions.

A server has no Python that rewrites a function when TensorFlow creates its kernel. So a node of a
function that would be rewritten has an attribute in the file: either the program that the server
compiles in the function's place, a FunctionDefLibrary whose first function is the entry, or the
reason why TensorFlow's kernels are to run it. The library for servers
(csrc/serving/kernel_creator.cc) reads both, and nothing else does. TensorFlow would refuse to load
functions with such attributes of their own. The function itself stays as it is.

TensorFlow has no ops of hostcall's, so in these programs HostcallRaise and HostcallAny are script
ops with tokens that only the library for servers knows (csrc/serving/xla_kernel.cc).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from hostcall._compiler import constants, passes, plan
from hostcall._compiler.analyses import node_places
from hostcall._compiler.analyses.effects import Effects
from hostcall._compiler.one_program import async_calls
from hostcall._compiler.semantics import failures
from hostcall._ops import settings
from hostcall._tf import token_registry
from hostcall._tf.graph import attributes, function_edits, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, GraphDef, NodeDef
from hostcall_runtime._errors import LoweringError

# The functions of a program, its entry first, or why there is none.
Program: TypeAlias = list[Any] | str

_AND, _ANY = "HostcallAnd", "HostcallAny"
_ERRORS, _KIND = (f"{token_registry.QUALIFIED}{kind}:" for kind in ("errors", "any"))
_NEXT_ERROR = b"\x1e"
_SEARCHED = frozenset({defs.INT32, defs.INT64})  # the dtypes of the custom call's operands
_FLEETING = op_kinds.IDENTITIES | {"Const", "NoOp"}

_ORDER = (
    "it checks values before a function, a loop or a branch that calls Python, and XLA would not "
    "keep that order"
)
_UNKNOWN = "its program has the op {op}, which only a process with hostcall has"


def programs_of(graph_def: GraphDef) -> dict[str, Program]:
    """Make the programs of a graph's functions that servers compile; others are left out."""
    library = defs.with_defaults(graph_def.library)
    async_calls.free(library)
    found = {}
    for name in _entries(graph_def):
        try:
            program = _program_of(library, name)
        except (LoweringError, RecursionError) as error:
            program = str(error).partition("\n")[0]
        if program:
            found[name] = program
    return found


def nodes_of(programs: Mapping[str, Program]) -> Iterator[NodeDef]:
    """Yield the nodes of all programs."""
    for program in programs.values():
        for function in program if isinstance(program, list) else ():
            yield from function.node_def


def attach(graph_def: GraphDef, programs: Mapping[str, Program]) -> None:
    """Write the programs into a graph, in the place of those that it has."""
    function_edits.drop_programs(graph_def.library)
    functions = defs.by_name(graph_def.library)
    for name, program in programs.items():
        node = _lasting_node(functions[name], functions)
        if isinstance(program, str):
            node.attr[attributes.UNCOMPILED].s = program.encode()
            continue
        for function in program:
            _without_own_ops(function)
        library = protos.function_pb2.FunctionDefLibrary(function=program)
        node.attr[attributes.PROGRAM].s = library.SerializeToString()


def _lasting_node(function: FunctionDef, functions: Functions) -> NodeDef:
    """Return a node that TensorFlow's optimizations leave alone, unlike a constant."""
    live = defs.live_nodes(function, functions)
    nodes = [node for node in function.node_def if node.name in live and node.op not in _FLEETING]
    kinds = (op_kinds.STATEFUL_SCRIPT_OPS, op_kinds.SCRIPT_OPS)
    script_ops = [node for kind in kinds for node in nodes if node.op in kind]
    calls: list[NodeDef] = [
        node for node in defs.calls_in(function, functions) if node.name in live
    ]
    return [*script_ops, *calls, *nodes, *function.node_def][0]


def _entries(graph_def: GraphDef) -> Iterator[str]:
    """Yield the must-compile functions that are called from outside of such functions."""
    library = graph_def.library
    functions = defs.by_name(library)
    compiled = {name for name, function in functions.items() if defs.is_compiled(function)}
    for node in filter(defs.is_compiled, itertools.chain(graph_def.node, defs.all_nodes(library))):
        compiled.update(defs.called_functions(node, functions))
    inside = {
        inner for name in compiled for inner in defs.reachable_in(functions, name) if inner != name
    }
    callers = [f.node_def for name, f in functions.items() if name not in compiled | inside]
    called = {
        name
        for nodes in (graph_def.node, *callers)
        for node in nodes
        for name in defs.called_functions(node, functions)
    }
    yield from (
        name for name in functions if name in compiled and name in called | compiled - inside
    )


def _program_of(library: FunctionDefLibrary, entry: str) -> Program:
    """Make the program of a function: empty if XLA compiles the function as it is."""
    if not plan.is_taken(library, entry):
        return []
    own = defs.reachable(library, entry)
    reached = protos.function_pb2.FunctionDefLibrary(function=own.values())
    written = constants.folded(reached, entry)
    passes.keep_graph_mode(written, entry)
    if reason := next(_reasons(defs.reachable(written, entry)), ""):
        return reason
    if settings.current.semantics == settings.GRAPH:
        with node_places.found_by(_locator(own)):
            written = failures.add(written, entry)
    functions = defs.reachable(written, entry)
    if not any(_differs(function, own.get(name)) for name, function in functions.items()):
        return []
    return _problem_of(functions) or _renamed(functions, entry)


def _reasons(functions: Functions) -> Iterator[str]:
    """Yield why ops must not be compiled; script ops aside, of which the server asks for itself."""
    for function in functions.values():
        for node in function.node_def:
            if node.op not in op_kinds.SCRIPT_OPS:
                for mark in (attributes.WRONG, attributes.BLOCKER):
                    if mark in node.attr:
                        why = node.attr[mark].s.decode(errors="replace")
                        yield f"op '{node.name}' ({node.op}): {why}"


def _locator(functions: Functions) -> node_places.Locate:
    """Return a function that finds the places of nodes by the graphs that Python still has."""
    ops = {(name, node.name): node.op for name, f in functions.items() for node in f.node_def}

    def locate(function: str, node: str) -> str:
        op = ops.get((function, node), "")
        return (
            node_places.describe_place(functions, function, node, op).removeprefix(" at ")
            if op
            else ""
        )

    return locate


def _differs(function: FunctionDef, before: FunctionDef | None) -> bool:
    """Return whether a function has other nodes than before."""
    if before is None or len(function.node_def) != len(before.node_def):
        return True
    pairs = zip(function.node_def, before.node_def, strict=True)
    return any(node.op != other.op for node, other in pairs)


def _problem_of(functions: Functions) -> str:
    """Return why a server must not compile a program, "" if it may."""
    calls = Effects(functions, op_kinds.has_effect, op_kinds.STATEFUL_SCRIPT_OPS)
    for function in functions.values():
        raised = False
        for node in defs.program_order(function):
            if raised and calls.of_callees(node):
                return _ORDER
            raised |= node.op == op_kinds.RAISE
            if node.op.startswith("Hostcall") and node.op not in (op_kinds.RAISE, _AND, _ANY):
                return _UNKNOWN.format(op=node.op)
    return ""


def _renamed(functions: Functions, entry: str) -> list[Any]:
    """Give all functions of a program names of their own; return them with the entry first."""
    effects = Effects(functions)
    names: dict[str, str] = {}

    def renamed(name: str) -> str:
        if name in functions and name not in names:
            names[name] = name  # XLA compiles no recursion
            function = functions[name]
            effects.chain(function)
            for node in defs.calls_in(function, functions):
                defs.redirect(node, functions, renamed)
            digest = function_names.digest_of_functions([function])
            names[name] = function_names.without_digests(name) + digest
        return names.get(name, name)

    renamed(entry)
    for name, function in functions.items():
        function.signature.name = renamed(name)
    return [functions[entry], *(f for name, f in functions.items() if name != entry)]


def _without_own_ops(function: FunctionDef) -> None:
    """Make script ops of the ops that TensorFlow lacks, in place."""
    casts: list[Any] = []
    for node in function.node_def:
        if node.op == op_kinds.RAISE:
            errors = _NEXT_ERROR.join(node.attr["errors"].list.s)
            takes = [*node.attr["T"].list.type]
            _make_script_op(node, "PyFunc", _ERRORS.encode() + errors, takes, [])
        elif node.op == _AND:
            node.op = "LogicalAnd"
        elif node.op == _ANY:
            token = _KIND.encode() + node.attr["kind"].s
            dtype = node.attr["T"].type
            if dtype not in _SEARCHED:
                casts += _cast_inputs(node, dtype)
                dtype = defs.INT64
            _make_script_op(node, "PyFuncStateless", token, [dtype] * 2, [defs.BOOL])
            function_edits.replace_value(function, f"{node.name}:any:0", f"{node.name}:output:0")
    function.node_def.extend(casts)


def _cast_inputs(node: Any, dtype: int) -> list[Any]:
    """Let a node take integers of 64 bits; return the nodes that cast."""
    casts = []
    for i, value in enumerate(defs.data_inputs(node)):
        cast = protos.node_def_pb2.NodeDef(
            name=f"{node.name}/cast_{i}", op="Cast", input=[value], device=node.device
        )
        cast.attr["SrcT"].type, cast.attr["DstT"].type = dtype, defs.INT64
        node.input[i] = f"{cast.name}:y:0"
        casts.append(cast)
    return casts


def _make_script_op(node: Any, op: str, token: bytes, takes: list[int], returns: list[int]) -> None:
    node.op = op
    node.attr.clear()
    node.attr["token"].s = token
    node.attr["Tin"].list.type.extend(takes)
    node.attr["Tout"].list.SetInParent()
    node.attr["Tout"].list.type.extend(returns)
