"""Rewriting of a refused function as one program that calls regions.

Each function that the program reaches takes one more argument, the scope: the address of the data
that the regions of a launch share. Loops carry it along. A reference has the dtype int64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._callbacks import requested_routes
from hostcall._compiler import ordering
from hostcall._compiler.ordering import Effects
from hostcall._compiler.partition import host_calls
from hostcall._compiler.partition.host_ops import HostOps
from hostcall._compiler.partition.partitioner import Partitioner
from hostcall._compiler.regions import forming
from hostcall._compiler.regions.forming import NotWholeError, References, data_inputs, is_call
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime import _library

# The name of each function's argument for the address of the launch's scope.
SCOPE = "hostcall_scope"

_INT64 = tf.int64.as_datatype_enum


class Retyping:
    """The retyping of the nodes of one function.

    Args:
      program: the writer of the program.
      name: the name of the old function.
      types: the dtypes of the old values.
    """

    def __init__(self, program: Rewriter, name: str, types: defs.Types) -> None:
        self._program = program
        self._name = name
        self._types = types
        self._old = {node.name: node for node in program.old_functions[name].node_def}

    def type_of(self, value: str) -> int:
        """Return the dtype that a value has in the program, by its old name."""
        return _INT64 if self._program.holds(self._name, value) else self._types.of(value)

    def run(self, node: NodeDef) -> None:
        """Change the attributes of a node that passes values on."""
        taken = [self.type_of(value) for value in data_inputs(self._old[node.name])]
        if is_call(node, self._program.old_functions):
            self._call(node, taken)
        elif node.op == "Identity":
            node.attr["T"].type = taken[0]
        elif node.op == "IdentityN":
            node.attr["T"].list.type[:] = taken

    def _reshape(self, node: NodeDef, results: list[str]) -> None:
        """Declare references scalars, and also the scope, which a loop returns."""
        shapes = node.attr["output_shapes"].list.shape
        for shape, value in zip(shapes, results, strict=False):
            if self._program.holds(self._name, value):
                shape.CopyFrom(tf.TensorShape([]).as_proto())
        if node.op in op_kinds.LOOP_OPS and len(shapes):
            shapes.add()

    def _call(self, node: NodeDef, taken: list[int]) -> None:
        results = [
            f"{node.name}:{result}:{i}"
            for result, types in self._types.of_node(node.name).items()
            for i in range(len(types))
        ]
        returned = [self.type_of(value) for value in results]
        if "output_shapes" in node.attr:
            self._reshape(node, results)
        if node.op in op_kinds.LOOP_OPS:
            node.attr["T"].list.type[:] = [*taken, _INT64]
        elif node.op in op_kinds.BRANCH_OPS:
            node.attr["Tin"].list.type[:] = [*taken[1:], _INT64]
            node.attr["Tout"].list.type[:] = returned
        elif node.op in op_kinds.CALL_OPS:
            node.attr["Tin"].list.type[:] = [*taken, _INT64]
            node.attr["Tout"].list.type[:] = returned
        self._program.redirect(node)


_RESOURCE = tf.resource.as_datatype_enum

# A larger constant, in bytes, is an input of a region, and not copied into it.
_LARGE = 1024


class FunctionBody:
    """The nodes of one function, which are rewritten in place.

    Args:
      program: the writer of the program.
      name: the name of the old function.
      function: a copy of its FunctionDef.
    """

    def __init__(self, program: Rewriter, name: str, function: FunctionDef) -> None:
        self._program = program
        self._name = name
        self._function = function
        self._types = defs.Types(program.old_functions[name], program.old_functions)
        self._retyping = Retyping(program, name, self._types)
        self._constants = {node.name: node for node in function.node_def if node.op == "Const"}
        self._moved: dict[str, str] = {}  # the new values of regions, by the old ones
        self._calls: dict[str, str] = {}  # the call of a node's region, by the node's name

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
        """Return the place of a region: nodes stand in the order of their effects."""
        stateful = [n for n in members if self._types.definition_of(n).is_stateful]
        return min(places[node.name] for node in stateful or members)

    def _name_control_outputs_once(self) -> None:
        function = self._function
        nodes = sorted(set(function.control_ret.values()))
        function.control_ret.clear()
        function.control_ret.update({node: node for node in nodes})
        function.signature.control_output[:] = nodes

    def _constant_references(self) -> set[str]:
        """Return the constants whose references the program needs, for other uses than host ops."""
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
        """Drop the constants that XLA has no values for."""
        kept[:] = [
            node
            for node in kept
            if node.op != "Const" or not self._program.holds(self._name, f"{node.name}:output:0")
        ]

    def _region(self, members: list[NodeDef]) -> Any:
        """Make a region of nodes; return the node that calls it, with its old inputs."""
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
        """Turn the values of a region that are used outside of it into its results."""
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
        """Rewire a node's inputs to their replacements."""
        inputs: dict[str, None] = {}
        data = []
        for value in node.input:
            if not value.startswith("^"):
                data.append(self._moved.get(value, value))
            elif (call := self._calls.get(value[1:])) != node.name:
                inputs.setdefault(f"^{call}" if call else value)
        node.input[:] = [*data, *inputs]


class Rewriter:
    """A writer of one program.

    Args:
      functions: the FunctionDefs that it reaches, by name.
      references: the values of them that are references.
      entry: the name of the entry function.
      suffix: the end of new functions' names.

    Attributes:
      old_functions: as given.
      functions: the new FunctionDefs, including those of regions.
      regions: the names of the functions of regions, in the order of their indices.
      members: for each region, the name of its old function, the names of its nodes, and the values
        that it takes.
    """

    def __init__(
        self, functions: Mapping[str, Any], references: References, entry: str, suffix: str
    ) -> None:
        self.old_functions = functions
        self._references = references
        self._entry = entry
        self._suffix = suffix
        self._new_names: dict[tuple[str, bool], str] = {}
        self.functions: dict[str, Any] = {}
        self.regions: list[str] = []
        self.members: list[tuple[str, list[str], list[str]]] = []

    def run(self) -> str:
        """Write the program; return the name of its entry function."""
        return self._function(self._entry, is_body=False)

    def _function(self, name: str, is_body: bool) -> str:
        """Return the name of a function's replacement; the body of a loop returns the scope."""
        key = (name, is_body)
        if key in self._new_names:
            return self._new_names[key]
        number = f"_{len(self._new_names)}_{name}" if self._new_names else ""
        new_name = self._new_names[key] = f"{self._entry}{self._suffix}{number}"
        function: Any = protos.copy_of(self.old_functions[name])
        function.signature.name = new_name
        defs.drop_dead_nodes(function, self.old_functions)
        self.functions[new_name] = function
        FunctionBody(self, name, function).write()
        self._sign(name, function, is_body)
        return new_name

    def _sign(self, name: str, function: FunctionDef, is_body: bool) -> None:
        signature, old = function.signature, self.old_functions[name]
        for i, arg in enumerate(signature.input_arg):
            if self.holds(name, arg.name):
                arg.type = _INT64
                function.arg_attr.pop(i, None)
                function.resource_arg_unique_id.pop(i, None)
        for result in signature.output_arg:
            if self.holds(name, old.ret[result.name]):
                result.type = _INT64
        signature.input_arg.add(name=SCOPE, type=_INT64)
        if is_body:
            signature.output_arg.add(name=SCOPE, type=_INT64)
            function.ret[SCOPE] = SCOPE

    def holds(self, function: str, value: str) -> bool:
        """Return whether a value of an old function is a reference."""
        return self._references.holds(function, value)

    def host_ops(self, name: str) -> set[str]:
        """Return the nodes of a function that are on the host."""
        return self._references.host_ops[name]

    def redirect(self, node: NodeDef) -> None:
        """Redirect a call to the new functions, which take the scope as well."""
        for attr, callee in _called(node):
            callee.name = self._function(callee.name, is_body=attr == "body")
        if node.op in self.old_functions:
            node.op = self._function(node.op, is_body=False)
        data = data_inputs(node)
        node.input[:] = [*data, SCOPE, *[v for v in node.input if v.startswith("^")]]

    def add_region(
        self, function: str, region: FunctionDef, members: Iterable[str], inputs: Iterable[str]
    ) -> int:
        """Add the function of a region; return the index of the region."""
        index = len(self.regions)
        region.signature.name = f"{self._entry}{self._suffix}_region_{index}"
        defs.set_context(region, self.old_functions[function])
        if function != self._entry:  # the caller knows the entry's name
            defs.note_function(region.node_def, function)
        self.regions.append(region.signature.name)
        self.functions[region.signature.name] = region
        self.members.append((function, list(members), list(inputs)))
        return index


def _called(node: NodeDef) -> list[tuple[str, Any]]:
    """Return the NameAttrLists in a node's attributes, with the names of these."""
    found = []
    for name in sorted(node.attr):
        value = node.attr[name]
        callees = [value.func] if value.HasField("func") else value.list.func
        found += [(name, callee) for callee in callees]
    return found


_STRING, _VARIANT = tf.string.as_datatype_enum, tf.variant.as_datatype_enum
_IDENTITIES = frozenset({"Identity", "IdentityN"})


class Region(NamedTuple):
    """Connected host ops that the program calls.

    Attributes:
      name: the name of their function.
      function: the old function that they come from.
      nodes: their names.
      inputs: the values of the old function that the region takes, in the order of its arguments.
    """

    name: str
    function: str
    nodes: list[str]
    inputs: list[str]


class Program(NamedTuple):
    """A function that is one program, with regions.

    Attributes:
      name: the name of the function.
      library: a FunctionDefLibrary of all compiled functions.
      functions: the functions of the regions.
      regions: the regions, in the order of their indices.
    """

    name: str
    library: FunctionDefLibrary
    functions: list[Any]
    regions: list[Region]


def write(library: FunctionDefLibrary, entry: str, host_ops: HostOps, suffix: str) -> Program:
    """Write a function that holds host ops as one program.

    Args:
      library: a FunctionDefLibrary with all functions that it reaches.
      entry: the name of the function.
      host_ops: tells which nodes are for the host.
      suffix: the end of new functions' names.

    Raises:
      NotWholeError: if it cannot be one program.
    """
    functions = _compiled(library, entry)
    _check(functions, entry)

    def is_host_op(node: NodeDef) -> bool:
        if is_call(node, functions) or node.op == "Const":
            return False
        of_strings = node.op not in _IDENTITIES and defs.handles(node, _STRING, functions)
        if of_strings and node.op not in op_kinds.SCRIPT_OPS:
            return True
        if not host_ops.own_obstacle(node, inside_loop=True):
            return False
        if node.op in op_kinds.SCRIPT_OPS and not host_ops.choose(node).fits_region:
            raise NotWholeError("a callback is on the host")
        return True

    references = References(functions, is_host_op)
    rewriter = Rewriter(functions, references, entry, suffix)
    name = rewriter.run()
    if not rewriter.regions:
        raise NotWholeError("nothing of it is on the host")
    regions = [rewriter.functions.pop(region) for region in rewriter.regions]
    compiled = protos.function_pb2.FunctionDefLibrary(function=rewriter.functions.values())
    if not ordering.is_kept(compiled, name):
        raise NotWholeError("XLA would not keep the order of its calls")
    members = zip(rewriter.regions, rewriter.members, strict=True)
    return Program(name, compiled, regions, [Region(name, *of) for name, of in members])


def _compiled(library: FunctionDefLibrary, entry: str) -> dict[str, Any]:
    """Return the functions that XLA compiles as one program, by name, without unused nodes."""
    functions = {function.signature.name: function for function in library.function}
    found: dict[str, Any] = {}
    pending = [entry]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = protos.copy_of(functions[name])
        defs.drop_dead_nodes(found[name], functions)
        for node in found[name].node_def:
            if is_call(node, functions):
                pending += [c for c in defs.called_functions(node, functions) if c in functions]
    effects = Effects(found, op_kinds.has_effect)
    for function in found.values():
        effects.chain(function)
    return found


def _check(functions: Mapping[str, Any], entry: str) -> None:
    signature = functions[entry].signature
    if any(arg.type == _VARIANT for arg in (*signature.input_arg, *signature.output_arg)):
        raise NotWholeError("it takes or returns a value of dtype variant")
    for node in (node for function in functions.values() for node in function.node_def):
        if node.op in defs.FRAME_OPS:
            raise NotWholeError("it has TensorFlow 1's loops or branches")
        if requested_routes.asked(node) == requested_routes.PARTITION:
            raise NotWholeError("route='partition' was asked for")
        if op_kinds.lets_list_grow(node):
            raise NotWholeError("it has a list that may grow")
        if attributes.HINDERED in node.attr:
            raise NotWholeError("a size that only the run knows reaches the host")
        if attributes.BRANCHES_DIFFER in node.attr:
            raise NotWholeError("XLA ends the process where such branches hold calls")


# Stands for a size that tracing leaves open, and that XLA knows.
_SOME_SIZE = 3

# Gives the shape of a value, by the name of its function and its own.
ShapeOf = Callable[[str, str], tf.TensorShape]


def foreseen_program(partitioner: Partitioner, entry: str, shape_of: ShapeOf) -> Program | None:
    """Return the program that a function with host ops becomes, or None if it is partitioned.

    Args:
      partitioner: the partitioner that would be used.
      entry: the name of the function.
      shape_of: gives the shapes that tracing knows.
    """
    try:
        program = write(partitioner.library, entry, partitioner.host_ops, "__foreseen")
    except NotWholeError:
        return None
    infer = _library.load("hostcall._tensorflow").infer_region_shapes
    for function, region in zip(program.functions, program.regions, strict=True):
        shapes = [_as_compiled(shape_of(region.function, value)) for value in region.inputs]
        if not infer(function.SerializeToString(), shapes):
            return None
    return program


def _as_compiled(shape: tf.TensorShape) -> list[int] | None:
    if shape.rank is None:
        return None
    return [_SOME_SIZE if size is None else size for size in shape.as_list()]
