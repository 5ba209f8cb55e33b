"""Graph partitioning: a function becomes compiled clusters with host ops between them.

A *host op* cannot or must not be compiled: a script op whose results have no known shape, say, or
an op on strings (`host_ops.py`). A loop, branch or call that holds a host op is one itself, and the
functions that it calls are partitioned in turn. All other nodes are put into clusters
(`boundary_values.py`). Each cluster is a must-compile function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hostcall._compiler import function_edits
from hostcall._compiler.partition import boundary_values, host_calls, placement
from hostcall._compiler.partition.boundary_values import (
    TRIVIAL_OPS,
    partition,
    passes_inner_values,
    place_of,
)
from hostcall._compiler.partition.host_ops import Findings, HostOps
from hostcall._compiler.route_selection import Choice
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.tensor_structures import WIDE
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef

# The end of new functions' names.
SUFFIX = "__partitioned"

# The condition of a loop is a handful of scalar ops; starting a program costs more.
_SMALL_CONDITION = 16


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The nodes that are compiled together: the name of their function, and their names."""

    name: str
    nodes: list[str]


@dataclasses.dataclass(frozen=True)
class PartitionedFunction:
    """The result of partitioning one function.

    Attributes:
      name: the function's name before.
      new_name: the name of the function that replaces it.
      host_ops: the nodes that stay on the host, with the reason for each.
      clusters: the other nodes.
      must_be_on_host: the ops, by their types, that are on the host in their own right.
      calls_on_host: the loops, branches and calls, by their types, that are on the host.
    """

    name: str
    new_name: str
    host_ops: dict[str, str]
    clusters: list[Cluster]
    must_be_on_host: frozenset[str]
    calls_on_host: frozenset[str]


class Partitioner:
    """A partitioner for a function and all functions that it reaches.

    Args:
      library: the library that holds them.
      choose, has_kernel, constant_operands, marked: see HostOps.
      gradient: whether the function to be partitioned is the gradient of a partitioned one.
      refused: whether XLA refuses that function.
      suffix: the end of new functions' names.
      device: the full name of the device that clusters are compiled for, if it is no CPU.

    Attributes:
      library, device: as given.
      host_ops: the nodes of the library that are for the host.
      functions: the new functions, by name.
      plans: the result for each function.
    """

    def __init__(
        self,
        library: FunctionDefLibrary,
        choose: Callable[[Any], Choice],
        has_kernel: Callable[[Any], bool],
        constant_operands: Callable[[Any], Sequence[int]],
        marked: Callable[[Any], bool],
        gradient: bool = False,
        refused: bool = False,
        suffix: str = SUFFIX,
        device: str = "",
    ) -> None:
        self.library = library
        self._old: dict[str, Any] = {f.signature.name: f for f in library.function}
        self.host_ops = HostOps(self._old, choose, has_kernel, constant_operands, marked)
        self._gradient = gradient
        self._refused = refused
        self._suffix = suffix
        self.device = device
        self._partitioned: dict[tuple[str, bool], str] = {}
        self._entry = ""
        self.functions: dict[str, Any] = {}
        self.plans: list[PartitionedFunction] = []

    def _is_cluster(self, name: str) -> bool:
        """Return whether a function has come out of a partitioning."""
        return attributes.CLUSTER in self._old[name].attr

    def must_partition(self, name: str) -> bool:
        """Return whether a function cannot, or must not, be compiled as a whole."""
        if self._refused:
            return True
        if self._is_cluster(name):
            return False
        if self.host_ops.must_partition(name):
            return True
        return self._gradient and self._has_inner_values_or(name, self._findings(name).reasons)

    def has_host_op(self, name: str) -> bool:
        """Return whether a function has ops that go to the host since XLA does not compile them."""
        found = self._findings(name)
        return self._has_inner_values_or(name, found.reasons.keys() - found.data_constants)

    def _has_inner_values_or(self, name: str, host_ops: Collection[str]) -> bool:
        return passes_inner_values(self._old[name]) or bool(host_ops)

    def _findings(self, name: str) -> Findings:
        return self.host_ops.find(self._old[name], self._gradient)

    def partition(self, name: str) -> str:
        """Partition a function, and return the name of its replacement."""
        self._entry = self._entry or name
        return self._partition_once(name, self._gradient)

    def is_one_cluster(self, name: str) -> bool:
        """Return whether a partitioned function is one cluster with only trivial ops around it."""
        plan = next(plan for plan in self.plans if plan.name == name)
        inside = {node for cluster in plan.clusters for node in cluster.nodes}
        outside = [node for node in self._old[name].node_def if node.name not in inside]
        return len(plan.clusters) == 1 and all(node.op in TRIVIAL_OPS for node in outside)

    def _partition_once(self, name: str, after_branch: bool) -> str:
        key = (name, after_branch)
        if key in self._partitioned:
            return self._partitioned[key]
        number = f"_{len(self._partitioned)}_{name}" if self._partitioned else ""
        new_name = self._partitioned[key] = f"{self._entry}{self._suffix}{number}"
        function = self._in_order(self._old[name])
        inputs = {node.name: [*map(defs.source, node.input)] for node in function.node_def}
        found = self.host_ops.find(function, after_branch)
        reasons = found.reasons
        places = {
            node.name: place_of(node, reasons, found.index_nodes) for node in function.node_def
        }
        host, clusters = partition(function, new_name, places, self._old)
        if name != self._entry:  # the caller knows the entry's name
            defs.note_function(host.node_def, name)
        self._add(host, clusters)
        called = {cluster.signature.name for cluster in clusters}
        on_host = {}
        for node in host.node_def:
            if node.op != "Const" and called.isdisjoint(c.name for c in defs.callees(node)):
                on_host[node.name] = reasons.get(node.name) or _reason_of_partition(node)
                self._partition_callees(node, not found.made_up.isdisjoint(inputs[node.name]))
        named = [Cluster(c.signature.name, [n.name for n in c.node_def]) for c in clusters]
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
        defs.set_context(host, host)
        self.functions[host.signature.name] = host
        for cluster in clusters:
            defs.set_context(cluster, host)
            cluster.attr[defs.MUST_COMPILE].b = True
            cluster.attr[attributes.CLUSTER].b = True
            for node in cluster.node_def:  # else kernels that run the cluster compile it alone
                node.attr.pop(defs.MUST_COMPILE, None)
            self.functions[cluster.signature.name] = cluster

    def _in_order(self, old: FunctionDef) -> Any:
        """Copy a function, with control edges between the calls that run one at a time.

        The loops and branches of TensorFlow 1 get none, neither between them nor out of them.
        """
        function: Any = protos.copy_of(old)
        placement.return_handles_themselves(function, self._old)
        defs.drop_dead_nodes(function, self._old)
        boundary_values.replace(function)
        for node in function.node_def:
            node.attr.pop("_class", None)  # colocated nodes may be separated
        last = self.host_ops.in_order.chain(function)
        if last is not None and last.name not in function.control_ret.values():
            function.control_ret[last.name] = last.name
            function.signature.control_output.append(last.name)
        return function

    def _partition_callees(self, node: NodeDef, after_branch: bool) -> None:
        """Make a host op run on the host, with clusters in the functions that it calls."""
        if node.op in op_kinds.SCRIPT_OPS:
            host_calls.take_own_kernel(node)
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
        signature = cluster.signature
        if any(arg.type in WIDE for arg in (*signature.input_arg, *signature.output_arg)):
            function_edits.take_wide(cluster, WIDE)
            calls = (n for n in host.node_def if "f" in n.attr)
            call = next(n for n in calls if n.attr["f"].func.name == signature.name)
            function_edits.pass_wide(host, call, WIDE)


def _reason_of_partition(node: NodeDef) -> str:
    if node.op in TRIVIAL_OPS:
        return "it is too little to compile"
    return "its values cannot leave a compiled program"
