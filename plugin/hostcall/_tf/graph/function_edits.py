"""Edits of FunctionDefs: nodes that are added or dropped, and values in the place of others."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._tf.graph import attributes, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import (
    ArgDef,
    FunctionDef,
    FunctionDefLibrary,
    Functions,
    NodeDef,
    TensorProto,
)

# The most nodes that are added or removed one by one, which moves all nodes behind them. To make
# the nodes of a function anew takes as long as to parse them several times.
MOST_IN_PLACE = 100
_COMPARISONS = frozenset({"Equal", "NotEqual"})
# The eager context adds this attribute to a function without it, and then sees another function.
_CONTEXT = "_construction_context"


def _tensor(value: object, dtype: int, shape: list[int] | None) -> TensorProto:
    """Return a constant as a TensorProto; that of integers, as most are, is made once."""
    known = tuple(value) if isinstance(value, list) else (value,)
    if all(type(number) is int for number in known):
        of_list = known if isinstance(value, list) else known[0]
        return _of_integers(of_list, dtype, None if shape is None else tuple(shape))
    tensor: TensorProto = tf.make_tensor_proto(value, tf.as_dtype(dtype), shape)
    return tensor


@functools.lru_cache(1024)
def _of_integers(value: object, dtype: int, shape: tuple[int, ...] | None) -> TensorProto:
    tensor: TensorProto = tf.make_tensor_proto(value, tf.as_dtype(dtype), shape)
    return tensor


def constant(
    name: str, tensor: TensorProto, device: str = "", controls: Iterable[str] = ()
) -> NodeDef:
    """Return a NodeDef of a constant."""
    node: NodeDef = protos.node_def_pb2.NodeDef(
        name=name, op="Const", device=device, input=controls
    )
    node.attr["value"].tensor.CopyFrom(tensor)
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return node


class NodeWriter:
    """A writer of NodeDefs, each named by a prefix and a number; `nodes` are those so far."""

    def __init__(self, prefix: str, device: str = "") -> None:
        self._prefix = prefix
        self._device = device
        self.nodes: list[Any] = []

    def add(self, op: str, *inputs: str, **types: int) -> str:
        """Add a node with `types` as its dtype attributes; return its first result."""
        name = f"{self._prefix}_{len(self.nodes)}"
        node = protos.node_def_pb2.NodeDef(name=name, op=op, input=inputs, device=self._device)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype
        if op in _COMPARISONS:
            node.attr["incompatible_shape_error"].b = True
        self.nodes.append(node)
        return f"{name}:{op_kinds.op_def(op).output_arg[0].name}:0"

    def constant(self, value: object, dtype: int, shape: list[int] | None = None) -> str:
        """Add a constant of a dtype, given by TensorFlow's number for it; return the constant."""
        result = self.add("Const", dtype=dtype)
        self.nodes[-1].attr["value"].tensor.CopyFrom(_tensor(value, dtype, shape))
        return result

    def cast(self, value: str, source: int, target: int) -> str:
        """Add a cast, unless it is to the same dtype; return the value in the other one."""
        return value if source == target else self.add("Cast", value, SrcT=source, DstT=target)


class OpWriter(NodeWriter):
    """A writer of the nodes that replace one node, or look at its operands."""

    def __init__(self, node: NodeDef, suffix: str = "hostcall") -> None:
        super().__init__(f"{node.name}/{suffix}", node.device)
        self.node = node
        self.inputs = defs.data_inputs(node)


class FunctionEdits:
    """Planned changes to a FunctionDef, in the order of its side effects; `write` makes them."""

    def __init__(self, function: FunctionDef) -> None:
        self._function: Any = function
        self._before: dict[str, list[Any]] = {}
        self._after: dict[str, list[Any]] = {}
        self._values: dict[str, str] = {}
        self._last: list[Any] = []

    @functools.cached_property
    def _names(self) -> set[str]:
        return {node.name for node in self._function.node_def}

    def unused(self, name: str) -> str:
        """Return a name that no node has; later calls do not return it again."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def before(self, node: str, new: Iterable[Any]) -> None:
        """Add NodeDefs in front of a node; they take the replacements of changed values."""
        self._before.setdefault(node, []).extend(new)

    def after(self, node: str, new: Iterable[Any]) -> None:
        """Add NodeDefs behind a node; they take changed values as they were."""
        self._after.setdefault(node, []).extend(new)

    def at_end(self, new: Iterable[Any]) -> None:
        """Add NodeDefs behind all others; they take changed values as they were."""
        self._last.extend(new)

    def change(self, old: str, new: str) -> None:
        """Replace a value wherever it is used, except in the nodes that `after` adds."""
        self._values[old] = new

    def write(self) -> bool:
        """Apply the changes to the function; return whether there were any."""
        if not (self._before or self._after or self._values or self._last):
            return False
        if self._values:
            self._replace_values()
        if self._before or self._after:
            self._insert()
        self._function.node_def.extend(self._last)
        return True

    def _replace_values(self) -> None:
        for node in itertools.chain(self._function.node_def, *self._before.values()):
            for index, value in enumerate(node.input[:]):
                if value in self._values:
                    node.input[index] = self._values[value]
        edit_results(self._function, lambda value: self._values.get(value, value))

    def _insert(self) -> None:
        """Add the nodes that stand in front of others, or behind them."""
        new: list[tuple[int, Any]] = []  # each with the number of nodes in front of it
        beside = self._before.keys() | self._after.keys()
        for i, node in enumerate(self._function.node_def):
            if (name := node.name) in beside:
                new += ((i, one) for one in self._before.get(name, ()))
                new += ((i + 1, one) for one in self._after.get(name, ()))
        if len(new) <= MOST_IN_PLACE:
            for i, node in reversed(new):
                self._function.node_def.insert(i, node)
            return
        nodes = [*self._function.node_def]
        for i, node in reversed(new):
            nodes.insert(i, node)
        replace_nodes(self._function, nodes)


def insert_argument(function: Any, position: int, name: str, dtype: int) -> None:
    """Insert an argument of a dtype, given by TensorFlow's number, into a function's signature."""
    function.signature.input_arg.insert(position, _named(function, name, dtype))
    for index in sorted(function.arg_attr, reverse=True):
        if index >= position:
            attributes = protos.copy_of(function.arg_attr[index])
            del function.arg_attr[index]
            function.arg_attr[index + 1].CopyFrom(attributes)
    for index in sorted(function.resource_arg_unique_id, reverse=True):
        if index >= position:
            function.resource_arg_unique_id[index + 1] = function.resource_arg_unique_id.pop(index)


def insert_result(function: Any, position: int, name: str, dtype: int) -> None:
    """Insert a result of a dtype into a function's signature."""
    function.signature.output_arg.insert(position, _named(function, name, dtype))


def _named(function: Any, name: str, dtype: int) -> ArgDef:
    argument: ArgDef = type(function.signature).ArgDef(name=name, type=dtype)
    return argument


def add_control_output(function: FunctionDef, node: str) -> None:
    """Make the nodes that follow a call of a function follow one of its nodes, too."""
    if node not in function.control_ret.values():
        function.control_ret[node] = node
        function.signature.control_output.append(node)


def name_control_outputs(function: FunctionDef) -> None:
    """Name each control output of a function once, as TensorFlow demands: after its node."""
    nodes = sorted(set(function.control_ret.values()))
    function.control_ret.clear()
    function.control_ret.update({node: node for node in nodes})
    function.signature.control_output[:] = nodes


def take_wide(function: FunctionDef, wide: Mapping[int, int]) -> None:
    """Make a function take and return values of wide dtypes in the place of narrow ones."""
    for arg in function.signature.input_arg:
        if arg.type in wide:
            narrow, arg.type = arg.type, wide[arg.type]
            cast_uses(function, f"{arg.name}__narrow", arg.name, arg.type, narrow)
    for arg in function.signature.output_arg:
        if arg.type in wide:
            narrow, arg.type = arg.type, wide[arg.type]
            value, name = function.ret[arg.name], f"{arg.name}__wide"
            function.ret[arg.name] = add_cast(function, name, value, narrow, arg.type)


def pass_wide(function: FunctionDef, node: NodeDef, wide: Mapping[int, int]) -> None:
    """Make a call, loop or branch of a function pass and get wide dtypes instead of narrow ones."""
    definition = op_kinds.op_def(node.op)
    taken, returned = definition.input_arg[-1], definition.output_arg[0]
    first = len(definition.input_arg) - 1  # the other arguments are one value each
    for index, dtype in enumerate(node.attr[taken.type_list_attr].list.type):
        if dtype in wide:
            value, name = node.input[first + index], f"{node.name}__in_{index}"
            node.input[first + index] = add_cast(function, name, value, dtype, wide[dtype])
    for index, dtype in enumerate(node.attr[returned.type_list_attr].list.type):
        if dtype in wide:
            value, name = f"{node.name}:{returned.name}:{index}", f"{node.name}__out_{index}"
            cast_uses(function, name, value, wide[dtype], dtype)
    for attr in {taken.type_list_attr, returned.type_list_attr}:
        types = node.attr[attr].list.type
        types[:] = [wide.get(dtype, dtype) for dtype in types]


def add_cast(function: FunctionDef, name: str, value: str, source: int, target: int) -> str:
    """Cast a value of a function from one type to another, and return the result."""
    node = function.node_def.add(name=name, op="Cast", input=[value])
    node.attr["SrcT"].type = source
    node.attr["DstT"].type = target
    node.attr["Truncate"].b = False
    return f"{name}:y:0"


def cast_uses(function: FunctionDef, name: str, value: str, source: int, target: int) -> None:
    """Make all uses of a value of a function use the same value cast to another type."""
    # The cast is added last, since it must use the original value.
    replace_value(function, value, f"{name}:y:0")
    add_cast(function, name, value, source, target)


def replace_value(function: FunctionDef, old: str, new: str) -> None:
    """Make all uses of a value of a function use another value."""
    for node in function.node_def:
        for index, value in enumerate(node.input):
            if value == old:
                node.input[index] = new
    edit_results(function, lambda value: new if value == old else value)


def edit_results(function: FunctionDef, edit: Callable[[str], str]) -> None:
    """Give each result of a function the value that `edit` returns for its present one."""
    # A write to a protobuf map during iteration makes it skip entries and repeat others.
    for name, value in [*function.ret.items()]:
        function.ret[name] = edit(value)


def replace_nodes(function: FunctionDef, nodes: Iterable[Any]) -> None:
    """Let a function have other nodes, some of which may be its own."""
    count = len(function.node_def)
    function.node_def.extend(nodes)  # copies them
    del function.node_def[:count]


def drop_dead_nodes(function: FunctionDef, functions: Mapping[str, Any]) -> None:
    """Remove the nodes that neither a result nor a stateful op of a function needs."""
    # TensorFlow and XLA do not run these nodes either, and some may not even be able to run.
    live = defs.live_nodes(function, functions)
    dead = [i for i, node in enumerate(function.node_def) if node.name not in live]
    if len(dead) > MOST_IN_PLACE:
        replace_nodes(function, [node for node in function.node_def if node.name in live])
        return
    for i in reversed(dead):
        del function.node_def[i]


def drop_replaced(library: FunctionDefLibrary) -> None:
    """Remove the replaced nodes, and all other dead nodes, of functions with replaced nodes."""
    functions = defs.by_name(library)
    for function in functions.values():
        if any(map(defs.is_replaced, function.node_def)):
            drop_dead_nodes(function, functions)


def drop_programs(library: FunctionDefLibrary) -> None:
    """Remove what servers are to compile in the place of functions, in place."""
    for node in defs.all_nodes(library):
        for attribute in (attributes.PROGRAM, attributes.UNCOMPILED):
            if attribute in node.attr:
                del node.attr[attribute]


def note_function(nodes: Iterable[NodeDef], function: str) -> None:
    """Make the errors of nodes name their original function, which gets another name."""
    for node in nodes:
        known = node.experimental_debug_info
        if not known.original_node_names:
            known.original_node_names.append(node.name)
            known.original_func_names.append(function)


def set_context(function: FunctionDef, like: FunctionDef) -> None:
    """Give a function the construction context of the function that it was made from."""
    function.attr[_CONTEXT].s = like.attr[_CONTEXT].s or b"kEagerRuntime"


def rename_changed(functions: Functions, changed: Collection[str], entry: str) -> None:
    """Rename changed functions and their callers, in place; `entry` gets its new name later."""
    new_names: dict[str, str] = {}

    def renamed(name: str) -> str:
        if name in functions and name not in new_names:
            new_names[name] = name  # XLA compiles no recursion
            calls = defs.calls_in(functions[name], functions)
            redirected = [defs.redirect(node, functions, renamed) for node in calls]
            if name in changed or any(redirected):
                new_names[name] = name + function_names.digest_of_functions([functions[name]])
        return new_names.get(name, name)

    for name in functions if changed else ():
        if renamed(name) != name and name != entry:
            functions[name].signature.name = new_names[name]
