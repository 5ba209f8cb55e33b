"""Failures: errors of values, which a program raises before the next side effect, or at its end.

Each check of an op gives a scalar that is true where TensorFlow's kernel of the op raises.
Functions make one number of these scalars, that of the first error in program order, or 0. They
return this number, loops carry it along, and branches return that of the branch that was taken. So
nothing is called while all is well but a custom call that looks at the scalars and numbers: before
each call of Python that comes later in program order, and at the end, before results are returned
or variables assigned.

A loop ends at a failure too, unless it counts its iterations: what it computes after the failure
need not end it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from hostcall._compiler import control_flow
from hostcall._compiler.analyses import counting, node_places
from hostcall._compiler.analyses.effects import Effects
from hostcall._compiler.semantics.checks import CHECKS, CheckWriter
from hostcall._tf.graph import attributes, function_edits, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.function_edits import FunctionEdits, NodeWriter
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef

_RELEVANT = op_kinds.CALLING_OPS | op_kinds.ORDERED_OPS | op_kinds.SCRIPT_OPS
_FAILURE = "hostcall_failure"  # the argument and the result with the number of an error
_CALL, _BODY, _CONDITION = "call", "body", "condition"  # the uses of a function
_SUFFIX = "__raising"


class Found(NamedTuple):
    """A check of a node: the nodes that it adds, its scalar, and the error that it stands for."""

    node: Any
    added: list[Any]
    failing: str
    code: int
    text: str


class _Pending(NamedTuple):
    """A failure that was not raised yet: a scalar of one error, or a number of any of several."""

    value: str
    errors: tuple[int, ...]
    is_number: bool
    follows_effects: bool = False  # whether it is known only after the last effect of a call


def find_checks(library: FunctionDefLibrary, entry: str) -> dict[str, list[Found]]:
    """Find the checks of a program, by the names of its functions."""
    if not any(True for _ in defs.all_nodes(library, CHECKS)):
        return {}
    functions = defs.reachable(library, entry)
    right = counting.elements_in_range(functions)
    return {name: _checks_of(function, functions, right) for name, function in functions.items()}


def _checks_of(
    function: FunctionDef, functions: Mapping[str, Any], right: Collection[tuple[str, str]]
) -> list[Found]:
    """Return the checks of a function's nodes but those that are known to be `right`."""
    name = function.signature.name
    nodes = [node for node in defs.nodes_of(function, CHECKS) if (name, node.name) not in right]
    if not nodes or defs.has_frames(function):
        return []
    by_name = {node.name: node for node in function.node_def}
    types = defs.Types(function, functions)
    found = []
    for node in nodes:
        writer = CheckWriter(node, by_name, types)
        for check in CHECKS[node.op]:
            if failing := check.failing(writer):
                found.append(Found(node, writer.take(), failing, check.code, check.text(writer)))
    live = defs.live_nodes(function, functions) if found else ()
    return [one for one in found if one.node.name in live]


def _message(found: Found, function: FunctionDef) -> str:
    """Return the message of an error, with the op and its place in the user's code."""
    name = node_places.name_of(found.node)
    op = f"op {name!r}, {found.node.op}{node_places.of_written(found.node, function)}"
    return f"{found.text} ({op})\n\t [[{{{{node {name}}}}}]]"


def add(library: FunctionDefLibrary, entry: str) -> FunctionDefLibrary:
    """Return a library whose program raises the errors of its values; itself if it has none."""
    found = find_checks(library, entry)
    if not any(found.values()):
        return library
    copy = protos.copy_of(library)
    functions = defs.by_name(copy)
    fails = _Fails(found, functions)
    functions = control_flow.carry(functions, fails.of_function, f"{entry}{_SUFFIX}")
    program = _Program(functions, found)
    program.write_entry(entry)
    defs.by_name(copy)[entry].CopyFrom(functions[entry])
    known = {function.signature.name for function in copy.function}
    copy.function.extend(f for name, f in functions.items() if name not in known)
    copy.function.extend(program.new.values())
    return copy


class _Fails:
    """The functions of a program that have checks, or call functions that have some."""

    def __init__(self, found: Mapping[str, list[Found]], functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._known = {name: True for name, checks in found.items() if checks}

    def of_function(self, name: str) -> bool:
        """Return whether a function may fail."""
        if name not in self._known:
            self._known[name] = False  # XLA compiles no recursion
            function = self._functions.get(name)
            if function is not None and not defs.has_frames(function):
                calls = defs.calls_in(function, self._functions)
                self._known[name] = any(map(self.of_node, calls))
        return self._known[name]

    def of_node(self, node: NodeDef) -> bool:
        """Return whether a node calls a function that may fail."""
        if node.op not in self._functions and node.op not in op_kinds.CALLING_OPS:
            return False
        return any(map(self.of_function, defs.called_functions(node, self._functions)))


class _Variant(NamedTuple):
    """A function that also returns the number of its failure."""

    name: str
    errors: tuple[int, ...]
    follows_effects: bool  # whether the number follows from the last effect in it


class _Program:
    """A program that learns to raise; its functions get variants, named by their contents."""

    def __init__(self, functions: dict[str, Any], found: Mapping[str, list[Found]]) -> None:
        self.functions = functions
        self.effects = Effects(functions)
        self.fails = _Fails(found, functions)
        self.found = found
        self.errors: dict[int, str] = {}  # the errors by number, as the op wants them
        self.new: dict[str, Any] = {}
        self._variants: dict[tuple[str, str, bool], _Variant] = {}

    def write_entry(self, name: str) -> None:
        """Let the entry raise its failures at its end, in place."""
        body = _Body(self, name, self.functions[name])
        body.write()
        body.raise_pending("")
        body.edits.write()

    def number(self, found: Found, function: FunctionDef) -> int:
        """Return a new number for an error in a function."""
        number = len(self.errors) + 1
        self.errors[number] = f"{number}:{found.code}:{_message(found, function)}"
        return number

    def variant(self, name: str, use: str, ends: bool = False) -> _Variant:
        """Return the variant of a function for a use: in a loop, one that `ends` at a failure."""
        key = (name, use, ends)
        if key not in self._variants:
            function: Any = protos.copy_of(self.functions[name])
            body = _Body(self, name, function)
            body.write()
            errors = body.return_failure(use, ends)
            follows = body.follows_effects
            body.edits.write()
            digest = function_names.digest_of_functions([function])
            plain = function_names.without_digests(name)
            function.signature.name = f"{plain}{_SUFFIX}_{use}{digest}"
            self.new[function.signature.name] = function
            self._variants[key] = _Variant(function.signature.name, errors, follows)
        return self._variants[key]


class _Body:
    """The nodes of a function that learns to raise, or to return its failure."""

    def __init__(self, program: _Program, name: str, function: Any) -> None:
        self._program = program
        self._function = function
        self._checks: dict[str, list[Found]] = defaultdict(list)
        for one in program.found.get(name, ()):
            self._checks[one.node.name].append(one)
        self._pending: list[_Pending] = []
        self._raised = 0
        self.follows_effects = False  # whether what is pending follows from the last effect
        self.edits = FunctionEdits(function)

    def write(self) -> None:
        """Add the checks, and raise what is pending before each side effect."""
        if defs.has_frames(self._function):
            return
        self._add_checks()
        for node in self._in_order():
            for found in self._checks.get(node.name, ()):
                number = self._program.number(found, self._function)
                self._pending.append(_Pending(found.failing, (number,), is_number=False))
            has_effects = self._program.effects.of_node(node)
            if has_effects:
                self.raise_pending(node.name)
            elif op_kinds.has_no_effect(node):
                self.raise_pending(node.name)
                if self._raised:
                    node.attr[attributes.AFTER_RAISE].b = True
            if self._program.fails.of_node(node):
                called = self._call(node)
                if called.errors:  # else all of them are raised in there
                    self._pending.append(called)
                    self.follows_effects |= has_effects and called.follows_effects

    def _add_checks(self) -> None:
        # Calls that nothing uses do not fail, either.
        function_edits.drop_dead_nodes(self._function, self._program.functions)
        for name, checks in self._checks.items():
            self.edits.after(name, [node for found in checks for node in found.added])
        self.edits.write()
        self.edits = FunctionEdits(self._function)

    def _in_order(self) -> list[Any]:
        """Return the nodes with checks or effects, and those that call, in their order."""
        known = self._program.functions
        return [
            node
            for node in defs.program_order(self._function)
            if node.op in _RELEVANT or node.op in known or node.name in self._checks
        ]

    def raise_pending(self, before: str) -> None:
        """Raise the pending failures in front of a node, or at the end of the function."""
        if not self._pending:
            self.follows_effects = False
            return
        self._raised += 1
        # The call takes each by itself: the number of the first would be a kernel to compile.
        node = protos.node_def_pb2.NodeDef(
            name=f"hostcall_raise_{self._raised}",
            op=op_kinds.RAISE,
            input=[one.value for one in self._pending],
        )
        types = [defs.INT32 if one.is_number else defs.BOOL for one in self._pending]
        node.attr["T"].list.type.extend(types)
        own = [one.errors[0] for one in self._pending if not one.is_number]
        errors = {error for one in self._pending for error in one.errors}
        texts = [self._program.errors[n].encode() for n in [*own, *sorted(errors.difference(own))]]
        node.attr["errors"].list.s.extend(texts)
        if self.follows_effects and not before:
            node.attr[attributes.AFTER_EFFECTS].b = True
        self._add([node], before)
        self._pending, self.follows_effects = [], False

    def return_failure(self, use: str, ends: bool) -> tuple[int, ...]:
        """Return the failure of the function, and list the errors that it may be."""
        errors = {error for one in self._pending for error in one.errors}
        writer = NodeWriter(_FAILURE)
        function = self._function
        if use == _CONDITION:
            self._take_failure()
            if ends:
                self._end_at_failure(writer)
            return ()
        if use == _BODY and not errors:
            return ()
        number = self._combined(writer)
        position = len(function.signature.output_arg)
        if use == _BODY:
            position = self._take_failure()
            if not ends:  # else the loop has ended at the first failure
                zero = writer.constant(0, defs.INT32)
                failed = writer.add("NotEqual", _FAILURE, zero, T=defs.INT32)
                number = writer.add("SelectV2", failed, _FAILURE, number, T=defs.INT32)
        function_edits.insert_result(function, position, _FAILURE, defs.INT32)
        function.ret[_FAILURE] = number
        self._add(writer.nodes, "")
        return tuple(sorted(errors))

    def _take_failure(self) -> int:
        """Add the argument with the failure of earlier iterations; return its position."""
        types = [argument.type for argument in self._function.signature.input_arg]
        position = control_flow.before_resources(types)
        function_edits.insert_argument(self._function, position, _FAILURE, defs.INT32)
        return position

    def _end_at_failure(self, writer: NodeWriter) -> None:
        (result,) = self._function.signature.output_arg
        goes_on = self._function.ret[result.name]
        is_right = writer.add("Equal", _FAILURE, writer.constant(0, defs.INT32), T=defs.INT32)
        self._function.ret[result.name] = writer.add("LogicalAnd", goes_on, is_right)
        self._add(writer.nodes, "")

    def _combined(self, writer: NodeWriter) -> str:
        """Write the number of the first pending failure, or 0."""
        pending = [*self._pending]
        # A number alone needs no op, each of which may be a kernel for XLA to compile.
        is_number = bool(pending) and pending[-1].is_number
        number = pending.pop().value if is_number else writer.constant(0, defs.INT32)
        for one in reversed(pending):
            if one.is_number:
                zero = writer.constant(0, defs.INT32)
                failed = writer.add("NotEqual", one.value, zero, T=defs.INT32)
                number = writer.add("SelectV2", failed, one.value, number, T=defs.INT32)
            else:
                error = writer.constant(one.errors[0], defs.INT32)
                number = writer.add("SelectV2", one.value, error, number, T=defs.INT32)
        return number

    def _call(self, node: Any) -> _Pending:
        """Make a node call functions that return their failure, and return it as pending."""
        program = self._program
        if node.op in op_kinds.LOOP_OPS:
            return self._loop(node)
        if node.op in program.functions:
            called = program.variant(node.op, _CALL)
            node.op = called.name
            value = f"{node.name}:{_FAILURE}:0"
            return _Pending(value, called.errors, True, called.follows_effects)
        errors: set[int] = set()
        # Unlike the results of a call, which is inlined, those of a branch come at its end.
        follows = node.op in op_kinds.CONTROL_FLOW_OPS
        for callee in defs.callees(node):
            called = program.variant(callee.name, _CALL)
            callee.name = called.name
            errors.update(called.errors)
            follows |= called.follows_effects
        result = control_flow.add_result(node, defs.INT32)
        return _Pending(result, tuple(sorted(errors)), True, follows)

    def _loop(self, node: Any) -> _Pending:
        condition, body = node.attr["cond"].func, node.attr["body"].func
        functions = self._program.functions
        ends = self._program.effects.of_function(body.name) or not counting.ends(
            functions[condition.name], functions[body.name]
        )
        called = self._program.variant(body.name, _BODY, ends)
        if not called.errors:  # all of them are raised in there
            body.name = called.name
            return _Pending("", called.errors, is_number=True)
        condition.name = self._program.variant(condition.name, _CONDITION, ends).name
        body.name = called.name
        zero = NodeWriter(f"{node.name}/{_FAILURE}")
        none = zero.constant(0, defs.INT32)
        self._add(zero.nodes, node.name)
        result = control_flow.carry_through(self._function, node, none, defs.INT32)
        return _Pending(result, called.errors, is_number=True, follows_effects=True)

    def _add(self, nodes: Sequence[Any], before: str) -> None:
        """Add nodes in front of a node, or at the end of the function."""
        if before:
            self.edits.before(before, nodes)
        else:
            self.edits.at_end(nodes)
