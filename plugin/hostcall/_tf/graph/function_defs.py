"""FunctionDefs: nodes, their order, the types of values, and called functions."""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import (
    AnyNode,
    ArgDef,
    AttrValue,
    FunctionDef,
    FunctionDefLibrary,
    NodeDef,
    OpDef,
)


def with_defaults(library: FunctionDefLibrary) -> FunctionDefLibrary:
    """Return a copy of a library with all attributes on its nodes: kernels are chosen by them."""
    copy = protos.copy_of(library)
    for node in all_nodes(copy):
        definition = op_kinds.op_def_or_none(node.op)
        for attr in definition.attr if definition is not None else ():
            if attr.HasField("default_value") and attr.name not in node.attr:
                node.attr[attr.name].CopyFrom(attr.default_value)
    return copy


# An attribute of a function that XLA must compile, and of the nodes that call it.
MUST_COMPILE = "_XlaMustCompile"

# The numbers of dtypes in nodes and signatures.
BOOL, FLOAT, INT32, INT64, RESOURCE, STRING, VARIANT = (
    dtype.as_datatype_enum
    for dtype in (tf.bool, tf.float32, tf.int32, tf.int64, tf.resource, tf.string, tf.variant)
)
# XLA has no arrays of these dtypes.
NO_ARRAYS = frozenset({RESOURCE, STRING, VARIANT})

_CYCLE = (
    "hostcall: the nodes {nodes} of a function wait for each other. This is a bug in hostcall; "
    "please report it."
)


def is_compiled(marked: FunctionDef | NodeDef) -> bool:
    """Return whether XLA must compile a function, or the function that a node calls."""
    return protos.is_true(marked, MUST_COMPILE)


def call_node(name: str, signature: OpDef, inputs: Iterable[str], stateful: bool) -> NodeDef:
    """Return a node that calls the function of a signature; `stateful` selects the call op."""
    op = "StatefulPartitionedCall" if stateful else "PartitionedCall"
    node: NodeDef = protos.node_def_pb2.NodeDef(name=name, op=op, input=inputs)
    node.attr["f"].func.name = signature.name
    node.attr["Tin"].list.type.extend(arg.type for arg in signature.input_arg)
    node.attr["Tout"].list.type.extend(arg.type for arg in signature.output_arg)
    for attribute in ("config", "config_proto", "executor_type"):
        node.attr[attribute].s = b""
    return node


# The dtypes in which values of sub-byte dtypes cross the boundary of a compiled program. XLA packs
# two of these values into a byte. TensorFlow does not, and would misread them.
WIDE = {
    tf.as_dtype(sub_byte).as_datatype_enum: tf.as_dtype(wide).as_datatype_enum
    for sub_byte, wide in (("int4", "int8"), ("uint4", "uint8"))
}


def _numbers(*names: str) -> Iterator[int]:
    for name in names:
        with contextlib.suppress(TypeError):  # this TensorFlow lacks it
            yield tf.as_dtype(name).as_datatype_enum


# Other sub-byte dtypes: no XLA kernel of TensorFlow's takes or returns them, and no op casts them.
UNKNOWN_TO_XLA = frozenset(_numbers("int2", "uint2", "float4_e2m1fn"))


def wide(dtype: tf.DType) -> tf.DType:
    """Return the dtype in which values of a dtype cross the boundary of a compiled program."""
    return tf.as_dtype(WIDE.get(dtype.as_datatype_enum, dtype.as_datatype_enum))


def callees(node: AnyNode) -> list[Any]:
    """Return the NameAttrLists in a node's attributes."""
    found: list[Any] = []
    for name in _function_attrs(node.op):
        if name in node.attr:
            value = node.attr[name]
            found.extend([value.func] if value.HasField("func") else value.list.func)
    return found


@functools.cache
def _function_attrs(op: str) -> list[str]:
    """Return the attributes of an op that name functions, in a stable order."""
    definition = op_kinds.op_def_or_none(op)
    attrs = definition.attr if definition is not None else ()
    return sorted(attr.name for attr in attrs if attr.type in ("func", "list(func)"))


def called_functions(node: AnyNode, functions: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions that a node calls, by an attribute or by its op."""
    op = node.op
    names = [callee.name for callee in callees(node)] if _function_attrs(op) else []
    return [op, *names] if op in functions else names


def redirect(node: AnyNode, functions: Mapping[str, Any], renamed: Callable[[str], str]) -> bool:
    """Make a node call functions by their new names; return whether it did not before."""
    changed = False
    for callee in callees(node):
        new = renamed(callee.name)
        changed |= new != callee.name
        callee.name = new
    if node.op in functions and (new := renamed(node.op)) != node.op:
        node.op, changed = new, True
    return changed


def by_name(library: FunctionDefLibrary) -> dict[str, Any]:
    """Return the functions of a library by name."""
    return {function.signature.name: function for function in library.function}


def reachable(library: FunctionDefLibrary, entry: str) -> dict[str, Any]:
    """Return a function of a library and those that it calls, directly or not, by name."""
    return reachable_in(by_name(library), entry)


def reachable_in(functions: Mapping[str, Any], entry: str) -> dict[str, Any]:
    """Return a function of a mapping from names, and those that it calls, directly or not."""

    def called(name: str) -> Iterator[str]:
        for node in calls_in(functions[name], functions) if name in functions else ():
            yield from called_functions(node, functions)

    return {name: functions[name] for name in reach([entry], called) if name in functions}


def new_functions(before: FunctionDefLibrary, after: FunctionDefLibrary) -> list[Any]:
    """List the functions with new names, which TensorFlow does not have."""
    known = {function.signature.name for function in before.function}
    return [function for function in after.function if function.signature.name not in known]


def is_changed(before: FunctionDefLibrary, after: FunctionDefLibrary, entry: str) -> bool:
    """Return whether a function, or one that it calls, has other ops than before."""
    old, new = (by_name(library)[entry] for library in (before, after))
    return [node.op for node in old.node_def] != [node.op for node in new.node_def] or bool(
        new_functions(before, after)
    )


def nodes_of(function: FunctionDef, kinds: Collection[str]) -> list[Any]:
    """Return the nodes of a function of these kinds, faster than by a call for each node."""
    return [node for node in function.node_def if node.op in kinds]


def all_nodes(library: FunctionDefLibrary, kinds: Collection[str] | None = None) -> Iterator[Any]:
    """Yield the nodes of all functions of a library, or those of some kinds."""
    for function in library.function:
        yield from function.node_def if kinds is None else nodes_of(function, kinds)


def has_frames(function: FunctionDef) -> bool:
    """Tell whether a function has loops or branches of TensorFlow 1."""
    return bool(nodes_of(function, op_kinds.FRAME_OPS))


def calls_in(function: FunctionDef, functions: Mapping[str, Any]) -> list[Any]:
    """Return the nodes of a function that may call functions, as `called_functions` finds them."""
    # Even large functions have few kinds of ops, so each kind is checked once.
    kinds = {node.op for node in function.node_def}
    calling = {kind for kind in kinds if kind in functions or _function_attrs(kind)}
    return nodes_of(function, calling) if calling else []


def source(value: str) -> str:
    """Return the name of the node or of the argument that an input comes from."""
    return (value[1:] if value[0] == "^" else value).partition(":")[0]


def sources(node: NodeDef) -> list[str]:
    """Return the names of the nodes and arguments that each input of a node comes from."""
    # A slice of a field takes a third of the time of an iteration over it.
    return [(v[1:] if v[0] == "^" else v).partition(":")[0] for v in node.input[:]]


def data_inputs(node: NodeDef) -> list[str]:
    """Return the inputs of a node that are values."""
    return [value for value in node.input[:] if value[0] != "^"]


def predecessors(nodes: Iterable[Any]) -> list[list[int]]:
    """Return the positions that each node waits for, but for back edges of TensorFlow 1's loops."""
    nodes = list(nodes)
    return _predecessors(nodes, [*map(sources, nodes)])


def _predecessors(nodes: list[Any], inputs: list[list[str]]) -> list[list[int]]:
    position = {node.name: i for i, node in enumerate(nodes)}
    ends = {node.name for node in nodes if node.op in op_kinds.LOOP_ENDS}
    if ends:
        pairs = zip(nodes, inputs, strict=True)
        inputs = [
            [n for n in i if n not in ends] if o.op in op_kinds.MERGES else i for o, i in pairs
        ]
    return [sorted({position[name] for name in names if name in position}) for names in inputs]


def program_order(function: FunctionDef) -> list[Any]:
    """Return the nodes in an order that respects all edges, and otherwise their creation order."""
    nodes = list(function.node_def)
    inputs = [*map(sources, nodes)]
    return nodes if _are_in_order(nodes, inputs) else in_order(nodes, _predecessors(nodes, inputs))


def _are_in_order(nodes: list[Any], inputs: list[list[str]]) -> bool:
    """Return whether no node uses a later one, as in nearly all functions that were traced."""
    names = [node.name for node in nodes]
    later = set(names)
    for name, before in zip(names, inputs, strict=True):
        if not later.isdisjoint(before):
            return False
        later.discard(name)
    return True


def in_order(nodes: list[Any], before: list[list[int]]) -> list[Any]:
    """Return nodes behind those that they follow, by position, and otherwise as they stand."""
    left = [*map(len, before)]  # how many nodes each one still waits for
    after: list[list[int]] = [[] for _ in nodes]
    for i, waited in enumerate(before):
        for j in waited:
            after[j].append(i)
    ready: list[int] = []  # a heap of those that were passed over, and wait for nothing any more
    order: list[int] = []
    for position in range(len(nodes)):
        if not left[position]:
            heapq.heappush(ready, position)
        while ready:
            done = heapq.heappop(ready)
            order.append(done)
            for i in after[done]:
                left[i] -= 1
                if i <= position and not left[i]:
                    heapq.heappush(ready, i)
    if len(order) < len(nodes):
        names = ", ".join(repr(nodes[i].name) for i, count in enumerate(left) if count)
        raise RuntimeError(_CYCLE.format(nodes=names))
    return [nodes[i] for i in order]


def definition_of(node: AnyNode, functions: Mapping[str, Any]) -> OpDef:
    """Return the OpDef of a node; the signature, if its op is a function."""
    called = functions.get(node.op)
    return called.signature if called is not None else op_kinds.op_def(node.op)


def constant(node: AnyNode | None) -> np.ndarray | None:
    """Return the value of a node as an array if it is a constant, else None."""
    if node is None or node.op != "Const":
        return None
    array: np.ndarray = tf.make_ndarray(node.attr["value"].tensor)
    return array


def live_nodes(function: FunctionDef, functions: Mapping[str, Any]) -> set[str]:
    """Return the names of the nodes that a result or a stateful op of a function needs."""
    # Stateful ops that were replaced are not needed.
    nodes = {node.name: node for node in function.node_def}
    # Large functions have few kinds of ops.
    kinds = {node.op: node for node in nodes.values()}
    stateful = {op for op, node in kinds.items() if definition_of(node, functions).is_stateful}
    starts = [*map(source, function.ret.values()), *function.control_ret.values()]
    starts += [n.name for n in nodes_of(function, stateful) if not is_replaced(n)]
    found = reach(starts, lambda name: sources(nodes[name]) if name in nodes else ())
    return nodes.keys() & found


def is_replaced(node: AnyNode) -> bool:
    """Return whether other ops have replaced a node."""
    return attributes.REPLACED in node.attr


def output_types(node: AnyNode, functions: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the types of a node's results, by the names of the results in FunctionDefs."""
    definition = definition_of(node, functions)
    return {result.name: types_of(node, definition, result) for result in definition.output_arg}


def results_of(node: AnyNode, functions: Mapping[str, Any]) -> dict[str, int]:
    """Return the types of a node's results, by their names as inputs of other nodes."""
    return _by_value(node.name, output_types(node, functions))


def _by_value(name: str, types: Mapping[str, list[int]]) -> dict[str, int]:
    return {
        f"{name}:{result}:{i}": dtype
        for result, of_result in types.items()
        for i, dtype in enumerate(of_result)
    }


def types_of(node: AnyNode, definition: OpDef, argument: ArgDef) -> list[int]:
    """Return the types of the values of a node that belong to an argument or result of its op."""
    if argument.type_list_attr:
        return list(_attr(node, definition, argument.type_list_attr).list.type)
    named = argument.type_attr
    dtype = _attr(node, definition, named).type if named else argument.type
    count = _attr(node, definition, argument.number_attr).i if argument.number_attr else 1
    return [dtype] * count


def _attr(node: AnyNode, definition: OpDef, name: str) -> AttrValue:
    if name in node.attr:
        return node.attr[name]
    # SavedModels leave out default values.
    return next(attr.default_value for attr in definition.attr if attr.name == name)


def position_in(types: Mapping[str, list[int]], result: str) -> int:
    """Return the position of a result, such as "z:0", among the results of a node."""
    wanted, _, index = result.partition(":")
    before = itertools.takewhile(lambda name: name != wanted, types)
    return sum(len(types[name]) for name in before) + int(index or 0)


def handles(node: AnyNode, dtype: int, functions: Mapping[str, Any]) -> bool:
    """Return whether a node takes or returns values of a type."""
    if node.op in functions:
        return dtype in fixed_types(functions[node.op].signature)
    if dtype in _fixed_types_of(node.op):
        return True
    for attr in _type_attrs(node.op):
        value = node.attr.get(attr)
        if value is not None and (value.type == dtype or dtype in value.list.type):
            return True
    return False


def fixed_types(signature: OpDef) -> frozenset[int]:
    """Return the types of an op's or a function's values that do not depend on the node."""
    return frozenset(arg.type for arg in (*signature.input_arg, *signature.output_arg))


@functools.cache
def _fixed_types_of(op: str) -> frozenset[int]:
    return fixed_types(op_kinds.op_def(op))


@functools.cache
def _type_attrs(op: str) -> list[str]:
    return [a.name for a in op_kinds.op_def(op).attr if a.type in ("type", "list(type)")]


class Types:
    """The types of all values of a function."""

    def __init__(self, function: FunctionDef, functions: Mapping[str, Any]) -> None:
        self._arguments = {arg.name: arg.type for arg in function.signature.input_arg}
        self._nodes = {node.name: node for node in function.node_def}
        self._functions = functions
        self._known: dict[str, dict[str, list[int]]] = {}

    def of_node(self, name: str) -> dict[str, list[int]]:
        """Return the types of a node's results."""
        if name not in self._known:
            self._known[name] = output_types(self._nodes[name], self._functions)
        return self._known[name]

    def results_of(self, name: str) -> dict[str, int]:
        """Return the types of a node's results, by their names as inputs of other nodes."""
        return _by_value(name, self.of_node(name))

    def position(self, name: str, result: str) -> int:
        """Return the number of a node's result that inputs call `result`, such as "z:0"."""
        return position_in(self.of_node(name), result)

    def handles(self, node: AnyNode, dtype: int) -> bool:
        """Return whether a node takes or returns values of a type."""
        return handles(node, dtype, self._functions)

    def of(self, value: str) -> int:
        """Return the type of an argument, `name`, or of a node's result, `name:result:index`."""
        name, _, result = value.partition(":")
        if not result:
            return int(self._arguments[name])
        result, _, index = result.partition(":")
        return self.of_node(name)[result][int(index or 0)]
