"""Facts on a partitioned function: clusters, host ops, and transfers between device and host."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from hostcall._compiler.partition import placement
from hostcall._compiler.partition.partitioner import SUFFIX, PartitionedFunction, Partitioner
from hostcall._explain.callback_facts import (
    Bodies,
    Body,
    Edges,
    called,
    of_host_op,
    sources,
    value_of,
)
from hostcall._explain.facts import Cluster, Function, HostOp, Op, ScriptOp, Step, Transfer, Value
from hostcall._functions import call_stats
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

_TO_HOST, _TO_DEVICE = "host", "device"

# Strings live in the host's memory, and so do the handles of resources and variants on a device.
_NEVER_SENT = frozenset(dtype.as_datatype_enum for dtype in (tf.string, tf.resource, tf.variant))


def of_function(
    old: FunctionDef,
    new: FunctionDef,
    body: Body,
    functions: Mapping[str, Any],
    called: Iterable[ScriptOp],
) -> tuple[Transfer, ...]:
    """Return the values that cross between the device and the host in one call, each once.

    Args:
      old: the FunctionDef before partitioning.
      new: the FunctionDef that replaces it, whose nodes have devices.
      body: the Body of `old`, which has the shapes.
      functions: the functions that `old` may call, by name.
      called: the script ops on the host, which know more about their results.
    """
    types = defs.Types(old, functions)
    results = {op.node: op.results for op in called}

    def facts(value: str) -> Value:
        node, _, result = value.partition(":")
        if node in results:
            return results[node][types.position(node, result)]
        return value_of(tf.TensorSpec(body.shape_of(value), types.of(value)))

    on_host = {node.name for node in new.node_def if _is_on_host(node.device)}
    crossing = _crossing(old, on_host)
    sent = ((value, to) for value, to in crossing if types.of(value) not in _NEVER_SENT)
    return tuple(Transfer(value, to, facts(value)) for value, to in sent)


def _crossing(function: FunctionDef, on_host: set[str]) -> dict[tuple[str, str], None]:
    """Return the values of the edges between the host and the device, with their destinations."""
    constants = {node.name for node in function.node_def if node.op == "Const"}
    found: dict[tuple[str, str], None] = {}
    for node in defs.program_order(function):
        to_host = node.name in on_host
        for value in node.input:
            source = defs.source(value)
            if value.startswith("^") or source in constants:
                continue
            if (source in on_host) != to_host:
                found[value, _TO_HOST if to_host else _TO_DEVICE] = None
    for value in function.ret.values():
        if defs.source(value) in on_host:
            found[value, _TO_DEVICE] = None
    return found


def _is_on_host(device: str) -> bool:
    return bool(device) and not placement.is_accelerator(device)


# The part of a cluster's name that depends on the device and the refusal. Like the digests, it is
# not known before XLA compiles.
_VARIANT = re.compile(rf"{SUFFIX}(?:_anywhere|_on_[A-Z_]+_\d+)?(?:_[0-9a-f]{{8}})?(?=_)")


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a node: its function, the path to it, and the op that the node follows."""

    function: str
    path: str = ""
    follows: str | None = None

    def inside(self, node: NodeDef, role: str, function: str) -> Place:
        """Return the place within a function that a node at this place calls."""
        name = f"{node.name}:{role}" if role else node.name
        return Place(function, joined(self.path, name), self.follows)


def joined(path: str, name: str) -> str:
    """Return a path with one more step."""
    return f"{path} > {name}" if path else name


class Walk(Protocol):
    """The part of `walk.Walk`, the walk through all other functions, that `PartitionWalk` uses."""

    bodies: Bodies

    def room(self) -> Callable[[Function], None]: ...

    def in_order(self, place: Place) -> Iterator[tuple[Any, Place]]: ...

    def script_op(
        self, node: NodeDef, place: Place, route: str, reason: str, edges: Edges
    ) -> ScriptOp: ...

    def host_op(
        self,
        node: NodeDef,
        place: Place,
        reason: str,
        edges: Edges,
        calls: Sequence[str],
        advice: str = "",
    ) -> HostOp: ...

    def on_host(self, place: Place, why: str) -> None: ...

    def compiled_node(self, node: NodeDef, place: Place, cluster: str) -> None: ...


class PartitionWalk:
    """A walk through the functions that a partitioner has partitioned.

    Args:
      walk: the walk that has reached them.
      partitioner: the partitioner.
    """

    def __init__(self, walk: Walk, partitioner: Partitioner) -> None:
        self._walk = walk
        self._new = partitioner.functions
        self._old = {f.signature.name: f for f in partitioner.library.function}
        self._device = partitioner.device
        self._plans = {plan.name: plan for plan in partitioner.plans}
        self._old_names = {plan.new_name: plan.name for plan in partitioner.plans}
        self._seen: set[str] = set()
        self._compilations = call_stats.compilations()

    def function(self, place: Place) -> None:
        """Explain a partitioned function and the functions that it calls."""
        if place.function in self._seen:
            return
        self._seen.add(place.function)
        fill = self._walk.room()
        plan = self._plans[place.function]
        places = {node.name: at for node, at in self._walk.in_order(place)}
        nodes = defs.program_order(self._new[plan.new_name])
        shown = [node for node in nodes if node.op != "Const"]
        edges = sources(nodes, {node.name for node in shown})
        clusters = {cluster.name for cluster in plan.clusters}
        steps: list[Step] = []
        for node in shown:
            callee = node.attr["f"].func.name if node.op in defs.CALL_OPS else ""
            if callee in clusters:
                steps.append(self._cluster(node, callee, place, places, edges[node.name]))
                continue
            at, reason = places[node.name], plan.host_ops[node.name]
            if node.op in op_kinds.SCRIPT_OPS:
                steps.append(self._walk.script_op(node, at, "partition", reason, edges[node.name]))
            else:
                callees = self._callees(node, at)
                calls = [inside.function for inside, _ in callees]
                advice = of_host_op(node, reason, calls)
                steps.append(self._walk.host_op(node, at, reason, edges[node.name], calls, advice))
                for inside, is_partitioned in callees:
                    if is_partitioned:
                        self.function(inside)
                    else:
                        self._walk.on_host(inside, reason)
        fill(
            Function(
                place.function,
                place.path,
                "partitioned",
                tuple(steps),
                self._device,
                self._transfers(plan, steps),
            )
        )

    def _transfers(self, plan: PartitionedFunction, steps: Sequence[Step]) -> tuple[Transfer, ...]:
        if not self._device:
            return ()
        return of_function(
            self._old[plan.name],
            self._new[plan.new_name],
            self._walk.bodies[plan.name],
            self._old,
            [step for step in steps if isinstance(step, ScriptOp)],
        )

    def _cluster(
        self, node: NodeDef, name: str, place: Place, places: dict[str, Place], edges: Edges
    ) -> Cluster:
        inside = defs.program_order(self._new[name])
        for member in inside:
            if member.op != "Const" and member.name in places:  # the partitioner adds other nodes
                self._walk.compiled_node(member, places[member.name], name)
        members = tuple(Op(member.name, member.op) for member in inside)
        cluster = Cluster(node.name, name, place.function, place.path, members, *edges)
        seen = [row for row in self._compilations if _stem(row.cluster) == _stem(name)]
        return dataclasses.replace(
            cluster,
            compilations=sum(row.compilations for row in seen),
            uncompiled_runs=sum(row.uncompiled_runs for row in seen),
        )

    def _callees(self, node: NodeDef, place: Place) -> list[tuple[Place, bool]]:
        """Return the functions to explain that a host op calls, and whether each is partitioned."""
        bodies = self._walk.bodies
        original = bodies.called(bodies[place.function].node(node.name))
        now = called(node, {**bodies.functions, **self._new})
        return [
            (place.inside(node, role, callee), name in self._old_names)
            for (role, callee), (_, name) in zip(original, now, strict=True)
            if name in self._old_names or bodies.function_matters(callee)
        ]


def _stem(cluster: str) -> str:
    return _VARIANT.sub(SUFFIX, defs.without_digests(cluster), count=1)
