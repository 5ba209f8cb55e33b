"""Results of bounded size, kept apart so that no two results of a program are one value.

XLA keeps the true sizes of a result in memory behind its elements. If a value is returned twice,
XLA copies it for the second result without the sizes, and TensorFlow reads arbitrary sizes there.
XLA merges equal values, so it cannot be known in advance which results become one.

So each result is selected by a condition of its own. It always holds, but XLA cannot see that: it
says that a square does not end in certain binary digits, which no square ends in. XLA must not know
the squared number, so it is an element of an argument. If the arguments have no elements, XLA knows
the whole program, and draws the number at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler.function_edits import NodeWriter
from hostcall._tf import attributes, op_kinds
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, Functions, NodeDef

_INT32, _FLOAT = tf.int32.as_datatype_enum, tf.float32.as_datatype_enum
_FLOATS = frozenset(t.as_datatype_enum for t in (tf.half, tf.bfloat16, tf.float32, tf.float64))
_NUMBERS = _FLOATS | {
    t.as_datatype_enum
    for t in (tf.bool, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32)
}
# The modulus, a power of two, for which squares of integers never leave the remainders below.
_ENDS = 4096
# The beginning of the selecting nodes' names.
_PREFIX = "hostcall_result"
_NEVER_ENDS = sorted({*range(_ENDS)} - {n * n % _ENDS for n in range(_ENDS)})


def keep_apart(function: Any, functions: Functions) -> None:
    """Make the bounded results of a compiled function distinct values, in place.

    Its script ops, and those of the functions that it calls, say which results are bounded.
    """
    results = [r for r in function.signature.output_arg if r.type not in defs.NO_ARRAYS]
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
    number = _opaque_number(function, nodes)
    for i, result in enumerate(results):
        value = function.ret[result.name]
        ends = nodes.add("Mul", number, number, T=_INT32)
        ends = nodes.add("BitwiseAnd", ends, nodes.constant(_ENDS - 1, _INT32), T=_INT32)
        other = nodes.constant(_NEVER_ENDS[i % len(_NEVER_ENDS)], _INT32)
        holds = nodes.add("NotEqual", ends, other, T=_INT32)
        zeros = nodes.add("ZerosLike", value, T=result.type)
        function.ret[result.name] = nodes.add("SelectV2", holds, value, zeros, T=result.type)
    function.node_def.extend(nodes.nodes)


def join_again(function: Any) -> None:
    """Undo `keep_apart`, in place, so that a cluster can be divided again."""
    added = {n.name: n for n in function.node_def if n.name.startswith(f"{_PREFIX}_")}

    def joined(value: str) -> str:
        choice = added.get(defs.source(value))
        return value if choice is None or choice.op != "SelectV2" else choice.input[1]

    defs.edit_results(function, joined)
    kept = [node for node in function.node_def if node.name not in added]
    del function.node_def[:]
    function.node_def.extend(kept)


def _opaque_number(function: Any, nodes: NodeWriter) -> str:
    """Add an int32 scalar that XLA cannot know when it compiles.

    XLA knows arguments that give sizes, so floats come first.
    """
    # XLA drops the random number from programs whose argument has elements.
    zero, one = nodes.constant([0], _INT32), nodes.constant([1], _INT32)
    drawn = nodes.add("RandomUniform", one, T=_INT32, dtype=_FLOAT)
    for seed in ("seed", "seed2"):  # deterministic mode refuses random ops without seeds
        nodes.nodes[-1].attr[seed].i = 1
    drawn = nodes.add("Mul", drawn, nodes.constant(1e9, _FLOAT), T=_FLOAT)
    candidates = nodes.add("Cast", drawn, SrcT=_FLOAT, DstT=_INT32)
    arguments = sorted(function.signature.input_arg, key=lambda arg: arg.type not in _FLOATS)
    argument = next((arg for arg in arguments if arg.type in _NUMBERS), None)
    if argument is not None:
        flat_shape = nodes.constant([-1], _INT32)
        flat = nodes.add("Reshape", argument.name, flat_shape, T=argument.type, Tshape=_INT32)
        some = nodes.add("StridedSlice", flat, zero, one, one, T=argument.type, Index=_INT32)
        some = nodes.add("Cast", some, SrcT=argument.type, DstT=_INT32)
        candidates = nodes.join(some, candidates, _INT32)
    first = nodes.add("Slice", candidates, zero, one, T=_INT32, Index=_INT32)
    return nodes.add("Reshape", first, nodes.constant([], _INT32, [0]), T=_INT32, Tshape=_INT32)


def _touched(function: FunctionDef, functions: Mapping[str, Any]) -> set[str]:
    """Return the nodes that bounded sizes may reach."""
    found = {node.name for node in function.node_def if _is_source(node, functions, set())}
    if found:
        for node in defs.program_order(function):
            taken = (defs.source(value) for value in node.input if not value.startswith("^"))
            if any(name in found for name in taken):
                found.add(node.name)
    return found


def _fixed_results(function: FunctionDef) -> set[str]:
    """Return the results of script ops whose sizes are known, and their identities.

    They include the handles of tape residuals, which other code must still recognize.
    """
    fixed: set[str] = set()
    for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
        noted = node.attr[attributes.PREDICTED].list.i if attributes.PREDICTED in node.attr else ()
        count = len(node.attr["Tout"].list.type)
        fixed.update(f"{node.name}:output:{i}" for i in range(count) if i not in noted[::2])
    for node in defs.program_order(function):
        if node.op in op_kinds.IDENTITIES:
            values = enumerate(node.input)
            fixed.update(f"{node.name}:output:{i}" for i, value in values if value in fixed)
    return fixed


def _is_source(node: NodeDef, functions: Mapping[str, Any], seen: set[str]) -> bool:
    if attributes.PREDICTED in node.attr and bool(node.attr[attributes.PREDICTED].list.i):
        return True
    names = [n for n in defs.called_functions(node, functions) if n in functions and n not in seen]
    seen.update(names)
    return any(_is_source(n, functions, seen) for name in names for n in functions[name].node_def)
