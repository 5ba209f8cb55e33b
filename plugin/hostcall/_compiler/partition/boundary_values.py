"""Division of a function into host ops and one function for each cluster.

For the gradient of a conditional, a branch returns made-up values in the place of the other
branches' values. On the host, a made-up variant is empty, and TensorFlow cannot make zeros of it.
`replace` makes it a list without elements, which serves as well, since nothing reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler import function_edits
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef
from hostcall_runtime import _scheduling as clustering
from hostcall_runtime._scheduling import Place

_INT32 = tf.int32.as_datatype_enum
# Values of this dtype exist inside a compiled program, which can neither take nor return them.
_VARIANT = tf.variant.as_datatype_enum


def replace(function: Any) -> None:
    """Replace the made-up variants of a FunctionDef by lists, in place."""
    for node in defs.nodes_of(function, {"FakeParam"}):
        if node.attr["dtype"].type != _VARIANT:
            continue
        name = f"{node.name}/hostcall_any"
        controls = [value for value in node.input if value.startswith("^")]
        # The controls make it run where the node does, perhaps in a branch of TensorFlow 1.
        unknown = protos.node_def_pb2.NodeDef(name=name, op="Const", input=controls)
        unknown.attr["dtype"].type = _INT32
        unknown.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(-1, tf.int32))
        function.node_def.append(unknown)
        defs.replace_value(function, f"{node.name}:output:0", f"{node.name}:handle:0")
        node.op = "EmptyTensorList"
        node.attr.clear()
        node.attr["element_dtype"].type = tf.float32.as_datatype_enum
        node.attr["shape_type"].type = _INT32
        node.input[:] = [f"{name}:output:0", f"{name}:output:0", *controls]


# Ops that cost less than starting a compiled program.
TRIVIAL_OPS = op_kinds.IDENTITIES | {
    *("EnsureShape", "ExpandDims", "NoOp", "PreventGradient", "ReadVariableOp", "Reshape"),
    *("Shape", "Squeeze", "StopGradient"),
}

_EITHER_OPS = op_kinds.IDENTITIES | {"NoOp"}


def place_of(node: NodeDef, host_ops: Container[str], either: Container[str] = ()) -> Place:
    """Return where a node may run, from the names of nodes that are for the host, or for either."""
    if node.name in host_ops:
        return Place.HOST
    return Place.EITHER if node.op in _EITHER_OPS or node.name in either else Place.COMPILED


def partition(
    function: FunctionDef, new_name: str, places: Mapping[str, Place], functions: Mapping[str, Any]
) -> tuple[Any, list[Any]]:
    """Divide a function into host ops and clusters.

    Args:
      function: the function.
      new_name: the name of the function that replaces it.
      places: where each of its nodes may run, by name.
      functions: the functions that it calls, by name.

    Returns:
      The function on the host, which calls the clusters, and the clusters.
    """
    # Each cluster gets its own constants: XLA wants to know many operands when it compiles.
    ordered = defs.program_order(function)
    constants = {node.name: node for node in ordered if node.op == "Const" and not node.input}
    nodes = [node for node in ordered if node.name not in constants]
    types = defs.Types(function, functions)
    cluster_of = _assign(function, nodes, places, types)
    return _Partition(function, new_name, nodes, constants, types, cluster_of).functions()


def passes_inner_values(function: FunctionDef) -> bool:
    """Return whether a FunctionDef takes or returns values that exist only inside a program."""
    signature = function.signature
    return any(arg.type == _VARIANT for arg in (*signature.input_arg, *signature.output_arg))


def _assign(
    function: FunctionDef, nodes: list[Any], places: Mapping[str, Place], types: defs.Types
) -> dict[str, int]:
    """Return the cluster number of each node that is in a cluster, by name."""
    chosen = [places[node.name] for node in nodes]
    before = defs.predecessors(nodes)
    groups = _groups(function, nodes, chosen, types)
    steps = clustering.assign(chosen, before, groups)
    floors = _floors(nodes, steps)
    if floors:
        steps = clustering.assign(chosen, before, groups, floors)
    worth = {s for s, node in zip(steps, nodes, strict=True) if node.op not in TRIVIAL_OPS}
    idle = [i for i, step in enumerate(steps) if step % 2 == 0 and step not in worth]
    if idle:
        for i in idle:
            chosen[i] = Place.HOST
        steps = clustering.assign(chosen, before, groups, floors)
    if not floors:
        grouped = {i for group in groups for i in group}
        compiled = {i for i, place in enumerate(chosen) if place is Place.COMPILED}
        steps = clustering.sink(before, steps, compiled - grouped)
    number = {step: i for i, step in enumerate(sorted({s for s in steps if s % 2 == 0}))}
    return {n.name: number[s] for s, n in zip(steps, nodes, strict=True) if s in number}


def _floors(nodes: list[Any], steps: list[int]) -> list[int]:
    """Return the step before which each node must not run, if the function is to be cut in two."""
    later = [attributes.LATER in node.attr for node in nodes]
    if not any(later):
        return []
    end = max((step for step, late in zip(steps, later, strict=True) if not late), default=0)
    return [end + 1 if late else 0 for late in later]


def _groups(
    function: FunctionDef, nodes: list[Any], places: list[Place], types: defs.Types
) -> list[list[int]]:
    """Group nodes that pass each other values which cannot leave a compiled program.

    Nodes that take these values from outside of the function, or return them, are put on the host.
    """
    groups = clustering.Groups[int]()
    position = {node.name: i for i, node in enumerate(nodes)}
    returned = {defs.source(v) for v in function.ret.values() if types.of(v) == _VARIANT}
    for i, node in enumerate(nodes):
        if node.name in returned:
            places[i] = Place.HOST
        if not types.handles(node, _VARIANT):
            continue
        for value in defs.data_inputs(node):
            if types.of(value) != _VARIANT:
                continue
            producer = position.get(defs.source(value))
            if producer is None:
                places[i] = Place.HOST
            else:
                groups.unite(i, producer)
    return [group for group in groups.of(range(len(nodes))) if len(group) > 1]


class _Partition:
    """A function with its nodes assigned to clusters, ready to be divided."""

    def __init__(
        self,
        function: FunctionDef,
        new_name: str,
        nodes: list[Any],
        constants: Mapping[str, Any],
        types: defs.Types,
        cluster_of: Mapping[str, int],
    ) -> None:
        self._function = function
        self._new_name = new_name
        self._constants = constants
        self._types = types
        self._cluster_of = cluster_of
        self._host = [node for node in nodes if node.name not in cluster_of]
        self._members: dict[int, list[Any]] = defaultdict(list)
        for node in nodes:
            if node.name in cluster_of:
                self._members[cluster_of[node.name]].append(node)
        self._call_names = self._unused_names(self._members)
        # For each cluster, its values and nodes that other clusters or the host wait for.
        self._exports: dict[int, dict[str, int]] = defaultdict(dict)
        self._awaited: dict[int, dict[str, None]] = defaultdict(dict)
        self._find_exports()

    def _unused_names(self, numbers: Iterable[int]) -> dict[int, str]:
        taken = {node.name for node in self._function.node_def}
        taken.update(arg.name for arg in self._function.signature.input_arg)
        prefix = "hostcall_cluster"
        while any(f"{prefix}_{number}" in taken for number in numbers):
            prefix += "_"
        return {number: f"{prefix}_{number}" for number in numbers}

    def _find_exports(self) -> None:
        consumers = [(node.input, self._cluster_of.get(node.name)) for node in self._host]
        consumers += [(n.input, number) for number, ns in self._members.items() for n in ns]
        # Sorted, since the maps of a message have no stable order and names must be reproducible.
        consumers.append((sorted(self._function.ret.values()), None))
        awaited = sorted(self._function.control_ret.values())
        consumers.append(([f"^{name}" for name in awaited], None))
        for values, consumer in consumers:
            for value in values:
                producer = self._cluster_of.get(defs.source(value))
                if producer is None or producer == consumer:
                    continue
                if value.startswith("^"):
                    self._awaited[producer].setdefault(value[1:])
                else:
                    exports = self._exports[producer]
                    exports.setdefault(value, len(exports))

    def functions(self) -> tuple[Any, list[Any]]:
        """Return the function on the host, and the clusters."""
        host: Any = protos.copy_of(self._function)
        host.signature.name = self._new_name
        del host.node_def[:]
        for node in self._host:
            added = host.node_def.add()
            added.CopyFrom(node)
            added.input[:] = self._outside(node.input)
        clusters = []
        for number, members in sorted(self._members.items()):
            cluster, taken = self._cluster(number, members)
            host.node_def.append(self._call(number, cluster, taken))
            clusters.append(cluster)
        for name, value in self._function.ret.items():
            host.ret[name] = self._outside([value])[0]
        for name, node in self._function.control_ret.items():
            host.control_ret[name] = self._outside([f"^{node}"])[0][1:]
        self._add_constants(host)
        return host, clusters

    def _outside(self, values: Iterable[str]) -> list[str]:
        """Rewire the inputs of a host op to the calls of clusters."""
        found: dict[str, None] = {}
        data: list[str] = []
        for value in values:
            number = self._cluster_of.get(defs.source(value))
            if value.startswith("^"):
                found.setdefault(value if number is None else f"^{self._call_names[number]}")
            elif number is None:
                data.append(value)
            else:
                index = self._exports[number][value]
                data.append(f"{self._call_names[number]}:output:{index}")
        return data + list(found)

    def _cluster(self, number: int, members: list[Any]) -> tuple[Any, list[str]]:
        """Return a cluster's function, and the inputs of the node that calls it."""
        part = function_edits.part_of(members, self._constants, self._types)
        function, signature = part.function, part.function.signature
        signature.name = f"{self._new_name}__cluster_{number}"
        signature.is_stateful = any(self._types.definition_of(n).is_stateful for n in members)
        for value, index in self._exports[number].items():
            name = f"hostcall_result_{index}"
            signature.output_arg.add(name=name, type=self._types.of(value))
            function.ret[name] = value
        for name in self._awaited[number]:
            function.control_ret[name] = name
            signature.control_output.append(name)
        return function, self._outside([*part.taken, *part.controls])

    def _call(self, number: int, cluster: FunctionDef, inputs: list[str]) -> Any:
        signature = cluster.signature
        node = defs.call_node(self._call_names[number], signature, inputs, signature.is_stateful)
        # TensorFlow compiles a call if the node has this attribute; the function's does not count.
        node.attr[defs.MUST_COMPILE].b = True
        return node

    def _add_constants(self, host: FunctionDef) -> None:
        used = {defs.source(value) for node in host.node_def for value in node.input}
        used.update(map(defs.source, host.ret.values()), host.control_ret.values())
        host.node_def.extend(node for name, node in self._constants.items() if name in used)
