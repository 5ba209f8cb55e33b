"""Rewriting of a refused function as one program that calls regions.

Each function that the program reaches takes one more argument, the scope: the address of the data
that the regions of a launch share. Loops carry it along. A reference has the dtype int64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._callbacks import requested_routes
from hostcall._compiler import function_edits, ordering
from hostcall._compiler.ordering import Effects
from hostcall._compiler.partition import host_calls
from hostcall._compiler.partition.host_ops import HostOps
from hostcall._compiler.partition.partitioner import Partitioner
from hostcall._compiler.regions import forming
from hostcall._compiler.regions.forming import PASSED_ON, NotWholeError, References, is_call
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime import _library

# The name of each function's argument for the address of the launch's scope.
SCOPE = "hostcall_scope"

_INT64, _RESOURCE, _STRING, _VARIANT = (
    dtype.as_datatype_enum for dtype in (tf.int64, tf.resource, tf.string, tf.variant)
)

# A larger constant, in bytes, is an input of a region, and not copied into it.
_LARGE = 1024


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


class FunctionBody:
    """The nodes of a copy of one old function, which `write` rewrites in place."""

    def __init__(self, program: Rewriter, name: str, function: FunctionDef) -> None:
        self._program = program
        self._name = name
        self._function = function
        self._host_ops = program.references.host_ops[name]
        self._types = defs.Types(program.old_functions[name], program.old_functions)
        self._constants = {node.name: node for node in function.node_def if node.op == "Const"}
        self._copied = {
            name: node
            for name, node in self._constants.items()
            if node.ByteSize() <= _LARGE or self._holds(f"{name}:output:0")
        }
        self._moved: dict[str, str] = {}  # the new values of regions, by the old ones
        self._calls: dict[str, str] = {}  # the call of a node's region, by the node's name

    def write(self) -> None:
        function = self._function
        wanted = self._host_ops | self._constant_references()
        live = {node.name for node in function.node_def}
        regions = forming.regions_of(function, wanted & live, self._program.old_functions)
        calls = [self._region(members) for members in regions]
        kept = [n for n in function.node_def if n.name not in self._calls and self._is_value(n)]
        for node in kept:
            self._retype(node)
        for node in (*kept, *calls):
            self._rewire(node)
        places = {node.name: i for i, node in enumerate(function.node_def)}
        places |= {c.name: self._place(m, places) for c, m in zip(calls, regions, strict=True)}
        in_order = sorted((*kept, *calls), key=lambda node: places[node.name])
        nodes = [protos.copy_of(node) for node in in_order]
        del function.node_def[:]
        function.node_def.extend(nodes)
        defs.edit_results(function, lambda value: self._moved.get(value, value))
        # Control outputs, each once.
        awaited = {self._calls.get(name, name) for name in function.control_ret.values()}
        function.control_ret.clear()
        function.control_ret.update({name: name for name in sorted(awaited)})
        function.signature.control_output[:] = sorted(awaited)

    def _holds(self, value: str) -> bool:
        """Return whether an old value is a reference in the program."""
        return self._program.references.holds(self._name, value)

    def _type_of(self, value: str) -> int:
        """Return the dtype that a value has in the program, by its old name."""
        return _INT64 if self._holds(value) else self._types.of(value)

    def _is_value(self, node: NodeDef) -> bool:
        """Return whether a node is no constant that XLA has no value for."""
        return node.op != "Const" or not self._holds(f"{node.name}:output:0")

    def _retype(self, node: NodeDef) -> None:
        """Change the attributes of a node that passes values on."""
        taken = [self._type_of(value) for value in defs.data_inputs(node)]
        if is_call(node, self._program.old_functions):
            self._retype_call(node, taken)
        elif node.op == "Identity":
            node.attr["T"].type = taken[0]
        elif node.op == "IdentityN":
            node.attr["T"].list.type[:] = taken

    def _retype_call(self, node: NodeDef, taken: list[int]) -> None:
        results = [*self._types.results_of(node.name)]
        is_loop = node.op in op_kinds.LOOP_OPS
        if "output_shapes" in node.attr:
            # References are scalars, and so is the scope, which a loop returns.
            shapes = node.attr["output_shapes"].list.shape
            for shape, value in zip(shapes, results, strict=False):
                if self._holds(value):
                    shape.CopyFrom(tf.TensorShape([]).as_proto())
            if is_loop and len(shapes):
                shapes.add()
        if is_loop:
            node.attr["T"].list.type[:] = [*taken, _INT64]
        elif node.op not in self._program.old_functions:
            selects = node.op in op_kinds.BRANCH_OPS  # the first input selects the branch
            node.attr["Tin"].list.type[:] = [*taken[selects:], _INT64]
            node.attr["Tout"].list.type[:] = map(self._type_of, results)
        self._program.redirect(node)

    def _place(self, members: list[NodeDef], places: Mapping[str, int]) -> int:
        """Return the place of a region: nodes stand in the order of their effects."""
        stateful = [n for n in members if self._types.definition_of(n).is_stateful]
        return min(places[node.name] for node in stateful or members)

    def _constant_references(self) -> set[str]:
        """Return the constants whose references the program needs, for other uses than host ops."""
        found = set(map(defs.source, self._function.ret.values()))
        for node in self._function.node_def:
            if node.name not in self._host_ops:
                found.update(map(defs.source, defs.data_inputs(node)))
        return {name for name in found & set(self._constants) if self._holds(f"{name}:output:0")}

    def _region(self, members: list[NodeDef]) -> Any:
        """Make a region of nodes; return the node that calls it, with its old inputs."""
        function, taken, controls = function_edits.part_of(members, self._copied, self._types)
        for node in function.node_def:
            node.attr.pop("_class", None)
            if node.op in op_kinds.SCRIPT_OPS:
                host_calls.take_own_kernel(node)
        names = [node.name for node in members]
        index = self._program.add_region(self._name, function, names, taken)
        stateful = forming.is_stateful(members, self._types, _RESOURCE)
        call = protos.node_def_pb2.NodeDef(
            name=f"hostcall_region_{index}",
            op="HostcallRegion" if stateful else "HostcallStatelessRegion",
            input=[SCOPE, *taken, *controls],
        )
        self._return_from(function, {*names}, call.name)
        self._calls.update(dict.fromkeys(names, call.name))
        results = [function.ret[result.name] for result in function.signature.output_arg]
        call.attr["Tin"].list.type.extend(map(self._type_of, taken))
        call.attr["Tout"].list.type.extend(map(self._type_of, results))
        call.attr["region"].s = function.signature.name.encode()
        call.attr["index"].i = index
        return call

    def _return_from(self, function: FunctionDef, inside: set[str], call: str) -> None:
        """Turn the values of a region that are used outside of it into its results."""
        outside = [n for n in self._function.node_def if n.name not in inside]
        used = itertools.chain(*map(defs.data_inputs, outside), self._function.ret.values())
        results = dict.fromkeys(value for value in used if defs.source(value) in inside)
        for i, value in enumerate(results):
            function.signature.output_arg.add(name=f"output_{i}", type=self._types.of(value))
            function.ret[f"output_{i}"] = value
            self._moved[value] = f"{call}:outputs:{i}"

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

    Attributes:
      old_functions: the functions that it reaches, by name.
      references: their values that are references.
      functions: the new functions, including those of regions.
      regions: the regions, in the order of their indices.
    """

    def __init__(
        self, functions: Mapping[str, Any], references: References, entry: str, suffix: str
    ) -> None:
        self.old_functions = functions
        self.references = references
        self._entry = entry
        self._suffix = suffix
        self._new_names: dict[tuple[str, bool], str] = {}
        self.functions: dict[str, Any] = {}
        self.regions: list[Region] = []

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
            if self.references.holds(name, arg.name):
                arg.type = _INT64
                function.arg_attr.pop(i, None)
                function.resource_arg_unique_id.pop(i, None)
        for result in signature.output_arg:
            if self.references.holds(name, old.ret[result.name]):
                result.type = _INT64
        signature.input_arg.add(name=SCOPE, type=_INT64)
        if is_body:
            signature.output_arg.add(name=SCOPE, type=_INT64)
            function.ret[SCOPE] = SCOPE

    def redirect(self, node: NodeDef) -> None:
        """Redirect a call to the new functions, which take the scope as well."""
        body = node.attr["body"].func.name if node.op in op_kinds.LOOP_OPS else ""
        for callee in defs.callees(node):
            callee.name = self._function(callee.name, is_body=callee.name == body)
        if node.op in self.old_functions:
            node.op = self._function(node.op, is_body=False)
        node.input.insert(len(defs.data_inputs(node)), SCOPE)  # control inputs come last

    def add_region(
        self, function: str, region: FunctionDef, members: list[str], inputs: list[str]
    ) -> int:
        """Add the function of a region; return the index of the region."""
        index = len(self.regions)
        region.signature.name = f"{self._entry}{self._suffix}_region_{index}"
        defs.set_context(region, self.old_functions[function])
        if function != self._entry:  # the caller knows the entry's name
            defs.note_function(region.node_def, function)
        self.functions[region.signature.name] = region
        self.regions.append(Region(region.signature.name, function, members, inputs))
        return index


def write(library: FunctionDefLibrary, entry: str, host_ops: HostOps, suffix: str) -> Program:
    """Write a function that holds host ops as one program.

    Args:
      library: a library with all functions that it reaches.
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
        of_strings = node.op not in PASSED_ON and defs.handles(node, _STRING, functions)
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
    regions = [rewriter.functions.pop(region.name) for region in rewriter.regions]
    compiled = protos.function_pb2.FunctionDefLibrary(function=rewriter.functions.values())
    if not ordering.is_kept(compiled, name):
        raise NotWholeError("XLA would not keep the order of its calls")
    return Program(name, compiled, regions, rewriter.regions)


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
        if attributes.BLOCKER in node.attr:
            raise NotWholeError("a size that only the run knows reaches the host")
        if attributes.BRANCHES_DIFFER in node.attr:
            raise NotWholeError("XLA ends the process where such branches hold calls")


# Stands for a size that tracing leaves open, and that XLA knows.
_SOME_SIZE = 3

# Gives the shape of a value, by the name of its function and its own.
ShapeOf = Callable[[str, str], tf.TensorShape]


def predicted_program(partitioner: Partitioner, entry: str, shape_of: ShapeOf) -> Program | None:
    """Return the program that a function with host ops becomes, or None if it is partitioned.

    The partitioner is the one that would be used; `shape_of` gives the shapes that tracing knows.
    """
    try:
        program = write(partitioner.library, entry, partitioner.host_ops, "__predicted")
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
