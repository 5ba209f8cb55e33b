"""Writing the nodes of one function of a program with regions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler.partition import host_calls
from hostcall._compiler.regions import forming
from hostcall._compiler.regions.references import data_inputs
from hostcall._compiler.regions.retyping import SCOPE, Program, Retyping
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds, protos
from hostcall._tf.types import FunctionDef, NodeDef

_RESOURCE = tf.resource.as_datatype_enum

# A larger constant, in bytes, is an input of a region, and none of its own.
_LARGE = 1024


class FunctionBody:
    """The nodes of one function, which are written anew in place.

    Args:
      program: what writes the program.
      name: of the function as it was.
      function: a copy of its FunctionDef.
    """

    def __init__(self, program: Program, name: str, function: FunctionDef) -> None:
        self._program = program
        self._name = name
        self._function = function
        self._types = defs.Types(program.old_functions[name], program.old_functions)
        self._retyping = Retyping(program, name, self._types)
        self._constants = {node.name: node for node in function.node_def if node.op == "Const"}
        self._moved: dict[str, str] = {}  # the values of regions, by those that they were
        self._calls: dict[str, str] = {}  # the call of its region, by the name of a node

    def write(self) -> None:
        wanted = set(self._program.host_ops(self._name)) | self._constant_references()
        live = {node.name for node in self._function.node_def}
        regions = forming.regions_of(self._function, wanted & live, self._program.old_functions)
        calls = [self._region(members) for members in regions]
        inside = set(self._calls)
        kept = [node for node in self._function.node_def if node.name not in inside]
        self._drop_constants(kept)
        for node in (*kept, *calls):
            self._rewire(node)
        for node in kept:
            self._retyping.run(node)
        function = self._function
        places = {node.name: i for i, node in enumerate(function.node_def)}
        places |= {c.name: self._place(m, places) for c, m in zip(calls, regions, strict=True)}
        in_order = sorted((*kept, *calls), key=lambda node: places[node.name])
        nodes = [protos.copy_of(node) for node in in_order]
        del function.node_def[:]
        function.node_def.extend(nodes)
        for result, value in list(function.ret.items()):
            function.ret[result] = self._moved.get(value, value)
        for key, node_name in list(function.control_ret.items()):
            function.control_ret[key] = self._calls.get(node_name, node_name)
        self._name_control_outputs_once()

    def _place(self, members: list[NodeDef], places: Mapping[str, int]) -> int:
        """The place of a region: nodes stand in the order of their effects."""
        stateful = [n for n in members if self._types.definition_of(n).is_stateful]
        return min(places[node.name] for node in stateful or members)

    def _name_control_outputs_once(self) -> None:
        function = self._function
        nodes = sorted(set(function.control_ret.values()))
        function.control_ret.clear()
        function.control_ret.update({node: node for node in nodes})
        function.signature.control_output[:] = nodes

    def _constant_references(self) -> set[str]:
        """The constants whose references the program needs, for what is no op on the host."""
        host = self._program.host_ops(self._name)
        found = set(map(defs.source, self._function.ret.values()))
        for node in self._function.node_def:
            if node.name not in host:
                found.update(map(defs.source, data_inputs(node)))
        return {
            name
            for name in found & set(self._constants)
            if self._program.holds(self._name, f"{name}:output:0")
        }

    def _drop_constants(self, kept: list[NodeDef]) -> None:
        """Leaves out the constants that XLA has no values for."""
        kept[:] = [
            node
            for node in kept
            if node.op != "Const" or not self._program.holds(self._name, f"{node.name}:output:0")
        ]

    def _region(self, members: list[NodeDef]) -> Any:
        """Makes a region of nodes; returns the node that calls it, its inputs as they were."""
        inside = {node.name for node in members}
        function = protos.function_pb2.FunctionDef()
        taken: dict[str, str] = {}
        controls: dict[str, None] = {}
        copied: dict[str, None] = {}
        nodes = []
        for member in members:
            node = protos.copy_of(member)
            inputs = []
            for value in member.input:
                source = defs.source(value)
                if source in inside:
                    inputs.append(value)
                elif value.startswith("^"):
                    controls.setdefault(value)
                elif source in self._constants and self._is_copied(source):
                    copied.setdefault(source)
                    inputs.append(value)
                else:
                    inputs.append(taken.setdefault(value, f"input_{len(taken)}"))
            node.input[:] = inputs
            node.attr.pop("_class", None)
            if node.op in op_kinds.SCRIPT_OPS:
                host_calls.take_own_kernel(node)
            nodes.append(node)
        function.node_def.extend(self._constants[name] for name in copied)
        function.node_def.extend(nodes)
        for value, name in taken.items():
            function.signature.input_arg.add(name=name, type=self._types.of(value))
        index = self._program.add_region(self._name, function, [n.name for n in members], taken)
        stateful = forming.is_stateful(members, self._types, _RESOURCE)
        call = protos.node_def_pb2.NodeDef(
            name=f"hostcall_region_{index}",
            op="HostcallRegion" if stateful else "HostcallStatelessRegion",
            input=[SCOPE, *taken, *controls],
        )
        self._return_from(function, inside, call.name)
        self._calls.update(dict.fromkeys(inside, call.name))
        self._describe(call, function, index, [*taken])
        return call

    def _is_copied(self, name: str) -> bool:
        is_reference = self._program.holds(self._name, f"{name}:output:0")
        return is_reference or len(self._constants[name].SerializeToString()) <= _LARGE

    def _return_from(self, function: FunctionDef, inside: set[str], call: str) -> None:
        """Makes results of the values of a region that are used outside of it."""
        outside = [n for n in self._function.node_def if n.name not in inside]
        used = itertools.chain(*map(data_inputs, outside), self._function.ret.values())
        results = dict.fromkeys(value for value in used if defs.source(value) in inside)
        for i, value in enumerate(results):
            function.signature.output_arg.add(name=f"output_{i}", type=self._types.of(value))
            function.ret[f"output_{i}"] = value
            self._moved[value] = f"{call}:outputs:{i}"

    def _describe(self, call: NodeDef, function: FunctionDef, index: int, taken: list[str]) -> None:
        signature = function.signature
        results = [function.ret[result.name] for result in signature.output_arg]
        call.attr["Tin"].list.type.extend(map(self._retyping.type_of, taken))
        call.attr["Tout"].list.type.extend(map(self._retyping.type_of, results))
        call.attr["region"].s = signature.name.encode()
        call.attr["index"].i = index

    def _rewire(self, node: NodeDef) -> None:
        """Lets a node take what has become of its inputs."""
        inputs: dict[str, None] = {}
        data = []
        for value in node.input:
            if not value.startswith("^"):
                data.append(self._moved.get(value, value))
            elif (call := self._calls.get(value[1:])) != node.name:
                inputs.setdefault(f"^{call}" if call else value)
        node.input[:] = [*data, *inputs]
