"""Bounded results of a program, made distinct values.

XLA keeps the true sizes of a result in memory behind its elements. If a value is returned twice,
XLA copies it for the second result without the sizes, and TensorFlow reads arbitrary sizes there.
XLA merges equal values, so it cannot be known in advance which results become one. So each result
is selected by a condition of its own. It always holds, but XLA cannot see that: it says that a
square does not end in certain binary digits, which no square ends in. XLA must not know the squared
number, so the program draws it at random.
"""

from __future__ import annotations

from hostcall._compiler.analyses.effects import Effects
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.function_edits import NodeWriter
from hostcall._tf.types import FunctionDef, Functions, NodeDef

# The modulus, a power of two, for which squares of integers never leave the remainders below.
_ENDS = 4096
# The beginning of the selecting nodes' names.
_PREFIX = "hostcall_result"
_NEVER_ENDS = sorted({*range(_ENDS)} - {n * n % _ENDS for n in range(_ENDS)})


def keep_apart(function: FunctionDef, functions: Functions) -> None:
    """Make the bounded results of a compiled function distinct values, in place."""
    results = [r for r in function.signature.output_arg if r.type not in defs.NO_ARRAYS]
    if apart := _added(function):
        results = [r for r in results if defs.source(function.ret[r.name]) not in apart]
    if len(results) > 1:
        touched = _touched(function, functions)
        fixed = _fixed_results(function)
        values = [(r, function.ret[r.name]) for r in results]
        results = [r for r, value in values if value not in fixed and defs.source(value) in touched]
    if len(results) < 2:
        return
    prefix = _PREFIX
    while any(node.name.startswith(prefix) for node in function.node_def):
        prefix += "_"
    nodes = NodeWriter(prefix)
    number = _opaque_number(nodes)
    for i, result in enumerate(results):
        value = function.ret[result.name]
        ends = nodes.add("Mul", number, number, T=defs.INT32)
        ends = nodes.add("BitwiseAnd", ends, nodes.constant(_ENDS - 1, defs.INT32), T=defs.INT32)
        other = nodes.constant(_NEVER_ENDS[i % len(_NEVER_ENDS)], defs.INT32)
        holds = nodes.add("NotEqual", ends, other, T=defs.INT32)
        zeros = nodes.add("ZerosLike", value, T=result.type)
        function.ret[result.name] = nodes.add("SelectV2", holds, value, zeros, T=result.type)
    function.node_def.extend(nodes.nodes)


def join_again(function: FunctionDef) -> None:
    """Undo `keep_apart`, in place, so that a cluster can be divided again."""
    added = _added(function)

    def joined(value: str) -> str:
        choice = added.get(defs.source(value))
        return value if choice is None or choice.op != "SelectV2" else choice.input[1]

    function_edits.edit_results(function, joined)
    kept = [node for node in function.node_def if node.name not in added]
    function_edits.replace_nodes(function, kept)


def _added(function: FunctionDef) -> dict[str, NodeDef]:
    """Return the nodes that `keep_apart` has added to a function, by name."""
    return {n.name: n for n in function.node_def if n.name.startswith(f"{_PREFIX}_")}


def _opaque_number(nodes: NodeWriter) -> str:
    """Add an int32 scalar that XLA cannot know: an argument may be a constant of the program."""
    scalar = nodes.constant([], defs.INT32, [0])
    drawn = nodes.add("RandomUniform", scalar, T=defs.INT32, dtype=defs.FLOAT)
    for seed in ("seed", "seed2"):  # deterministic mode refuses random ops without seeds
        nodes.nodes[-1].attr[seed].i = 1
    drawn = nodes.add("Mul", drawn, nodes.constant(1e9, defs.FLOAT), T=defs.FLOAT)
    return nodes.add("Cast", drawn, SrcT=defs.FLOAT, DstT=defs.INT32)


def _touched(function: FunctionDef, functions: Functions) -> set[str]:
    """Return the nodes that bounded sizes may reach."""
    sources = Effects(functions, _is_source, None)
    found = {node.name for node in function.node_def if sources.of_node(node)}
    if found:
        for node in defs.program_order(function):
            taken = (defs.source(value) for value in node.input if not value.startswith("^"))
            if any(name in found for name in taken):
                found.add(node.name)
    return found


def _fixed_results(function: FunctionDef) -> set[str]:
    """Return the results of script ops whose sizes are known, handles among them."""
    fixed: set[str] = set()
    for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
        noted = {result for result, _ in protos.pairs(node, attributes.PREDICTED)}
        count = len(node.attr["Tout"].list.type)
        fixed.update(f"{node.name}:output:{i}" for i in range(count) if i not in noted)
    for node in defs.program_order(function):
        if node.op in op_kinds.IDENTITIES:
            values = enumerate(node.input)
            fixed.update(f"{node.name}:output:{i}" for i, value in values if value in fixed)
    return fixed


def _is_source(node: NodeDef) -> bool:
    return bool(protos.pairs(node, attributes.PREDICTED))
