"""Results of bounded size that leave a program: no two of them may be one value.

XLA keeps the true sizes of a result in memory behind its elements. Of a value that is returned
twice it makes a copy for the second result, without the sizes, and what TensorFlow reads in their
place is arbitrary. Equal values become one in XLA, so that nobody can tell before which results
those are. So each of them is chosen by a condition of its own, which always holds, and which XLA
does not see through: that there are more elements than some negative number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, NodeDef

_NO_ARRAYS = frozenset(t.as_datatype_enum for t in (tf.resource, tf.string, tf.variant))
_INT32 = tf.int32.as_datatype_enum


def keep_apart(library: FunctionDefLibrary, entry: str) -> None:
    """Makes the results of a function in a library be values of their own, if sizes are bounded.

    Args:
      library: a FunctionDefLibrary, changed in place. Its script ops say which results are bounded.
      entry: the name of the function, which is compiled as one program.
    """
    functions = {function.signature.name: function for function in library.function}
    keep_apart_in(functions[entry], functions)


def keep_apart_in(function: Any, functions: Functions) -> None:
    """Do the same to one function that is compiled, such as a cluster.

    Args:
      function: its FunctionDef, changed in place.
      functions: those that it calls, by name.
    """
    results = [r for r in function.signature.output_arg if r.type not in _NO_ARRAYS]
    if len(results) < 2:
        return
    touched = _touched(function, functions)
    fixed = _fixed_results(function)
    results = [
        r
        for r in results
        if (value := function.ret[r.name]) not in fixed and defs.source(value) in touched
    ]
    if len(results) < 2:
        return
    taken = {node.name for node in function.node_def}
    for number, result in enumerate(results):
        name = f"hostcall_result_{number}"
        while any(node.startswith(name) for node in taken):
            name += "_"
        nodes = [*_chosen(name, function.ret[result.name], result.type, -1 - number)]
        function.node_def.extend(nodes)
        function.ret[result.name] = f"{name}:output:0"


def _touched(function: FunctionDef, functions: Mapping[str, Any]) -> set[str]:
    """The nodes that bounded sizes may reach."""
    found = {node.name for node in function.node_def if _is_source(node, functions, set())}
    if found:
        for node in defs.program_order(function):
            taken = (defs.source(value) for value in node.input if not value.startswith("^"))
            if any(name in found for name in taken):
                found.add(node.name)
    return found


def _fixed_results(function: FunctionDef) -> set[str]:
    """The results of script ops whose sizes are known, and their identities.

    Among them are the handles of tape residuals, by which others find them as what they are.
    """
    fixed: set[str] = set()
    for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
        noted = node.attr[attributes.FORESEEN].list.i if attributes.FORESEEN in node.attr else ()
        count = len(node.attr["Tout"].list.type)
        fixed.update(f"{node.name}:output:{i}" for i in range(count) if i not in noted[::2])
    for node in defs.program_order(function):
        if node.op in op_kinds.IDENTITIES:
            values = enumerate(node.input)
            fixed.update(f"{node.name}:output:{i}" for i, value in values if value in fixed)
    return fixed


def _is_source(node: NodeDef, functions: Mapping[str, Any], seen: set[str]) -> bool:
    if attributes.FORESEEN in node.attr and bool(node.attr[attributes.FORESEEN].list.i):
        return True
    names = [n for n in defs.called_functions(node, functions) if n in functions and n not in seen]
    seen.update(names)
    return any(_is_source(n, functions, seen) for name in names for n in functions[name].node_def)


def _chosen(name: str, value: str, dtype: int, number: int) -> Iterator[Any]:
    """The nodes that choose a value, where its size is greater than a number, and zeros else."""
    constant = protos.node_def_pb2.NodeDef(name=f"{name}/number", op="Const")
    constant.attr["dtype"].type = _INT32
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
    yield constant
    size = protos.node_def_pb2.NodeDef(name=f"{name}/size", op="Size", input=[value])
    size.attr["T"].type = dtype
    size.attr["out_type"].type = _INT32
    yield size
    operands = [f"{size.name}:output:0", f"{constant.name}:output:0"]
    holds = protos.node_def_pb2.NodeDef(name=f"{name}/holds", op="Greater", input=operands)
    holds.attr["T"].type = _INT32
    yield holds
    zeros = protos.node_def_pb2.NodeDef(name=f"{name}/zeros", op="ZerosLike", input=[value])
    zeros.attr["T"].type = dtype
    yield zeros
    operands = [f"{holds.name}:z:0", value, f"{zeros.name}:y:0"]
    chosen = protos.node_def_pb2.NodeDef(name=name, op="SelectV2", input=operands)
    chosen.attr["T"].type = dtype
    yield chosen
