"""Graph partitioning: a function becomes compiled clusters with host ops between them.

A *host op* cannot or must not be compiled: a script op whose results have no known shape, say, or
an op on strings (`host_ops.py`). A loop, branch or call that holds a host op is one itself, and the
functions that it calls are partitioned in turn. All other nodes are put into clusters, each a
must-compile function of its own.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from hostcall._compiler.analyses.host_ops import Findings, HostOps, Rules, place_of
from hostcall._compiler.clusters import placement
from hostcall._compiler.clusters.costs import TRIVIAL_OPS, Costs
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.program import Function, Node, ProgramModel, Value, predecessors
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime import _scheduling
from hostcall_runtime._scheduling import Side

SUFFIX = "__partitioned"  # the end of new functions' names

# The condition of a loop is a handful of scalar ops; starting a program costs more.
_SMALL_CONDITION = 16

# Returns whether a cluster of some nodes saves more time than its launch takes.
Pays: TypeAlias = Callable[[list[Any]], bool]


@dataclasses.dataclass(frozen=True)
class PartitionedFunction:
    """The result of partitioning one function."""

    name: str  # the function's name before
    new_name: str  # the name of the function that replaces it
    host_ops: dict[str, str]  # the nodes that stay on the host, with the reason for each
    clusters: dict[str, list[str]]  # the names of the other nodes, by the names of their clusters
    # The ops, by their types, that are on the host in their own right.
    must_be_on_host: frozenset[str]
    # The loops, branches and calls, by their types, that are on the host.
    calls_on_host: frozenset[str]


class Partitioner:
    """A partitioner for a function of a library and all functions that it reaches."""

    def __init__(
        self,
        library: FunctionDefLibrary,
        rules: Rules,
        suffix: str,
        device: str,
        gradient: bool = False,
        refused: bool = False,
    ) -> None:
        self.library = library
        self._old = defs.by_name(library)
        self._program = ProgramModel(library.function)
        self.host_ops = HostOps(self._old, rules)
        self._gradient = gradient  # whether the function is the gradient of a partitioned one
        self._refused = refused  # whether XLA refuses it
        self._suffix = suffix  # the end of new functions' names
        self.device = device  # the full name of the one clusters are compiled for, "" for a CPU
        self._partitioned: dict[tuple[str, bool], str] = {}
        self._entry = ""
        self.functions: dict[str, Any] = {}  # the new ones, by name
        self.plans: list[PartitionedFunction] = []  # the result for each function

    def must_partition(self, name: str) -> bool:
        """Return whether a function cannot, or must not, be compiled as a whole."""
        if self._refused:
            return True
        if attributes.CLUSTER in self._old[name].attr:
            return False
        if self.host_ops.must_partition(name):
            return True
        return self._gradient and (
            self._passes_inner_values(name) or bool(self._findings(name).reasons)
        )

    def has_host_op(self, name: str) -> bool:
        """Return whether a function has ops that go to the host since XLA does not compile them."""
        found = self._findings(name)
        return self._passes_inner_values(name) or bool(found.reasons.keys() - found.data_constants)

    def _passes_inner_values(self, name: str) -> bool:
        """Return whether a function takes or returns values that exist only inside a program."""
        return defs.VARIANT in defs.fixed_types(self._old[name].signature)

    def _findings(self, name: str) -> Findings:
        return self.host_ops.find(self._old[name], self._gradient)

    def partition(self, name: str) -> str:
        """Partition a function, and return the name of its replacement."""
        self._entry = self._entry or name
        return self._partition_once(name, self._gradient)

    def is_one_cluster(self, name: str) -> bool:
        """Return whether a partitioned function is one cluster with only trivial ops around it."""
        plan = next(plan for plan in self.plans if plan.name == name)
        inside = {node for nodes in plan.clusters.values() for node in nodes}
        outside = [node for node in self._old[name].node_def if node.name not in inside]
        return len(plan.clusters) == 1 and all(node.op in TRIVIAL_OPS for node in outside)

    def _partition_once(self, name: str, after_branch: bool) -> str:
        key = (name, after_branch)
        if key in self._partitioned:
            return self._partitioned[key]
        number = f"_{len(self._partitioned)}_{name}" if self._partitioned else ""
        new_name = self._partitioned[key] = f"{self._entry}{self._suffix}{number}"
        function = self._in_order(self._old[name])
        inputs = {node.name: defs.sources(node) for node in function.node_def}
        found = self.host_ops.find(function, after_branch)
        costs = Costs(function, self._old, accelerator=bool(self.device))
        reasons = costs.slow_ops() | found.reasons
        places = {
            node.name: place_of(node, reasons, found.index_nodes) for node in function.node_def
        }
        divided = Function(self._program, protos.copy_of(function), new_name)
        clusters = [cluster.write() for cluster in _divide(divided, places, costs.pays)]
        host = divided.write()
        if name != self._entry:  # the caller knows the entry's name
            function_edits.note_function(host.node_def, name)
        self._add(host, clusters)
        called = {cluster.signature.name for cluster in clusters}
        on_host = {}
        for node in host.node_def:
            if node.op != "Const" and called.isdisjoint(c.name for c in defs.callees(node)):
                on_host[node.name] = reasons.get(node.name) or _reason_of_partition(node, self._old)
                self._partition_callees(node, not found.made_up.isdisjoint(inputs[node.name]))
        named = {c.signature.name: [node.name for node in c.node_def] for c in clusters}
        kept = [node for node in function.node_def if node.name in reasons]
        calls = frozenset(n.op for n in kept if defs.called_functions(n, self._old))
        chosen = frozenset(node.op for node in kept) - calls
        self.plans.append(PartitionedFunction(name, new_name, on_host, named, chosen, calls))
        _widen(host, clusters)
        if self.device:
            placement.place(host, called, reasons, self._old | self.functions, self.device)
        return new_name

    def _add(self, host: FunctionDef, clusters: list[Any]) -> None:
        host.attr.pop(defs.MUST_COMPILE, None)
        host.attr.pop(attributes.CLUSTER, None)
        function_edits.set_context(host, host)
        self.functions[host.signature.name] = host
        for cluster in clusters:
            function_edits.set_context(cluster, host)
            cluster.attr[defs.MUST_COMPILE].b = True
            cluster.attr[attributes.CLUSTER].b = True
            for node in cluster.node_def:  # else kernels that run the cluster compile it alone
                node.attr.pop(defs.MUST_COMPILE, None)
            self.functions[cluster.signature.name] = cluster

    def _in_order(self, old: FunctionDef) -> FunctionDef:
        """Copy a function, with control edges between the calls that run one at a time."""
        function = protos.copy_of(old)
        placement.return_handles_themselves(function, self._old)
        function_edits.drop_dead_nodes(function, self._old)
        _replace_made_up(function)
        for node in function.node_def:
            node.attr.pop("_class", None)  # colocated nodes may be separated
        last = self.host_ops.in_order.chain(function)
        if last is not None:
            function_edits.add_control_output(function, last.name)
        return function

    def _partition_callees(self, node: NodeDef, after_branch: bool) -> None:
        """Make a host op run on the host, with clusters in the functions that it calls."""
        if node.op in op_kinds.SCRIPT_OPS:
            op_kinds.take_own_kernel(node)
            return
        for callee in defs.callees(node):
            callee.attr.pop(defs.MUST_COMPILE, None)
            if callee.name in self._old and not self._is_small_condition(node, callee.name):
                callee.name = self._partition_once(callee.name, after_branch)
        if node.op in self._old:
            node.op = self._partition_once(node.op, after_branch)
        node.attr.pop(defs.MUST_COMPILE, None)

    def _is_small_condition(self, node: NodeDef, name: str) -> bool:
        return (
            "cond" in node.attr
            and name == node.attr["cond"].func.name
            and len(self._old[name].node_def) <= _SMALL_CONDITION
            and not self.host_ops.obstacle_in(name)
        )


def _widen(host: FunctionDef, clusters: list[Any]) -> None:
    """Cast the sub-byte values that clusters take and return at their boundaries."""
    for cluster in clusters:
        if defs.fixed_types(cluster.signature) & defs.WIDE.keys():
            function_edits.take_wide(cluster, defs.WIDE)
            calls = (n for n in host.node_def if "f" in n.attr)
            call = next(n for n in calls if n.attr["f"].func.name == cluster.signature.name)
            function_edits.pass_wide(host, call, defs.WIDE)


def _reason_of_partition(node: NodeDef, functions: Mapping[str, Any]) -> str:
    if defs.handles(node, defs.VARIANT, functions):  # a program can neither take nor return them
        return "its values cannot leave a compiled program"
    return "a launch of it would take longer"


def _replace_made_up(function: FunctionDef) -> None:
    """Replace made-up variants by lists without elements, in place."""
    # For the gradient of a conditional, a branch returns made-up values in the place of the other
    # branches' values. On the host, a made-up variant is empty, and TensorFlow cannot make zeros of
    # it. A list serves as well, since nothing reads it.
    for node in defs.nodes_of(function, {"FakeParam"}):
        if node.attr["dtype"].type != defs.VARIANT:
            continue
        name = f"{node.name}/hostcall_any"
        controls = [value for value in node.input if value.startswith("^")]
        # The controls make it run where the node does, perhaps in a branch of TensorFlow 1.
        unknown = tf.make_tensor_proto(-1, tf.int32)
        function.node_def.append(function_edits.constant(name, unknown, controls=controls))
        function_edits.replace_value(function, f"{node.name}:output:0", f"{node.name}:handle:0")
        node.op = "EmptyTensorList"
        node.attr.clear()
        node.attr["element_dtype"].type = defs.FLOAT
        node.attr["shape_type"].type = defs.INT32
        node.input[:] = [f"{name}:output:0", f"{name}:output:0", *controls]


def _assign(
    function: Function, nodes: list[Node], places: Mapping[str, Side], pays: Pays
) -> dict[int, list[Node]]:
    """Return the nodes of each cluster, by its number."""
    chosen = [places[node.name] for node in nodes]
    before = predecessors(nodes)
    groups = _groups(function, nodes, chosen)
    steps = _scheduling.assign(chosen, before, groups)
    floors = _floors(nodes, steps)
    if floors:
        steps = _scheduling.assign(chosen, before, groups, floors)
    while idle := _idle(nodes, steps, pays):  # the others may divide in another way
        for i in idle:
            chosen[i] = Side.HOST
        steps = _scheduling.assign(chosen, before, groups, floors)
    if not floors:
        grouped = {i for group in groups for i in group}
        compiled = {i for i, place in enumerate(chosen) if place is Side.COMPILED}
        steps = _scheduling.sink(before, steps, compiled - grouped)
    number = {step: i for i, step in enumerate(sorted({s for s in steps if s % 2 == 0}))}
    clusters: dict[int, list[Node]] = defaultdict(list)
    for step, node in zip(steps, nodes, strict=True):
        if step in number:
            clusters[number[step]].append(node)
    return clusters


def _idle(nodes: list[Node], steps: list[int], pays: Pays) -> list[int]:
    """Return the positions of the nodes whose clusters would save less than they cost."""
    clusters: dict[int, list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        if step % 2 == 0:
            clusters[step].append(i)
    idle = (some for some in clusters.values() if not pays([nodes[i].proto for i in some]))
    return [i for some in idle for i in some]


def _floors(nodes: list[Node], steps: list[int]) -> list[int]:
    """Return the step before which each node must not run, if the function is to be cut in two."""
    later = [attributes.LATER in node.attr for node in nodes]
    if not any(later):
        return []
    end = max((step for step, late in zip(steps, later, strict=True) if not late), default=0)
    return [end + 1 if late else 0 for late in later]


def _groups(function: Function, nodes: list[Node], places: list[Side]) -> list[list[int]]:
    """Group nodes by values that cannot leave a compiled program; outside values mean the host."""
    groups = _scheduling.Groups[int]()
    position = {node: i for i, node in enumerate(nodes)}
    returned = {v.node for v in function.results.values() if v.dtype == defs.VARIANT}
    for i, node in enumerate(nodes):
        if node in returned:
            places[i] = Side.HOST
        if not defs.handles(node, defs.VARIANT, function.program):
            continue
        for producer in (v.node for v in node.operands if v.dtype == defs.VARIANT):
            if producer in position:
                groups.unite(i, position[producer])
            else:
                places[i] = Side.HOST
    return [group for group in groups.of(range(len(nodes))) if len(group) > 1]


def _divide(function: Function, places: Mapping[str, Side], pays: Pays) -> list[Function]:
    """Move clusters out of a function, which calls them; return the clusters."""
    ordered = function.in_order()
    # Each cluster gets its own constants: XLA wants to know many operands when it compiles.
    constants = dict.fromkeys(n for n in ordered if n.op == "Const" and not n.sources)
    nodes = [node for node in ordered if node not in constants]
    members = _assign(function, nodes, places, pays)
    exported, awaited = _exports(function, nodes, members)
    prefix = _unused_prefix(function, members)
    function.nodes[:] = nodes
    clusters = []
    for number, inside in sorted(members.items()):
        name = f"{function.name}__cluster_{number}"
        cluster, taken, controls = function.cut(name, inside, constants)
        cluster.signature.is_stateful = any(node.is_stateful for node in inside)
        for i, value in enumerate(exported[number]):
            cluster.add_result(f"hostcall_result_{i}", value)
        cluster.awaited = {node.name: node for node in awaited[number]}
        call = function.add_call(f"{prefix}_{number}", cluster, taken, controls)
        # TensorFlow compiles a call if the node has this; the function's does not count.
        call.attr[defs.MUST_COMPILE].b = True
        for value, result in zip(exported[number], call.results, strict=True):
            function.replace_uses(value, result)
        function.replace_waits(inside, call)
        clusters.append(cluster)
    returned = {value.node for value in function.results.values()} | {*function.awaited.values()}
    used = returned.union(*(node.sources for node in function.nodes))
    function.nodes.extend(node for node in constants if node in used)
    return clusters


def _exports(
    function: Function, nodes: list[Node], clusters: Mapping[int, list[Node]]
) -> tuple[dict[int, list[Value]], dict[int, list[Node]]]:
    """Return the values and the nodes of each cluster that others take or wait for."""
    number_of = {node: number for number, members in clusters.items() for node in members}
    users = [*(node for node in nodes if node not in number_of), *number_of]
    # Sorted, since the maps of a message have no stable order and names must be reproducible.
    results = sorted(function.results.values(), key=lambda value: value.name)
    last = sorted(function.awaited.values(), key=lambda node: node.name)
    values = [(value, number_of.get(user)) for user in users for value in user.operands]
    waits = [(node, number_of.get(user)) for user in users for node in user.controls]
    exported: dict[Any, list[Value]] = defaultdict(list)
    for value, user in dict.fromkeys([*values, *((value, None) for value in results)]):
        number = number_of.get(value.node)
        if number not in (user, None) and value not in exported[number]:
            exported[number].append(value)
    awaited: dict[Any, list[Node]] = defaultdict(list)
    for node, user in dict.fromkeys([*waits, *((node, None) for node in last)]):
        number = number_of.get(node)
        if number not in (user, None) and node not in awaited[number]:
            awaited[number].append(node)
    return exported, awaited


def _unused_prefix(function: Function, numbers: Iterable[int]) -> str:
    taken = {node.name for node in function.nodes}
    taken.update(argument.name for argument in function.arguments)
    prefix = "hostcall_cluster"
    while any(f"{prefix}_{number}" in taken for number in numbers):
        prefix += "_"
    return prefix
