"""The walk over a function for `hostcall.explain`: steps, callbacks, and values that are copied.

It asks for the plan that TensorFlow's kernels come from (`_compiler/plan.py`), so the explanation
matches the execution.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from hostcall._compiler import devices, passes, plan, refusals, route_selection
from hostcall._compiler.clusters.partitioner import SUFFIX, PartitionedFunction, Partitioner
from hostcall._compiler.one_program.host_regions import Region
from hostcall._compiler.plan import Clusters, OneProgram, Untouched
from hostcall._functions import call_stats
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import function_names, op_kinds
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall._tools.explain import callback_facts as ops
from hostcall._tools.explain import facts
from hostcall._tools.explain.callback_facts import Bodies, Edges, called, sources, value_of
from hostcall._tools.explain.graph_semantics import GraphSemantics, called_nodes
from hostcall._tools.explain.labels import is_plumbing, joined

_LEADS_ON = "TensorFlow runs it on the host"
_MODULE = "it is a program of its own, compiled along with the function"
_CALLED = "the program calls TensorFlow's own kernel, since XLA has none for it"
_CALLED_FOR_VALUE = "the program calls TensorFlow's own kernel, since XLA's computes something else"
_CALLED_FOR_IT = "the program calls TensorFlow's own kernel, which takes it"
_TAKE_ALL = (
    "hostcall.configure(functions='all'), before the function is first called, puts it right"
)
_CALLS_COMPILED = "it calls a compiled function"

# The part of a cluster's name that depends on the device and the refusal. Like the digests, it is
# not known before XLA compiles.
_VARIANT = re.compile(rf"{SUFFIX}(?:_anywhere|_on_[A-Z_]+_\d+)?(?:_[0-9a-f]{{8}})?(?=_)")

_NO_EDGES: Edges = {}


@dataclasses.dataclass(frozen=True)
class NodePath:
    """The place of a node: its function, the path to it, and the op that the node follows."""

    function: str
    path: str = ""
    follows: str | None = None

    def inside(self, node: NodeDef, role: str, function: str) -> NodePath:
        """Return the place within a function that a node at this place calls."""
        name = f"{node.name}:{role}" if role else node.name
        return NodePath(function, joined(self.path, name), self.follows)


class Walk:
    """One walk through a library of functions; `locate` finds the `file:line` of a node."""

    def __init__(self, library: FunctionDefLibrary, locate: ops.Locate, device: str = "") -> None:
        self._library = library
        self._device = device
        self._locate = locate
        self._seen: set[tuple[object, str]] = set()
        self._bodies = Bodies(library)
        self._compilations = call_stats.compilations()
        self.functions: list[facts.FunctionFacts] = []
        self.script_ops: list[facts.ScriptOp] = []
        self.risks: list[facts.Risk] = []
        self.refused_parts: list[str] = []  # what XLA has said about each cluster that it refused
        self.semantics = GraphSemantics(self._bodies, self._located)

    @functools.cached_property
    def _lacks_shapes(self) -> bool:
        """Whether a callback is on the host because nothing tells the shape of a result."""
        nodes = defs.all_nodes(self._library, op_kinds.SCRIPT_OPS)
        return any(route_selection.choose(node).wants_shape for node in nodes)

    def function(self, name: str) -> None:
        """Explain a function as it runs when eager code calls it."""
        if defs.is_compiled(self._bodies.functions[name]):
            self._program(NodePath(name))
        else:
            self._on_host(NodePath(name))

    def _program(self, place: NodePath) -> None:
        """Explain a must-compile function that no compiled function calls."""
        name = place.function
        if not self._is_new("program", name):
            return
        shape_of = self._bodies.shape_of
        planned = plan.predict(self._library, name, self._device, shape_of)
        self.refused_parts += refusals.refused_parts(name, self._device)
        if isinstance(planned, Untouched):
            self._note_risks(name)
            self._one_program(place, ())
            return
        if not self._device:
            self.semantics.note_rewritten(name)
        match planned:
            case OneProgram(library, program):
                self._taken_program(place, library, program.regions if program else ())
            case Clusters(partitioner):
                new_name = partitioner.partition(name)
                if not self._device:
                    self.semantics.note_clusters(partitioner)
                self._partitioned(place, partitioner, new_name)

    def _taken_program(
        self, place: NodePath, library: FunctionDefLibrary, regions: Sequence[Region]
    ) -> None:
        """Note a function that hostcall makes one program of."""
        if not self._device:
            self.semantics.note_program(library, place.function, regions)
        self._one_program(place, regions)

    def _note_risks(self, entry: str) -> None:
        """Note the ops that XLA may get wrong in a function that stock TensorFlow compiles."""
        for (function, name), reason in sorted(passes.find_risks(self._library, entry).items()):
            found = self._located(name, function)
            self.risks.append(facts.Risk(reason=reason, advice=_TAKE_ALL, **found))

    def _one_program(self, place: NodePath, regions: Sequence[Region]) -> None:
        """Note a function that is one program, and the host ops that it calls."""
        name = place.function
        members = tuple(facts.OpFacts(node.name, node.op) for node in self._bodies[name].nodes)
        cluster = facts.Cluster(name, name, name, place.path, members)
        rewritten = {(op.function, op.node) for op in self.semantics.rewritten}
        kernels = []
        for function, node_name in called_nodes(regions, self._bodies):
            node = self._bodies[function].node(node_name)
            if node.op not in op_kinds.SCRIPT_OPS:
                reason = _CALLED_FOR_VALUE if (function, node_name) in rewritten else _CALLED
                kernels.append(self._host_op(node, NodePath(function), reason, in_program=True))
        host_ops = [op for op in kernels if not is_plumbing(op)]
        self.functions.append(
            facts.FunctionFacts(name, place.path, "compiled", (cluster, *host_ops))
        )
        self._compiled(place, name)

    def _compiled(self, place: NodePath, cluster: str) -> None:
        """Note the script ops in a compiled function, and in all that it calls."""
        if self._is_new("compiled", place.function):
            for node, at in self._in_order(place):
                self._compiled_node(node, at, cluster)

    def _compiled_node(self, node: NodeDef, place: NodePath, cluster: str) -> None:
        """Note the script ops that a node of a compiled function is, or leads to."""
        if op_kinds.calls_python(node):
            reason = _MODULE
            if node.op in op_kinds.SCRIPT_OPS:
                choice = route_selection.choose(node)
                reason = choice.reason + (f": {_CALLED_FOR_IT}" if choice.fits_region else "")
            self._script_op(node, place, "custom_call", reason, cluster=cluster)
        elif self._bodies.mattering.of_node(node):
            for role, callee in called(node, self._bodies.functions):
                self._compiled(place.inside(node, role, callee), cluster)

    def _on_host(self, place: NodePath, why: str = "") -> None:
        """Explain a function on the host; `why` says why, if a partitioned function calls it."""
        if not self._is_new("host", place.function):
            return
        position = self._room()
        bodies = self._bodies
        nodes = bodies[place.function].nodes
        matters = bodies.mattering.of_node
        edges = sources(nodes, {node.name for node in nodes if matters(node)})
        route, reason = ("partition", why) if why else ("plain", "the function is not compiled")
        steps: list[facts.Step] = []
        for node, at in self._in_order(place):
            if op_kinds.calls_python(node):
                steps.append(self._script_op(node, at, route, reason, edges[node.name]))
            elif matters(node):
                compiled = defs.is_compiled(node)
                what = _CALLS_COMPILED if compiled else _LEADS_ON
                inside = [
                    at.inside(node, role, name)
                    for role, name in called(node, bodies.functions)
                    if compiled or bodies.mattering.of_function(name)
                ]
                calls = [callee.function for callee in inside]
                steps.append(self._host_op(node, at, what, edges[node.name], calls))
                for callee in inside:
                    if compiled:
                        self._program(callee)
                    else:
                        self._on_host(callee, why)
        self.functions[position] = facts.FunctionFacts(
            place.function, place.path, "host", tuple(steps)
        )

    def _partitioned(self, place: NodePath, partitioner: Partitioner, new_name: str) -> None:
        """Explain a partitioned function and the functions that it calls."""
        if not self._is_new(partitioner, place.function):
            return
        position = self._room()
        plan = next(plan for plan in partitioner.plans if plan.new_name == new_name)
        places = {node.name: at for node, at in self._in_order(place)}
        nodes = defs.program_order(partitioner.functions[plan.new_name])
        # What the compiler adds to rewrite a node is a part of that.
        calls_cluster = {node.name for node in nodes if _callee(node) in plan.clusters}
        known = places.keys() | calls_cluster
        shown = [node for node in nodes if node.op != "Const" and node.name in known]
        edges = sources(nodes, {node.name for node in shown})
        steps: list[facts.Step] = []
        for node in shown:
            callee = _callee(node)
            if callee in plan.clusters:
                members = defs.program_order(partitioner.functions[callee])
                steps.append(self._cluster(node, callee, members, place, places, edges[node.name]))
                continue
            at, reason = places[node.name], plan.host_ops[node.name]
            if node.op in op_kinds.SCRIPT_OPS:
                steps.append(self._script_op(node, at, "partition", reason, edges[node.name]))
                continue
            callees = self._callees(node, at, partitioner)
            calls = [inside.function for inside, _ in callees]
            advice = ops.advise_host_op(node, reason, calls, self._lacks_shapes)
            steps.append(self._host_op(node, at, reason, edges[node.name], calls, advice=advice))
            for inside, partitioned in callees:
                if partitioned:
                    self._partitioned(inside, partitioner, partitioned)
                else:
                    self._on_host(inside, reason)
        sent = self._transfers(plan, steps, partitioner)
        self.functions[position] = facts.FunctionFacts(
            place.function, place.path, "partitioned", tuple(steps), partitioner.device, sent
        )

    def _transfers(
        self, plan: PartitionedFunction, called: Sequence[facts.Step], partitioner: Partitioner
    ) -> tuple[facts.Transfer, ...]:
        """Return the values that one call copies between device and host, each once."""
        if not partitioner.device:
            return ()
        functions = defs.by_name(partitioner.library)
        old, new = functions[plan.name], partitioner.functions[plan.new_name]
        types = defs.Types(old, functions)
        # Script ops know more about their results than the graph does.
        results = {op.node: op.results for op in called if isinstance(op, facts.ScriptOp)}

        def described(value: str) -> facts.ValueFacts:
            node, _, result = value.partition(":")
            if node in results:
                return results[node][types.position(node, result)]
            return value_of(tf.TensorSpec(self._bodies.shape_of(plan.name, value), types.of(value)))

        on_host = {
            node.name
            for node in new.node_def
            if node.device and not devices.is_accelerator(node.device)
        }
        # The host's memory holds strings, and the handles of resources and variants on a device.
        return tuple(
            facts.Transfer(value, to, described(value))
            for value, to in _crossing(old, on_host)
            if types.of(value) not in defs.NO_ARRAYS
        )

    def _cluster(
        self,
        node: NodeDef,
        name: str,
        members: Sequence[NodeDef],
        place: NodePath,
        places: dict[str, NodePath],
        edges: Edges,
    ) -> facts.Cluster:
        for member in members:
            if member.op != "Const" and member.name in places:  # the partitioner adds other nodes
                self._compiled_node(member, places[member.name], name)
        seen = [row for row in self._compilations if _stem(row.cluster) == _stem(name)]
        return facts.Cluster(
            node.name,
            name,
            place.function,
            place.path,
            tuple(facts.OpFacts(member.name, member.op) for member in members),
            compilations=sum(row.compilations for row in seen),
            uncompiled_runs=sum(row.uncompiled_runs for row in seen),
            **edges,
        )

    def _callees(
        self, node: NodeDef, place: NodePath, partitioner: Partitioner
    ) -> list[tuple[NodePath, str]]:
        """Return the functions to explain that a host op calls, and what they are partitioned to.

        That is "" for a function that is not partitioned.
        """
        bodies = self._bodies
        partitioned = {plan.new_name for plan in partitioner.plans}
        original = called(bodies[place.function].node(node.name), bodies.functions)
        now = called(node, {**defs.by_name(partitioner.library), **partitioner.functions})
        return [
            (place.inside(node, role, callee), name if name in partitioned else "")
            for (role, callee), (_, name) in zip(original, now, strict=True)
            if name in partitioned or bodies.mattering.of_function(callee)
        ]

    def _in_order(self, place: NodePath) -> Iterator[tuple[Any, NodePath]]:
        """Yield the nodes of a function in program order, each with its place."""
        last = place.follows
        for node in self._bodies[place.function].nodes:
            if self._bodies.effects.of_node(node):
                yield node, dataclasses.replace(place, follows=last)
                last = joined(place.path, node.name)
            else:
                yield node, dataclasses.replace(place, follows=None)

    def _script_op(
        self,
        node: NodeDef,
        place: NodePath,
        route: str,
        reason: str,
        edges: Edges = _NO_EDGES,
        cluster: str | None = None,
    ) -> facts.ScriptOp:
        """Note a script op, and return the facts on it."""
        body = self._bodies[place.function]
        found = ops.script_op(
            body.node(node.name),
            body,
            place.function,
            self._locate,
            path=place.path,
            follows=place.follows,
            route=route,
            reason=reason,
            cluster=cluster,
            **edges,
        )
        self.script_ops.append(found)
        return found

    def _host_op(
        self,
        node: NodeDef,
        place: NodePath,
        reason: str,
        edges: Edges = _NO_EDGES,
        calls: Sequence[str] = (),
        **more: Any,
    ) -> facts.HostOp:
        """Return the facts on a host op that is not a script op."""
        return facts.HostOp(
            path=place.path,
            reason=reason,
            calls=tuple(calls),
            **edges,
            **more,
            **self._located(node.name, place.function),
        )

    def _located(self, node: str, function: str) -> dict[str, Any]:
        """Return the name and type of a node, its function, and its place in the user's code."""
        file, line = ops.parse_location(self._locate(function, node))
        op = self._bodies[function].node(node).op
        return {"node": node, "op": op, "function": function, "file": file, "line": line}

    def _room(self) -> int:
        """Reserve a place for a function before the functions that it calls."""
        self.functions.append(facts.FunctionFacts("", "", "", ()))
        return len(self.functions) - 1

    def _is_new(self, mode: object, name: str) -> bool:
        new = (mode, name) not in self._seen
        self._seen.add((mode, name))
        return new


def _callee(node: NodeDef) -> str:
    return str(node.attr["f"].func.name) if node.op in op_kinds.CALL_OPS else ""


def _stem(cluster: str) -> str:
    return _VARIANT.sub(SUFFIX, function_names.without_digests(cluster), count=1)


def _crossing(function: FunctionDef, on_host: set[str]) -> dict[tuple[str, str], None]:
    """Return the values of the edges between the host and the device, with their destinations."""
    constants = {node.name for node in function.node_def if node.op == "Const"}
    found: dict[tuple[str, str], None] = {}
    for node in defs.program_order(function):
        to_host = node.name in on_host
        for value in defs.data_inputs(node):
            source = defs.source(value)
            if source not in constants and (source in on_host) != to_host:
                found[value, "host" if to_host else "device"] = None
    for value in function.ret.values():
        if defs.source(value) in on_host:
            found[value, "device"] = None
    return found
