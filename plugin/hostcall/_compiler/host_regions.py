"""Regions: connected host ops that a refused function calls as one program, not partitioned.

XLA has no values for strings, nor for the variants and resources of host ops, say the handle of a
table or a dataset. The program has references in their place, which are int64 scalars. The real
values are kept beside the program while it runs (`csrc/tensorflow/host_region.h`).

Each function that the program reaches takes one more argument, the scope: the address of the data
that the regions of a launch share. Loops carry it along.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._callbacks import lookup, requested_routes, result_shapes
from hostcall._callbacks.structures import BoundedSpec
from hostcall._compiler import function_edits
from hostcall._compiler.ordering import Effects
from hostcall._compiler.partition.host_ops import HostOps
from hostcall._compiler.partition.partitioner import Partitioner, place_of
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime import _library, _scheduling
from hostcall_runtime._scheduling import Groups, Side

# The name of each function's argument for the address of the launch's scope.
SCOPE = "hostcall_scope"

# Ops that pass on references as they are.
_PASSED_ON = frozenset({"Identity", "IdentityN"})
# They see data that other ops have written, but TensorFlow does not call them stateful.
_FILE_OPS = frozenset({"ReadFile", "MatchingFiles"})
# A larger constant, in bytes, is an input of a region, and not copied into it.
_LARGE = 1024
# Stands for a size that tracing leaves open, and that XLA knows.
_SOME_SIZE = 3

Value = tuple[str, str]  # a value: the name of its function, and its own name there

# Gives the shape of a value, by the name of its function and its own.
ShapeOf = Callable[[str, str], tf.TensorShape]

Shape = list[int] | None  # None if not even the rank is known; an unknown size is -1


class NotWholeError(Exception):
    """The reason why a function cannot be one program, even with regions."""


class Region(NamedTuple):
    """Connected host ops of an old function that the program calls as a function of their own."""

    name: str
    function: str
    nodes: list[str]
    inputs: list[str]  # the values of the old function that are its arguments, in their order


class ProgramWithRegions(NamedTuple):
    """A function that is one program: all compiled functions, and regions with their functions."""

    name: str
    library: FunctionDefLibrary
    functions: list[Any]
    regions: list[Region]


def predicted_program(
    partitioner: Partitioner, entry: str, shape_of: ShapeOf
) -> ProgramWithRegions | None:
    """Return the program that a function with host ops becomes, or None if it is partitioned."""
    try:
        program = write(partitioner.library, entry, partitioner.host_ops, "__predicted")
    except NotWholeError:
        return None
    infer = _library.load("hostcall._tensorflow").infer_region_shapes
    for function, region in zip(program.functions, program.regions, strict=True):
        shapes = [_sizes(shape_of(region.function, v), _SOME_SIZE) for v in region.inputs]
        if not infer(function.SerializeToString(), shapes):
            return None
    return program


def of_results(serialized: bytes, operands: Sequence[Shape]) -> list[Shape]:
    """Return the shapes of a script op's results from those of its inputs, in a region."""
    node = protos.node_def_pb2.NodeDef.FromString(serialized)
    spec = lookup.existing_spec_of(node)
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
    specs = [
        tf.TensorSpec(None if shape is None else [None if s < 0 else s for s in shape], dtype)
        for shape, dtype in zip(operands, dtypes, strict=True)
    ]
    results = result_shapes.demanded(spec, node, specs)
    shapes = [None if isinstance(said, BoundedSpec) else _sizes(said.shape, -1) for said in results]
    hidden = len(node.attr["Tout"].list.type) - len(shapes)
    return [*shapes, *[[]] * hidden]


def _sizes(shape: tf.TensorShape, unknown: int) -> Shape:
    return None if shape.rank is None else [unknown if s is None else s for s in shape.as_list()]


def write(
    library: FunctionDefLibrary, entry: str, host_ops: HostOps, suffix: str
) -> ProgramWithRegions:
    """Write a function with host ops as one program, or raise a NotWholeError."""
    functions = _compiled(library, entry)
    _check(functions, entry)

    def is_host_op(node: NodeDef) -> bool:
        if _is_call(node, functions) or node.op == "Const":
            return False
        of_strings = node.op not in _PASSED_ON and defs.handles(node, defs.STRING, functions)
        if of_strings and node.op not in op_kinds.SCRIPT_OPS:
            return True
        if not host_ops.own_obstacle(node, inside_loop=True):
            return False
        if node.op in op_kinds.SCRIPT_OPS and not host_ops.choose(node).fits_region:
            raise NotWholeError("a callback is on the host")
        return True

    rewriter = _Rewriter(functions, _References(functions, is_host_op), entry, suffix)
    name = rewriter.function(entry)
    if not rewriter.regions:
        raise NotWholeError("nothing of it is on the host")
    regions = [rewriter.functions.pop(region.name) for region in rewriter.regions]
    _widen(rewriter.functions.values(), regions)
    compiled = protos.function_pb2.FunctionDefLibrary(function=rewriter.functions.values())
    return ProgramWithRegions(name, compiled, regions, rewriter.regions)


def _widen(compiled: Iterable[Any], regions: Iterable[Any]) -> None:
    """Cast the sub-byte values that regions take and return at their boundaries."""
    narrow = set()
    for region in regions:
        if not defs.WIDE.keys().isdisjoint(defs.fixed_types(region.signature)):
            narrow.add(region.signature.name)
            function_edits.take_wide(region, defs.WIDE)
            nodes = [protos.copy_of(node) for node in defs.program_order(region)]
            del region.node_def[:]
            region.node_def.extend(nodes)  # its kernels are run in the order of its nodes
    for function in compiled if narrow else ():
        for node in [n for n in function.node_def if protos.text(n, "region") in narrow]:
            function_edits.pass_wide(function, node, defs.WIDE)


def _is_call(node: NodeDef, functions: Mapping[str, Any]) -> bool:
    """Return whether XLA compiles the functions that a node calls along with it."""
    return node.op in defs.CONTROL_FLOW_OPS | defs.CALL_OPS or node.op in functions


def _compiled(library: FunctionDefLibrary, entry: str) -> dict[str, Any]:
    """Return copies of the functions that XLA compiles as one program, without unused nodes."""
    functions = defs.by_name(library)
    found: dict[str, Any] = {}
    pending = [entry]
    while pending:
        name = pending.pop()
        if name in functions and name not in found:
            found[name] = protos.copy_of(functions[name])
            defs.drop_dead_nodes(found[name], functions)
            for node in found[name].node_def:
                if _is_call(node, functions):
                    pending += defs.called_functions(node, functions)
    effects = Effects(found, op_kinds.has_effect)
    for function in found.values():
        effects.chain(function)
    return found


def _check(functions: Mapping[str, Any], entry: str) -> None:
    if defs.VARIANT in defs.fixed_types(functions[entry].signature):
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


class _Rewriter:
    """A writer of one program, out of the functions that it reaches."""

    def __init__(
        self, functions: Mapping[str, Any], references: _References, entry: str, suffix: str
    ) -> None:
        self.old_functions = functions
        self.references = references
        self._entry = entry
        self._suffix = suffix
        self._new_names: dict[tuple[str, bool], str] = {}
        self.functions: dict[str, Any] = {}  # the new ones, including those of regions
        self.regions: list[Region] = []  # in the order of their indices

    def function(self, name: str, is_body: bool = False) -> str:
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
        _FunctionBody(self, name, function).write()
        self._sign(name, function, is_body)
        return new_name

    def _sign(self, name: str, function: FunctionDef, is_body: bool) -> None:
        signature, old = function.signature, self.old_functions[name]
        for i, arg in enumerate(signature.input_arg):
            if self.references.holds(name, arg.name):
                arg.type = defs.INT64
                function.arg_attr.pop(i, None)
                function.resource_arg_unique_id.pop(i, None)
        for result in signature.output_arg:
            if self.references.holds(name, old.ret[result.name]):
                result.type = defs.INT64
        signature.input_arg.add(name=SCOPE, type=defs.INT64)
        if is_body:
            signature.output_arg.add(name=SCOPE, type=defs.INT64)
            function.ret[SCOPE] = SCOPE

    def redirect(self, node: NodeDef) -> None:
        """Redirect a call to the new functions, which take the scope as well."""
        body = node.attr["body"].func.name if node.op in op_kinds.LOOP_OPS else ""
        for callee in defs.callees(node):
            callee.name = self.function(callee.name, is_body=callee.name == body)
        if node.op in self.old_functions:
            node.op = self.function(node.op)
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


class _FunctionBody:
    """The nodes of a copy of one old function, which `write` rewrites in place."""

    def __init__(self, program: _Rewriter, name: str, function: FunctionDef) -> None:
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
        regions = _regions_of(function, wanted & live, self._program.old_functions)
        calls = [self._region(members) for members in regions]
        kept = [
            node
            for node in function.node_def
            if node.name not in self._calls
            and not (node.op == "Const" and self._holds(f"{node.name}:output:0"))
        ]
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
        function_edits.name_control_outputs(function, lambda name: self._calls.get(name, name))

    def _holds(self, value: str) -> bool:
        """Return whether an old value is a reference in the program."""
        return self._program.references.holds(self._name, value)

    def _type_of(self, value: str) -> int:
        """Return the dtype that a value has in the program, by its old name."""
        return defs.INT64 if self._holds(value) else self._types.of(value)

    def _retype(self, node: NodeDef) -> None:
        """Change the attributes of a node that passes values on."""
        taken = [self._type_of(value) for value in defs.data_inputs(node)]
        if _is_call(node, self._program.old_functions):
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
            node.attr["T"].list.type[:] = [*taken, defs.INT64]
        elif node.op not in self._program.old_functions:
            selects = node.op in op_kinds.BRANCH_OPS  # the first input selects the branch
            node.attr["Tin"].list.type[:] = [*taken[selects:], defs.INT64]
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
                op_kinds.take_own_kernel(node)
        names = [node.name for node in members]
        index = self._program.add_region(self._name, function, names, taken)
        call = protos.node_def_pb2.NodeDef(
            name=f"hostcall_region_{index}",
            op=op_kinds.REGION if self._is_stateful(members) else "HostcallStatelessRegion",
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

    def _is_stateful(self, members: list[NodeDef]) -> bool:
        """Return whether a region has effects, or sees or awaits those of others."""
        return any(
            self._types.definition_of(node).is_stateful
            or node.op in _FILE_OPS
            or any(value.startswith("^") for value in node.input)
            or any(self._types.of(value) == defs.RESOURCE for value in defs.data_inputs(node))
            for node in members
        )

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


def _regions_of(
    function: FunctionDef, host_ops: Iterable[str], functions: Mapping[str, Any]
) -> list[list[NodeDef]]:
    """Return the regions of a function, each with its nodes in an order in which they can run."""
    wanted = set(host_ops)
    ordered = defs.program_order(function)
    # A constant that an op of a region takes is copied into that region.
    nodes = [node for node in ordered if node.op != "Const" or node.name in wanted]
    places = [place_of(node, wanted) for node in nodes]
    before = defs.predecessors(nodes)
    steps = _scheduling.first_steps(places, before)
    is_member = [place is Side.HOST for place in places]
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
    """Move host ops without effects to the step of their first user, if all users are host ops."""
    # So the text that tf.print prints is made where it is printed, and not at the first occasion.
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
    places: Sequence[Side],
    is_member: list[bool],
) -> None:
    """Add the identities between two ops of one step, which would lead out of it and back in."""
    follows = list(is_member)
    for i, place in enumerate(places):
        if place is Side.EITHER:
            follows[i] = any(follows[j] and steps[j] == steps[i] for j in before[i])
    leads = list(is_member)
    for i in reversed(range(len(places))):
        if leads[i]:
            for j in before[i]:
                leads[j] = leads[j] or (places[j] is Side.EITHER and steps[j] == steps[i])
    for i, place in enumerate(places):
        is_member[i] = is_member[i] or (place is Side.EITHER and follows[i] and leads[i])


class _References:
    """The values of a program that are references in it, and the host ops of each function."""

    def __init__(self, functions: Mapping[str, Any], is_host_op: Callable[[NodeDef], bool]) -> None:
        self._functions = functions
        self._groups = Groups[Value]()
        self._types = {name: defs.Types(f, functions) for name, f in functions.items()}
        # The nodes that have to be on the host, and others that pass variants to them.
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
            held = {value: dtype for value, dtype in values.items() if dtype in defs.NO_ARRAYS}
            self._dtypes |= {(name, value): dtype for value, dtype in held.items()}
        for name, function in functions.items():
            for node in function.node_def:
                self._read(name, node)
        self._found: set[Value] = set()
        self._spread()  # a NotWholeError if a resource is used in the program and on the host

    def holds(self, function: str, value: str) -> bool:
        """Return whether a value of a function is a reference."""
        key = (function, value)
        if key not in self._dtypes:
            return False
        return self._dtypes[key] == defs.STRING or self._groups.root(key) in self._found

    def _read(self, function: str, node: NodeDef) -> None:
        if _is_call(node, self._functions):
            for one, other in self._passed(function, node):
                self._unite(one, other)
        elif node.op in _PASSED_ON and node.name not in self.host_ops[function]:
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
                if self._dtypes[root] == defs.RESOURCE:
                    raise NotWholeError(
                        f"{node.name} of the program and ops on the host use one resource"
                    )
                self.host_ops[function].add(node.name)
                pending += map(self._groups.root, self._held(function, node))
