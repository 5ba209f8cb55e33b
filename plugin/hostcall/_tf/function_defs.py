"""FunctionDefs: nodes, their order, the types of values, and called functions.

TensorFlow finds functions by their names, and so does what it keeps of XLA's programs. But several
functions may have one name: a dataset optimizes a copy of its own of what it maps, and so may each
session. Functions that hostcall makes of them have digests in their names, so that equal names mean
equal functions.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hostcall._tf import attributes, op_kinds, protos, token_registry
from hostcall._tf.types import (
    ArgDef,
    ConcreteFunction,
    FunctionDef,
    FunctionDefLibrary,
    GraphDef,
    NodeDef,
    OpDef,
)


def with_defaults(library: FunctionDefLibrary) -> Any:
    """A copy of a FunctionDefLibrary in which all nodes have all their attributes.

    Which kernels an op has is asked by its attributes, and a missing one answers no question.
    """
    copy = protos.function_pb2.FunctionDefLibrary()
    copy.CopyFrom(library)
    for node in (node for function in copy.function for node in function.node_def):
        definition = op_kinds.op_def_or_none(node.op)
        for attr in definition.attr if definition is not None else ():
            if attr.HasField("default_value") and attr.name not in node.attr:
                node.attr[attr.name].CopyFrom(attr.default_value)
    return copy


_DIGEST = "__digest_"
_BYTES = 8

# What TensorFlow makes of the name of a function, and a partitioning of that.
_NAME = re.compile(
    r"(?:__(?:inference|forward|backward)_)?(?P<name>.+?)(?:_\d+)?"
    rf"(?:{_DIGEST}[0-9a-f]+)?(?P<part>__partitioned.*)?"
)
_DIGESTS = re.compile(rf"{_DIGEST}[0-9a-f]+")


def of_contents(functions: Iterable[FunctionDef]) -> str:
    """Return what tells functions from others of the same names, to be put behind a name."""
    digest = hashlib.blake2b(digest_size=_BYTES)
    nonce = token_registry.nonce().encode()
    for function in sorted(functions, key=lambda function: function.signature.name):
        text = function.SerializeToString(deterministic=True)
        # The same functions have the same names in the next process, which finds their programs in
        # TensorFlow's cache of them.
        digest.update(text.replace(nonce, b""))
    return f"{_DIGEST}{digest.hexdigest()}"


def without_digests(function: str) -> str:
    """Return a name without what `of_contents` has put into it."""
    return _DIGESTS.sub("", function)


def plain(function: str) -> str:
    """What the user calls a function, as far as its name tells."""
    match = _NAME.fullmatch(function)
    return match["name"] if match else function


def without_number(function: str) -> str:
    """A name without what TensorFlow adds to tell one trace of a function from the next."""
    match = _NAME.fullmatch(function)
    return match["name"] + (match["part"] or "") if match else function


# On the nodes that call a function which XLA must compile, and on the function.
MUST_COMPILE = "_XlaMustCompile"

# The eager context adds this to functions that lack it, and then takes them for other ones.
_CONTEXT = "_construction_context"

CALL_OPS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
CONTROL_FLOW_OPS = frozenset(
    {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"}
)

# The loops and branches of TensorFlow 1, whose nodes only work together. Sessions make the others
# into them, too. XLA compiles none of them.
FRAME_OPS = frozenset(
    {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "_SwitchN"}
    | {"RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"}
)
_MERGES = frozenset({"Merge", "RefMerge"})
_LOOP_ENDS = frozenset({"NextIteration", "RefNextIteration"})

_CYCLE = (
    "hostcall: the nodes {nodes} of a function wait for each other. This is a bug in hostcall; "
    "please report it."
)


def library_of(concrete: ConcreteFunction, graph_def: GraphDef) -> Any:
    """A FunctionDefLibrary of a concrete function, its last entry, and all that it reaches.

    Args:
      concrete: the function.
      graph_def: that of its graph.
    """
    library = protos.function_pb2.FunctionDefLibrary()
    library.CopyFrom(graph_def.library)
    library.function.add().CopyFrom(concrete.function_def)
    drop_replaced(library)
    return library


def set_context(function: FunctionDef, like: FunctionDef) -> None:
    """Gives a function the context of another one that it comes from."""
    function.attr[_CONTEXT].s = like.attr[_CONTEXT].s or b"kEagerRuntime"


def is_compiled(marked: FunctionDef | NodeDef) -> bool:
    """Whether TensorFlow must compile a function, or the function that a node calls."""
    return MUST_COMPILE in marked.attr and bool(marked.attr[MUST_COMPILE].b)


def call_node(name: str, signature: OpDef, inputs: Iterable[str], stateful: bool) -> Any:
    """A node that calls the function of a signature; `stateful` says by which op."""
    op = "StatefulPartitionedCall" if stateful else "PartitionedCall"
    node = protos.node_def_pb2.NodeDef(name=name, op=op, input=inputs)
    node.attr["f"].func.name = signature.name
    node.attr["Tin"].list.type.extend(arg.type for arg in signature.input_arg)
    node.attr["Tout"].list.type.extend(arg.type for arg in signature.output_arg)
    for attribute in ("config", "config_proto", "executor_type"):
        node.attr[attribute].s = b""
    return node


def add_cast(function: FunctionDef, name: str, value: str, source: int, target: int) -> str:
    """Casts a value of a function from one type to another; returns the result."""
    node = function.node_def.add(name=name, op="Cast", input=[value])
    node.attr["SrcT"].type = source
    node.attr["DstT"].type = target
    node.attr["Truncate"].b = False
    return f"{name}:y:0"


def cast_uses(function: FunctionDef, name: str, value: str, source: int, target: int) -> None:
    """Has all that uses a value of a function use the same value of another type."""
    # The cast itself goes on to use the value.
    replace_value(function, value, f"{name}:y:0")
    add_cast(function, name, value, source, target)


def note_function(nodes: Iterable[NodeDef], function: str) -> None:
    """Has the errors of nodes name the function that they come from; theirs gets another name."""
    for node in nodes:
        known = node.experimental_debug_info
        if not known.original_node_names:
            known.original_node_names.append(node.name)
            known.original_func_names.append(function)


def callees(node: NodeDef) -> list[Any]:
    """The NameAttrLists in a node's attributes."""
    found: list[Any] = []
    for name in _function_attrs(node.op):
        if name in node.attr:
            value = node.attr[name]
            found.extend([value.func] if value.HasField("func") else value.list.func)
    return found


@functools.cache
def _function_attrs(op: str) -> list[str]:
    """The attributes of an op that name functions, in an order that lasts."""
    definition = op_kinds.op_def_or_none(op)
    attrs = definition.attr if definition is not None else ()
    return sorted(attr.name for attr in attrs if attr.type in ("func", "list(func)"))


def called_functions(node: NodeDef, functions: Mapping[str, Any]) -> list[str]:
    """The names of the functions that a node calls: by an attribute, or by its op."""
    op = node.op
    names = [callee.name for callee in callees(node)] if _function_attrs(op) else []
    return [op, *names] if op in functions else names


def reachable(library: FunctionDefLibrary, entry: str) -> dict[str, Any]:
    """A function of a library, and those that it calls, directly or not, by name."""
    return reachable_in({f.signature.name: f for f in library.function}, entry)


def reachable_in(functions: Mapping[str, Any], entry: str) -> dict[str, Any]:
    """The same, of functions by name."""
    found: dict[str, Any] = {}
    pending = [entry]
    while pending:
        name = pending.pop()
        if name in functions and name not in found:
            found[name] = functions[name]
            for node in calls_in(functions[name], functions):
                pending.extend(called_functions(node, functions))
    return found


def nodes_of(function: FunctionDef, kinds: Collection[str]) -> list[Any]:
    """The nodes of a function whose ops are among some.

    Who looks for few of many nodes asks here first: to call a function for each takes far longer.
    """
    return [node for node in function.node_def if node.op in kinds]


def has_frames(function: FunctionDef) -> bool:
    """Tell whether a function has loops or branches of TensorFlow 1."""
    return bool(nodes_of(function, FRAME_OPS))


def calls_in(function: FunctionDef, functions: Mapping[str, Any]) -> list[Any]:
    """The nodes of a function that may call one, as `called_functions` says."""
    # Large functions have few kinds of ops.
    kinds = {node.op for node in function.node_def}
    calling = {kind for kind in kinds if kind in functions or _function_attrs(kind)}
    return nodes_of(function, calling) if calling else []


def source(value: str) -> str:
    """The name of the node or of the argument that an input comes from."""
    return (value[1:] if value[0] == "^" else value).partition(":")[0]


def predecessors(nodes: Iterable[Any]) -> list[list[int]]:
    """For each node the positions of those that it waits for before it first runs.

    The loops of TensorFlow 1 lead back to where they begin, which does not wait for that.
    """
    nodes = list(nodes)
    position = {node.name: i for i, node in enumerate(nodes)}
    ends = {node.name for node in nodes if node.op in _LOOP_ENDS}
    found = []
    for node in nodes:
        names = set(map(source, node.input))
        if ends and node.op in _MERGES:
            names -= ends
        found.append(sorted(position[name] for name in names if name in position))
    return found


def program_order(function: FunctionDef) -> list[Any]:
    """The nodes in an order that respects all edges and otherwise that of their creation.

    Raises:
      RuntimeError: when nodes wait for each other, other than in the loops of TensorFlow 1.
    """
    nodes = list(function.node_def)
    return nodes if _are_in_order(nodes) else _in_order(nodes)


def _are_in_order(nodes: list[Any]) -> bool:
    """Whether none takes something of a later one, as in nearly all that TensorFlow traces."""
    later = {node.name for node in nodes}
    for node in nodes:
        for value in node.input:
            if source(value) in later:
                return False
        later.discard(node.name)
    return True


def _in_order(nodes: list[Any]) -> list[Any]:
    before = predecessors(nodes)
    successors: list[list[int]] = [[] for _ in nodes]
    missing = [len(sources) for sources in before]
    for i, sources in enumerate(before):
        for j in sources:
            successors[j].append(i)
    ready = [i for i, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(nodes[i])
        for successor in successors[i]:
            missing[successor] -= 1
            if missing[successor] == 0:
                heapq.heappush(ready, successor)
    if len(order) < len(nodes):
        left = [node.name for node, count in zip(nodes, missing, strict=True) if count]
        raise RuntimeError(_CYCLE.format(nodes=", ".join(map(repr, left))))
    return order


def definition_of(node: NodeDef, functions: Mapping[str, Any]) -> Any:
    """The OpDef of a node, which may call a function by its op."""
    called = functions.get(node.op)
    return called.signature if called is not None else op_kinds.op_def(node.op)


def drop_dead_nodes(function: FunctionDef, functions: Mapping[str, Any]) -> None:
    """Removes the nodes that neither a result nor a stateful op of a function needs.

    Stateful ops that others have taken the place of go, too.

    TensorFlow and XLA do not run them either; an op of theirs may not even be able to run.
    """
    nodes = {node.name: node for node in function.node_def}
    pending = [*map(source, function.ret.values()), *function.control_ret.values()]
    pending += [
        node.name
        for node in nodes.values()
        if definition_of(node, functions).is_stateful and not _is_replaced(node)
    ]
    live: set[str] = set()
    while pending:
        name = pending.pop()
        if name in nodes and name not in live:
            live.add(name)
            pending.extend(map(source, nodes[name].input))
    if len(live) < len(nodes):
        kept = [node for name, node in nodes.items() if name in live]
        del function.node_def[:]
        function.node_def.extend(kept)


def drop_replaced(library: FunctionDefLibrary) -> None:
    """Removes the nodes of all functions that others have taken the place of."""
    functions = {function.signature.name: function for function in library.function}
    for function in functions.values():
        if any(map(_is_replaced, function.node_def)):
            drop_dead_nodes(function, functions)


def _is_replaced(node: NodeDef) -> bool:
    return attributes.REPLACED in node.attr


def output_types(node: NodeDef, functions: Mapping[str, Any]) -> dict[str, list[int]]:
    """The types of a node's results, by the names that FunctionDefs have for them."""
    definition = definition_of(node, functions)
    return {result.name: _types(node, definition, result) for result in definition.output_arg}


def _types(node: NodeDef, definition: OpDef, argument: ArgDef) -> list[int]:
    if argument.type_list_attr:
        return list(_attr(node, definition, argument.type_list_attr).list.type)
    if argument.type_attr:
        dtype = _attr(node, definition, argument.type_attr).type
    else:
        dtype = argument.type
    count = _attr(node, definition, argument.number_attr).i if argument.number_attr else 1
    return [dtype] * count


def _attr(node: NodeDef, definition: OpDef, name: str) -> Any:
    if name in node.attr:
        return node.attr[name]
    # SavedModels leave out what is the default.
    return next(attr.default_value for attr in definition.attr if attr.name == name)


def replace_value(function: FunctionDef, old: str, new: str) -> None:
    """Gives all that uses a value of a function another one."""
    for node in function.node_def:
        for index, value in enumerate(node.input):
            if value == old:
                node.input[index] = new
    edit_results(function, lambda value: new if value == old else value)


def edit_results(function: FunctionDef, edit: Callable[[str], str]) -> None:
    """Give each result of a function the value that `edit` returns for its present one."""
    # A protobuf map that is written to while it is iterated leaves out entries, and repeats others.
    for name, value in [*function.ret.items()]:
        function.ret[name] = edit(value)


def handles(node: NodeDef, dtype: int, functions: Mapping[str, Any]) -> bool:
    """Whether a node takes or returns values of a type."""
    if node.op in functions:
        signature = functions[node.op].signature
        return any(arg.type == dtype for arg in (*signature.input_arg, *signature.output_arg))
    if dtype in _fixed_types(node.op):
        return True
    for attr in _type_attrs(node.op):
        value = node.attr.get(attr)
        if value is not None and (value.type == dtype or dtype in value.list.type):
            return True
    return False


@functools.cache
def _fixed_types(op: str) -> frozenset[int]:
    definition = op_kinds.op_def(op)
    return frozenset(arg.type for arg in (*definition.input_arg, *definition.output_arg))


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
        """Those of a node's results."""
        if name not in self._known:
            self._known[name] = output_types(self._nodes[name], self._functions)
        return self._known[name]

    def position(self, name: str, result: str) -> int:
        """The number of a node's result, which the inputs of others call `result`, as "z:0"."""
        wanted, _, index = result.partition(":")
        before = 0
        for known, types in self.of_node(name).items():
            if known == wanted:
                break
            before += len(types)
        return before + int(index or 0)

    def definition_of(self, node: NodeDef) -> Any:
        """The OpDef of a node."""
        return definition_of(node, self._functions)

    def handles(self, node: NodeDef, dtype: int) -> bool:
        """Whether a node takes or returns values of a type."""
        return handles(node, dtype, self._functions)

    def of(self, value: str) -> int:
        """That of an argument, `name`, or of a node's result, `name:result:index`."""
        name, _, result = value.partition(":")
        if not result:
            return int(self._arguments[name])
        result, _, index = result.partition(":")
        return self.of_node(name)[result][int(index or 0)]
