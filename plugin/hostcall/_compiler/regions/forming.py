"""Regions: connected host ops with nothing compiled between them, and references to their values.

XLA has no values for strings, nor for the variants and resources of host ops, say the handle of a
table or a dataset. The program has references in their place, which are int64 scalars. The real
values are kept beside the program while it runs (`csrc/tensorflow/region.h`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import lookup, result_shapes
from hostcall._callbacks.structures import BoundedSpec
from hostcall._compiler.partition.boundary_values import place_of
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds, protos
from hostcall._tf.types import FunctionDef, NodeDef
from hostcall_runtime import _scheduling as clustering
from hostcall_runtime._scheduling import Groups, Place

# None if not even the rank is known; an unknown size is -1.
Shape = list[int] | None


def of_results(serialized: bytes, operands: Sequence[Shape]) -> list[Shape]:
    """Return the shapes of a script op's results; called for each script op of a region.

    Args:
      serialized: the op's NodeDef.
      operands: the known shapes of its inputs.

    Raises:
      LoweringError: if the declarations of the shapes contradict each other.
    """
    node = protos.node_def_pb2.NodeDef.FromString(serialized)
    spec = lookup.existing_spec_of(node)
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
    specs = [
        tf.TensorSpec(None if shape is None else [None if s < 0 else s for s in shape], dtype)
        for shape, dtype in zip(operands, dtypes, strict=True)
    ]
    results = result_shapes.demanded(spec, node, specs)
    shapes = [None if isinstance(said, BoundedSpec) else _sizes(said.shape) for said in results]
    hidden = len(node.attr["Tout"].list.type) - len(shapes)
    return [*shapes, *[[]] * hidden]


def _sizes(shape: tf.TensorShape) -> Shape:
    return None if shape.rank is None else [-1 if s is None else s for s in shape.as_list()]


_STRING, _RESOURCE, _VARIANT = (
    dtype.as_datatype_enum for dtype in (tf.string, tf.resource, tf.variant)
)
_HELD = (_STRING, _RESOURCE, _VARIANT)
# Ops that pass on references as they are.
PASSED_ON = frozenset({"Identity", "IdentityN"})

# A value: the name of its function, and its own name there.
Value = tuple[str, str]


class NotWholeError(Exception):
    """The reason why a function cannot be one program, even with regions."""


def is_call(node: NodeDef, functions: Mapping[str, Any]) -> bool:
    """Return whether XLA compiles the functions that a node calls along with it."""
    return node.op in defs.CONTROL_FLOW_OPS | defs.CALL_OPS or node.op in functions


class References:
    """The values of a program that are references in it.

    Attributes:
      host_ops: for each function, the nodes that are on the host: those that have to be, and others
        that pass variants to them.

    Raises:
      NotWholeError: if a resource is used in the program and on the host.
    """

    def __init__(self, functions: Mapping[str, Any], is_host_op: Callable[[NodeDef], bool]) -> None:
        self._functions = functions
        self._groups = Groups[Value]()
        self._types = {name: defs.Types(f, functions) for name, f in functions.items()}
        self.host_ops: dict[str, set[str]] = {
            name: {node.name for node in function.node_def if is_host_op(node)}
            for name, function in functions.items()
        }
        self._dtypes: dict[Value, int] = {}
        self._users: dict[Value, list[tuple[str, NodeDef]]] = {}
        for name, function in functions.items():
            values = {arg.name: arg.type for arg in function.signature.input_arg}
            for node in function.node_def:
                values |= self._types[name].results_of(node.name)
            held = {value: dtype for value, dtype in values.items() if dtype in _HELD}
            self._dtypes |= {(name, value): dtype for value, dtype in held.items()}
        for name, function in functions.items():
            for node in function.node_def:
                self._read(name, node)
        self._found: set[Value] = set()
        self._spread()

    def holds(self, function: str, value: str) -> bool:
        """Return whether a value of a function is a reference."""
        key = (function, value)
        if key not in self._dtypes:
            return False
        return self._dtypes[key] == _STRING or self._groups.root(key) in self._found

    def _read(self, function: str, node: NodeDef) -> None:
        if is_call(node, self._functions):
            for one, other in self._passed(function, node):
                self._unite(one, other)
        elif node.op in PASSED_ON and node.name not in self.host_ops[function]:
            for i, passed in enumerate(defs.data_inputs(node)):
                self._unite((function, passed), (function, f"{node.name}:output:{i}"))
        elif node.op != "Const":
            for value in self._held(function, node):
                self._users.setdefault(value, []).append((function, node))

    def _held(self, function: str, node: NodeDef) -> list[Value]:
        """Return the values that a node takes or returns and that may be references."""
        values = [*defs.data_inputs(node), *self._types[function].results_of(node.name)]
        return [(function, value) for value in values if (function, value) in self._dtypes]

    def _passed(self, function: str, node: NodeDef) -> Iterator[tuple[Value, Value]]:
        """Yield pairs of values that a call passes to functions or gets back."""
        given = [(function, value) for value in defs.data_inputs(node)]
        if node.op in op_kinds.BRANCH_OPS:
            given = given[1:]  # the first input selects the branch
        got = [(function, value) for value in self._types[function].results_of(node.name)]
        for name in defs.called_functions(node, self._functions):
            called = self._functions[name]
            args = [(name, arg.name) for arg in called.signature.input_arg]
            rets = [(name, called.ret[result.name]) for result in called.signature.output_arg]
            yield from zip(given, args, strict=True)
            if node.op not in op_kinds.LOOP_OPS or name == node.attr["body"].func.name:
                yield from zip(rets, got, strict=True)
            if node.op in op_kinds.LOOP_OPS:
                yield from zip(args, got, strict=True)

    def _unite(self, one: Value, other: Value) -> None:
        if one in self._dtypes and other in self._dtypes:
            self._groups.unite(one, other)

    def _spread(self) -> None:
        """Find all values that host ops touch, and all ops that touch these values."""
        users: dict[Value, list[tuple[str, NodeDef]]] = {}
        for value, nodes in self._users.items():
            users.setdefault(self._groups.root(value), []).extend(nodes)
        pending = [
            root
            for root, nodes in users.items()
            if any(node.name in self.host_ops[function] for function, node in nodes)
        ]
        while pending:
            root = pending.pop()
            if root in self._found:
                continue
            self._found.add(root)
            for function, node in users[root]:
                if node.name in self.host_ops[function]:
                    continue
                if self._dtypes[root] == _RESOURCE:
                    raise NotWholeError(
                        f"{node.name} of the program and ops on the host use one resource"
                    )
                self.host_ops[function].add(node.name)
                pending += map(self._groups.root, self._held(function, node))


# They see data that other ops have written, but TensorFlow does not call them stateful.
_FILE_OPS = frozenset({"ReadFile", "MatchingFiles"})


def regions_of(
    function: FunctionDef, host_ops: Iterable[str], functions: Mapping[str, Any]
) -> list[list[NodeDef]]:
    """Return the regions of a function, each with its nodes in an order in which they can run."""
    wanted = set(host_ops)
    ordered = defs.program_order(function)
    # A constant that an op of a region takes is copied into that region.
    nodes = [node for node in ordered if node.op != "Const" or node.name in wanted]
    places = [place_of(node, wanted) for node in nodes]
    before = defs.predecessors(nodes)
    steps = clustering.first_steps(places, before)
    is_member = [place is Place.HOST for place in places]
    _delay(function, nodes, before, steps, is_member, functions)
    _fill_gaps(before, steps, places, is_member)
    groups = Groups[int]()
    members = [i for i in range(len(nodes)) if is_member[i]]
    for i in members:
        for j in before[i]:
            if is_member[j] and steps[i] == steps[j]:
                groups.unite(i, j)
    return [[nodes[i] for i in group] for group in groups.of(members)]


def _delay(
    function: FunctionDef,
    nodes: Sequence[NodeDef],
    before: Sequence[Sequence[int]],
    steps: list[int],
    is_member: Sequence[bool],
    functions: Mapping[str, Any],
) -> None:
    """Move host ops without effects to the step of their first user, if all users are host ops.

    So the text that tf.print prints is made where it is printed, and not at the first occasion.
    """
    after: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(before):
        for j in sources:
            after[j].append(i)
    returned = {*map(defs.source, function.ret.values()), *function.control_ret.values()}
    for i in reversed(range(len(nodes))):
        stays = nodes[i].name in returned or defs.definition_of(nodes[i], functions).is_stateful
        if is_member[i] and after[i] and not stays and all(is_member[j] for j in after[i]):
            steps[i] = min(steps[j] for j in after[i])


def _fill_gaps(
    before: Sequence[Sequence[int]],
    steps: Sequence[int],
    places: Sequence[Place],
    is_member: list[bool],
) -> None:
    """Add the identities between two ops of one step, which would lead out of it and back in."""
    follows = list(is_member)
    for i, place in enumerate(places):
        if place is Place.EITHER:
            follows[i] = any(follows[j] and steps[j] == steps[i] for j in before[i])
    leads = list(is_member)
    for i in reversed(range(len(places))):
        if leads[i]:
            for j in before[i]:
                leads[j] = leads[j] or (places[j] is Place.EITHER and steps[j] == steps[i])
    for i, place in enumerate(places):
        is_member[i] = is_member[i] or (place is Place.EITHER and follows[i] and leads[i])


def is_stateful(nodes: Iterable[NodeDef], types: defs.Types, resource: int) -> bool:
    """Return whether a region of these nodes has effects, or sees or awaits those of others."""
    return any(
        types.definition_of(node).is_stateful
        or node.op in _FILE_OPS
        or any(value.startswith("^") for value in node.input)
        or any(types.of(value) == resource for value in defs.data_inputs(node))
        for node in nodes
    )
