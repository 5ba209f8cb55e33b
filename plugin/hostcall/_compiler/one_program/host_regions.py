"""Regions: connected host ops that a refused function calls as one program, not partitioned.

XLA has no values for strings, nor for the variants and resources of host ops, say the handle of a
table or a dataset. The program has references in their place, which are int64 scalars. The real
values are kept beside the program while it runs (`csrc/tensorflow/host_region.h`).

Each function that the program reaches takes one more argument, the scope: the address of the data
that the regions of a launch share. Loops carry it along.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._compiler.analyses.effects import Effects
from hostcall._compiler.analyses.host_ops import HostOps, place_of
from hostcall._ops import lookup, requested_routes, result_shapes
from hostcall._ops.structures import BoundedSpec
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.program import Function, Node, ProgramModel, Value, dtypes, predecessors
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import ArgDef, FunctionDef, FunctionDefLibrary
from hostcall_runtime import _library, _scheduling
from hostcall_runtime._scheduling import Groups, Side

# The name of each function's argument for the address of the launch's scope.
SCOPE = "hostcall_scope"

# Ops that pass on references as they are.
_PASSED_ON = frozenset({"Identity", "IdentityN"})
_STATELESS_REGION = "HostcallStatelessRegion"
_REGIONS = frozenset({op_kinds.REGION, _STATELESS_REGION})
# They see data that other ops have written, but TensorFlow does not call them stateful.
_FILE_OPS = frozenset({"ReadFile", "MatchingFiles"})
# A larger constant, in bytes, is an input of a region, and not copied into it.
_LARGE = 1024
# Stands for a size that tracing leaves open, and that XLA knows.
_SOME_SIZE = 3

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
    library: FunctionDefLibrary, entry: str, host_ops: HostOps, shape_of: ShapeOf
) -> ProgramWithRegions | None:
    """Return the program that a function with host ops becomes, or None if it is partitioned."""
    try:
        program = write(library, entry, host_ops, "__predicted")
    except NotWholeError:
        return None
    for function, region in zip(program.functions, program.regions, strict=True):
        shapes = [
            None if _is_reference(taken) else _sizes(shape_of(region.function, value), _SOME_SIZE)
            for taken, value in zip(function.signature.input_arg, region.inputs, strict=True)
        ]
        if not _are_known(function, shapes):
            return None
    return program


def may_have_shapes(program: ProgramWithRegions) -> bool:
    """Return whether XLA may know the shapes of all results of regions, as it has to."""
    # It does not know the shapes of results that follow from references alone.
    return all(
        _are_known(function, [None] * len(function.signature.input_arg))
        for function in program.functions
        if all(map(_is_reference, function.signature.input_arg))
    )


def _is_reference(argument: ArgDef) -> bool:
    """Return whether a program has a reference for an argument of a region, without its shape."""
    return argument.type in defs.NO_ARRAYS


def _are_known(region: FunctionDef, shapes: list[Shape]) -> bool:
    """Return whether the shapes of a region's results follow from those of its inputs."""
    infer = _library.load("hostcall._tensorflow").infer_region_shapes
    return bool(infer(region.SerializeToString(), shapes))


def infer_results(serialized: bytes, operands: Sequence[Shape]) -> list[Shape]:
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
    copies = _Copies(library, f"{entry}{suffix}")
    name = copies.of(entry)
    functions = copies.found.values()

    def is_host_op(node: Node) -> bool:
        if _is_call(node) or node.op == "Const":
            return False
        of_strings = node.op not in _PASSED_ON and defs.handles(node, defs.STRING, copies.program)
        if of_strings and node.op not in op_kinds.SCRIPT_OPS:
            return True
        if not host_ops.own_obstacle(node.proto, inside_loop=True):
            return False
        if node.op in op_kinds.SCRIPT_OPS and not host_ops.choose(node.proto).fits_region:
            raise NotWholeError("a callback is on the host")
        return True

    def is_call(node: Node) -> bool:
        return node.op in op_kinds.SCRIPT_OPS or op_kinds.has_effect(node) or is_host_op(node)

    _check(functions, Effects(copies.program, is_call, None))
    _chain(functions, Effects(copies.program, op_kinds.has_effect))
    references = _References(functions, is_host_op)
    regions: list[Region] = []
    for (old, is_body), function in copies.found.items():
        _BodyWithRegions(function, old, references, name, regions).rewrite(is_body)
    if not regions:
        raise NotWholeError("nothing of it is on the host")
    compiled = [function.write() for function in functions]
    parts = [copies.program[region.name].write() for region in regions]
    _widen(compiled, parts)
    new = protos.function_pb2.FunctionDefLibrary(function=compiled)
    return ProgramWithRegions(name, new, parts, regions)


def _widen(compiled: Iterable[Any], regions: Iterable[Any]) -> None:
    """Cast the sub-byte values that regions take and return at their boundaries."""
    narrow = set()
    for region in regions:
        if not defs.WIDE.keys().isdisjoint(defs.fixed_types(region.signature)):
            narrow.add(region.signature.name)
            function_edits.take_wide(region, defs.WIDE)
            # Its kernels are run in the order of its nodes.
            function_edits.replace_nodes(region, defs.program_order(region))
    for function in compiled if narrow else ():
        for node in [n for n in function.node_def if protos.text(n, "region") in narrow]:
            function_edits.pass_wide(function, node, defs.WIDE)


def _is_call(node: Node) -> bool:
    """Return whether XLA compiles the functions that a node calls along with it."""
    return node.op in op_kinds.CALLING_OPS or node.op in node.function.program


class _Copies:
    """Copies of the functions that XLA compiles as one program, without unused nodes."""

    def __init__(self, library: FunctionDefLibrary, name: str) -> None:
        self.program = ProgramModel(library.function)
        self.found: dict[tuple[str, bool], Function] = {}
        self._name = name

    def of(self, name: str, body: str = "") -> str:
        """Return the name of the copy of a function, or of the one that is the body of loops."""
        key = (name, name == body)
        if key not in self.found:
            number = f"_{len(self.found)}_{name}" if self.found else ""
            function = self.program.copy_of(self.program[name], f"{self._name}{number}")
            self.found[key] = function
            function.drop_dead_nodes()
            for node in filter(_is_call, function.nodes):
                body = node.attr["body"].func.name if node.op in op_kinds.LOOP_OPS else ""
                defs.redirect(node, self.program, functools.partial(self.of, body=body))
        return self.found[key].name


def _check(functions: Collection[Function], calls: Effects) -> None:
    if defs.VARIANT in defs.fixed_types(next(iter(functions)).signature):
        raise NotWholeError("it takes or returns a value of dtype variant")
    for node in (node for function in functions for node in function.nodes):
        if node.op in op_kinds.FRAME_OPS:
            raise NotWholeError("it has TensorFlow 1's loops or branches")
        if requested_routes.asked(node) == requested_routes.PARTITION:
            raise NotWholeError("route='partition' was asked for")
        if op_kinds.lets_list_grow(node):
            raise NotWholeError("it has a list that may grow")
        if attributes.BLOCKER in node.attr:
            raise NotWholeError("a size that only the run knows reaches the host")
        if attributes.BRANCHES_DIFFER in node.attr and calls.of_node(node):
            raise NotWholeError("XLA ends the process where such branches hold calls")


def _chain(functions: Iterable[Function], effects: Effects) -> None:
    """Make each node with side effects wait for the one before."""
    for function in functions:
        for before, node in itertools.pairwise(filter(effects.of_node, function.in_order())):
            node.controls = [*node.controls, before]


class _BodyWithRegions:
    """The body of a function, in which regions take the place of host ops."""

    def __init__(
        self,
        function: Function,
        old: str,
        references: _References,
        entry: str,
        regions: list[Region],
    ) -> None:
        self._function = function
        self._old = old  # the name of the function before
        self._held = references.held
        self._host_ops = references.host_ops
        self._entry = entry
        self._regions = regions
        self._scope = function.add_argument(SCOPE, defs.INT64)
        self._places = {node: i for i, node in enumerate(function.nodes)}
        constants = [node for node in function.nodes if node.op == "Const"]
        self._references = {node for node in constants if node.results[0] in self._held}
        small = (node for node in constants if node.proto.ByteSize() <= _LARGE)
        self._copied = self._references.union(small)
        self._origins: dict[Value, Value] = {}  # the old values, by the results of regions

    def rewrite(self, is_body: bool) -> None:
        """Rewrite the function in place; the body of a loop returns the scope."""
        function = self._function
        regions = _regions_of(function, self._host_ops | self._constant_references())
        for members, returned in zip(regions, _returned(function, regions), strict=True):
            self._cut(members, returned)
        function.erase(self._references.intersection(function.nodes))
        for i, value in enumerate(function.arguments):
            if value in self._held:
                value.dtype = defs.INT64
                function.proto.arg_attr.pop(i, None)
                function.proto.resource_arg_unique_id.pop(i, None)
        for value in (value for node in function.nodes for value in node.results):
            if value in self._held:
                value.dtype = defs.INT64
        for node in function.nodes:
            self._retype(node)
        if is_body:
            function.add_result(SCOPE, self._scope)
        function.name_awaited()

    def _constant_references(self) -> set[Node]:
        """Return the constants whose references the program needs, for other uses than host ops."""
        returned = {value.node for value in self._function.results.values()}
        return {
            node
            for node in self._references
            if node in returned or not self._host_ops.issuperset(node.results[0].users)
        }

    def _cut(self, members: list[Node], returned: list[Value]) -> None:
        """Make a region of nodes, which returns some of their values, and a node that calls it."""
        function, index = self._function, len(self._regions)
        # The call stands where the first effect does.
        first = min([n for n in members if n.is_stateful] or members, key=self._places.__getitem__)
        kind = op_kinds.REGION if _is_stateful(members) else _STATELESS_REGION
        call = function.add(f"hostcall_region_{index}", kind, before=first)
        part, taken, controls = function.cut(f"{self._entry}_region_{index}", members, self._copied)
        call.operands, call.controls = [self._scope, *taken], controls
        function.replace_waits(members, call)
        call.attr["Tout"].list.type[:] = dtypes(returned)
        call.attr["region"].s = part.name.encode()
        call.attr["index"].i = index
        for i, (value, result) in enumerate(zip(returned, call.results, strict=True)):
            part.add_result(f"output_{i}", value)
            function.replace_uses(value, result)
            self._origins[result] = value
            if value in self._held:
                self._held.add(result)
        for node in part.nodes:
            node.attr.pop("_class", None)
            if node.op in op_kinds.SCRIPT_OPS:
                op_kinds.take_own_kernel(node)
        function_edits.set_context(part.proto, function.proto)
        if function.name != self._entry:  # the caller knows the entry's name
            function_edits.note_function([node.proto for node in part.nodes], self._old)
        inputs = [self._origins.get(value, value).name for value in taken]
        names = [node.name for node in members]
        self._regions.append(Region(part.name, self._old, names, inputs))

    def _retype(self, node: Node) -> None:
        """Change the attributes of a node that passes values on."""
        if _is_call(node):
            node.operands = [*node.operands, self._scope]
            self._retype_call(node)
        elif node.op in _REGIONS:
            node.attr["Tin"].list.type[:] = dtypes(node.operands[1:])
            node.attr["Tout"].list.type[:] = dtypes(node.results)
        elif node.op == "Identity":
            node.attr["T"].type = node.operands[0].dtype
        elif node.op == "IdentityN":
            node.attr["T"].list.type[:] = dtypes(node.operands)

    def _retype_call(self, node: Node) -> None:
        is_loop = node.op in op_kinds.LOOP_OPS
        if "output_shapes" in node.attr:
            # References are scalars, and so is the scope, which a loop returns.
            shapes = node.attr["output_shapes"].list.shape
            for shape, value in zip(shapes, node.results, strict=False):
                if value in self._held:
                    shape.CopyFrom(tf.TensorShape([]).as_proto())
            if is_loop and len(shapes):
                shapes.add()
        if is_loop:
            node.attr["T"].list.type[:] = dtypes(node.operands)
        elif node.op not in node.function.program:
            selects = node.op in op_kinds.BRANCH_OPS  # the first input selects the branch
            node.attr["Tin"].list.type[:] = dtypes(node.operands[selects:])
            node.attr["Tout"].list.type[:] = dtypes(node.results)


def _is_stateful(members: list[Node]) -> bool:
    """Return whether a region has effects, or sees or awaits those of others."""
    return any(
        node.is_stateful
        or node.op in _FILE_OPS
        or node.controls
        or defs.RESOURCE in dtypes(node.operands)
        for node in members
    )


def _returned(function: Function, regions: list[list[Node]]) -> list[list[Value]]:
    """Return the values of each region that are used outside of it."""
    region_of = {node: i for i, members in enumerate(regions) for node in members}
    found: list[dict[Value, None]] = [{} for _ in regions]
    uses = [(value, region_of.get(n)) for n in function.nodes for value in n.operands]
    for value, user in [*uses, *((value, None) for value in function.results.values())]:
        region = region_of.get(value.node)
        if region is not None and region != user:
            found[region][value] = None
    return [[*values] for values in found]


def _regions_of(function: Function, host_ops: Collection[Node]) -> list[list[Node]]:
    """Return the regions of a function, each with its nodes in an order in which they can run."""
    # A constant that an op of a region takes is copied into that region.
    nodes = [node for node in function.in_order() if node.op != "Const" or node in host_ops]
    places = [Side.HOST if n in host_ops else place_of(n, ()) for n in nodes]
    before = predecessors(nodes)
    steps = _scheduling.first_steps(places, before)
    is_member = [place is Side.HOST for place in places]
    _delay(function, nodes, before, steps, is_member)
    _fill_gaps(before, steps, places, is_member)
    groups = Groups[int]()
    members = [i for i in range(len(nodes)) if is_member[i]]
    for i in members:
        for j in before[i]:
            if is_member[j] and steps[i] == steps[j]:
                groups.unite(i, j)
    return [[nodes[i] for i in group] for group in groups.of(members)]


def _delay(
    function: Function,
    nodes: Sequence[Node],
    before: Sequence[Sequence[int]],
    steps: list[int],
    is_member: Sequence[bool],
) -> None:
    """Move host ops without effects to the step of their first user, if all users are host ops."""
    # So the text that tf.print prints is made where it is printed, and not at the first occasion.
    after: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(before):
        for j in sources:
            after[j].append(i)
    returned = {value.node for value in function.results.values()} | {*function.awaited.values()}
    for i in reversed(range(len(nodes))):
        stays = nodes[i] in returned or nodes[i].is_stateful
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
    """The values of a program that are references in it, and its host ops."""

    def __init__(self, functions: Collection[Function], is_host_op: Callable[[Node], bool]) -> None:
        self._groups = Groups[Value]()
        nodes = [node for function in functions for node in function.nodes]
        # The nodes that have to be on the host, and others that pass variants to them.
        self.host_ops = {node for node in nodes if is_host_op(node)}
        self._users: dict[Value, list[Node]] = {}
        for node in nodes:
            self._read(node)
        # A NotWholeError if a resource is used in the program and on the host.
        found = self._spread()
        values = [value for function in functions for value in function.arguments]
        values += [value for node in nodes for value in node.results]
        self.held = {
            value
            for value in _without_arrays(values)
            if value.dtype == defs.STRING or self._groups.root(value) in found
        }

    def _read(self, node: Node) -> None:
        if _is_call(node):
            for one, other in _passed(node):
                self._unite(one, other)
        elif node.op in _PASSED_ON and node not in self.host_ops:
            for one, other in zip(node.operands, node.results, strict=True):
                self._unite(one, other)
        elif node.op != "Const":
            for value in _without_arrays([*node.operands, *node.results]):
                self._users.setdefault(value, []).append(node)

    def _unite(self, one: Value, other: Value) -> None:
        if {one.dtype, other.dtype} <= defs.NO_ARRAYS:
            self._groups.unite(one, other)

    def _spread(self) -> set[Value]:
        """Find all values that host ops touch, and all ops that touch these values."""
        users: dict[Value, list[Node]] = {}
        for value, nodes in self._users.items():
            users.setdefault(self._groups.root(value), []).extend(nodes)

        def touch(root: Value) -> Iterator[Value]:
            for node in users[root]:
                if node in self.host_ops:
                    continue
                if root.dtype == defs.RESOURCE:
                    raise NotWholeError(
                        f"{node.name} of the program and ops on the host use one resource"
                    )
                self.host_ops.add(node)
                touched = _without_arrays([*node.operands, *node.results])
                yield from map(self._groups.root, touched)

        starts = [root for root, nodes in users.items() if not self.host_ops.isdisjoint(nodes)]
        return set(reach(starts, touch))


def _without_arrays(values: Iterable[Value]) -> list[Value]:
    """Return the values that may be references."""
    return [value for value in values if value.dtype in defs.NO_ARRAYS]


def _passed(node: Node) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of values that a call passes to functions or gets back."""
    given = node.operands[node.op in op_kinds.BRANCH_OPS :]  # the first input selects the branch
    is_loop = node.op in op_kinds.LOOP_OPS
    for called in node.function.program.callees(node):
        yield from zip(given, called.arguments, strict=True)
        if not is_loop or called.name == node.attr["body"].func.name:
            yield from zip(called.results.values(), node.results, strict=True)
        if is_loop:
            yield from zip(called.arguments, node.results, strict=True)
