"""The walk through a function and all that it calls, which collects the facts on each.

It asks the same partitioner that TensorFlow's kernels come from (`_compiler/function_routes.py`)
which functions are partitioned, and how, so the explanation matches the execution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from hostcall._compiler import function_routes, risks, route_selection
from hostcall._compiler.regions.writing import Region, foreseen_program
from hostcall._explain import callback_facts as ops
from hostcall._explain.callback_facts import Bodies, Edges, sources
from hostcall._explain.facts import Cluster, Function, HostOp, Op, Risk, ScriptOp, Step
from hostcall._explain.labels import is_plumbing
from hostcall._explain.partitions import PartitionWalk, Place, joined
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDefLibrary, NodeDef

_NOT_COMPILED = "the function is not compiled"
_LEADS_ON = "TensorFlow runs it on the host"
_MODULE = "it is a program of its own, compiled along with the function"
_CALLED = "the program calls TensorFlow's own kernel, since XLA has none for it"
_CALLED_FOR_IT = "the program calls TensorFlow's own kernel, which takes it"
_CHECK_SIZES = (
    "hostcall.configure(dynamic_sizes='checked'), before the function is first called, puts it "
    "right"
)
_CALLS_COMPILED = "it calls a compiled function"


class Walk:
    """One walk through a library of functions.

    Args:
      library: a FunctionDefLibrary.
      locate: finds the `file:line` of a node, by the names of its function and of the node.
      device: the full name of the device that compiled functions run on, if that is no CPU.

    Attributes:
      bodies: the functions of the library.
      functions, script_ops, risks: the facts found so far.
    """

    def __init__(self, library: FunctionDefLibrary, locate: ops.Locate, device: str = "") -> None:
        self._library = library
        self._device = device
        self._locate = locate
        self._seen: set[tuple[str, str]] = set()
        self.bodies = Bodies(library)
        self.functions: list[Function] = []
        self.script_ops: list[ScriptOp] = []
        self.risks: list[Risk] = []

    def function(self, name: str) -> None:
        """Explain a function as it runs when eager code calls it."""
        if defs.is_compiled(self.bodies.functions[name]):
            self._program(Place(name))
        else:
            self.on_host(Place(name))

    def _program(self, place: Place) -> None:
        """Explain a must-compile function that no compiled function calls."""
        name = place.function
        if not self._is_new("program", name):
            return
        partitioner = function_routes.foreseen_partitioner(self._library, name, self._device)
        if partitioner.must_partition(name):
            program = None
            if not self._device:
                program = foreseen_program(partitioner, name, self._shape_of)
            if program is not None:
                self._one_program(place, program.regions)
                return
            partitioner.partition(name)
            PartitionWalk(self, partitioner).function(place)
            return
        if not function_routes.is_taken(self._library, name):
            self._note_risks(name)
        self._one_program(place, ())

    def _note_risks(self, entry: str) -> None:
        """Note the ops that XLA may get wrong in a function that stock TensorFlow compiles."""
        for (function, name), reason in sorted(risks.find(self._library, entry).items()):
            node = self.bodies[function].node(name)
            file, line = ops.parse_location(self._locate(function, name))
            self.risks.append(Risk(name, node.op, function, reason, _CHECK_SIZES, file, line))

    def _one_program(self, place: Place, regions: Sequence[Region]) -> None:
        """Note a function that is one program, and the host ops that it calls."""
        name = place.function
        members = tuple(Op(node.name, node.op) for node in self.bodies[name].nodes)
        cluster = Cluster(name, name, name, place.path, members)
        ops = [
            self._called_op(region.function, node)
            for region in regions
            for node in region.nodes
            if self.bodies[region.function].node(node).op not in op_kinds.SCRIPT_OPS
        ]
        called = [op for op in ops if not is_plumbing(op)]
        self.functions.append(Function(name, place.path, "compiled", (cluster, *called)))
        self._compiled(place, name)

    def _called_op(self, function: str, name: str) -> HostOp:
        node = self.bodies[function].node(name)
        op = self.host_op(node, Place(function), _CALLED, ((), ()), (), "")
        return dataclasses.replace(op, in_program=True)

    def _shape_of(self, function: str, value: str) -> tf.TensorShape:
        return self.bodies[function].shape_of(value)

    def _compiled(self, place: Place, cluster: str) -> None:
        """Note the script ops in a compiled function, and in all that it calls."""
        if self._is_new("compiled", place.function):
            for node, at in self.in_order(place):
                self.compiled_node(node, at, cluster)

    def compiled_node(self, node: NodeDef, place: Place, cluster: str) -> None:
        """Note the script ops that a node of a compiled function is, or leads to."""
        if op_kinds.calls_python(node):
            is_script_op = node.op in op_kinds.SCRIPT_OPS
            reason = _reason_of_call(node) if is_script_op else _MODULE
            self.script_op(node, place, "custom_call", reason, cluster=cluster)
        elif self.bodies.matters(node):
            for role, callee in self.bodies.called(node):
                self._compiled(place.inside(node, role, callee), cluster)

    def on_host(self, place: Place, why: str = "") -> None:
        """Explain a function that TensorFlow runs on the host.

        Args:
          place: the place of the function.
          why: the reason, if a partitioned function calls it.
        """
        if not self._is_new("host", place.function):
            return
        fill = self.room()
        nodes = self.bodies[place.function].nodes
        edges = sources(nodes, {node.name for node in nodes if self.bodies.matters(node)})
        route, reason = ("partition", why) if why else ("plain", _NOT_COMPILED)
        steps: list[Step] = []
        for node, at in self.in_order(place):
            if op_kinds.calls_python(node):
                steps.append(self.script_op(node, at, route, reason, edges[node.name]))
            elif self.bodies.matters(node):
                compiled = defs.is_compiled(node)
                what = _CALLS_COMPILED if compiled else _LEADS_ON
                calls = [
                    name
                    for _, name in self.bodies.called(node)
                    if compiled or self.bodies.function_matters(name)
                ]
                steps.append(self.host_op(node, at, what, edges[node.name], calls))
                for role, callee in self.bodies.called(node):
                    inside = at.inside(node, role, callee)
                    if compiled:
                        self._program(inside)
                    elif self.bodies.function_matters(callee):
                        self.on_host(inside, why)
        fill(Function(place.function, place.path, "host", tuple(steps)))

    def in_order(self, place: Place) -> Iterator[tuple[Any, Place]]:
        """Yield the nodes of a function in program order, each with its place."""
        last = place.follows
        for node in self.bodies[place.function].nodes:
            if self.bodies.has_effect(node):
                yield node, dataclasses.replace(place, follows=last)
                last = joined(place.path, node.name)
            else:
                yield node, dataclasses.replace(place, follows=None)

    def script_op(
        self,
        node: NodeDef,
        place: Place,
        route: str,
        reason: str,
        edges: Edges = ((), ()),
        cluster: str | None = None,
    ) -> ScriptOp:
        """Note a script op, and return the facts on it."""
        body = self.bodies[place.function]
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
            takes_from=edges[0],
            waits_for=edges[1],
        )
        self.script_ops.append(found)
        return found

    def host_op(
        self,
        node: NodeDef,
        place: Place,
        reason: str,
        edges: Edges,
        calls: Sequence[str],
        advice: str = "",
    ) -> HostOp:
        """Return the facts on a host op that is no script op."""
        file, line = ops.parse_location(self._locate(place.function, node.name))
        return HostOp(
            node=node.name,
            op=self.bodies[place.function].node(node.name).op,
            function=place.function,
            path=place.path,
            reason=reason,
            file=file,
            line=line,
            calls=tuple(calls),
            advice=advice,
            takes_from=edges[0],
            waits_for=edges[1],
        )

    def room(self) -> Callable[[Function], None]:
        """Reserve a place for a function before the functions that it calls; return its setter."""
        position = len(self.functions)
        self.functions.append(Function("", "", "", ()))

        def fill(function: Function) -> None:
            self.functions[position] = function

        return fill

    def _is_new(self, mode: str, name: str) -> bool:
        new = (mode, name) not in self._seen
        self._seen.add((mode, name))
        return new


def _reason_of_call(node: NodeDef) -> str:
    choice = route_selection.choose(node)
    return f"{choice.reason}: {_CALLED_FOR_IT}" if choice.fits_region else choice.reason
