"""Program order: rewrites of functions that keep side effects in their order in XLA.

XLA keeps a call that has a side effect, but runs independent calls in any order. A token orders
them: a value that each call takes from the one before it. TensorFlow's bridge to XLA threads tokens
through loops and conditionals by itself once two attributes name the predecessor of each call. This
module writes these attributes, on copies of the function and of all that it reaches.

A *unit* is a part that the bridge compiles as one computation: the function itself, the body or the
condition of a loop, the branch of a conditional. Each unit begins with a token of its own. A plain
call is inlined into the unit around it, so that its ops follow those of the caller; a function that
is called twice needs a copy for each call.

XLA's programs for a CPU lose the order of a loop or a branch and of the calls beside it, since the
bridge wraps its token (`csrc/tensorflow/order_barrier.cc`). So a loop or branch that is not alone
in its unit also carries an integer. A barrier in front of it, one behind it and one at the end of
its functions write the integer when their token is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from hostcall._compiler import control_flow
from hostcall._compiler.analyses.effects import Effects
from hostcall._ops.tape_residuals import ResidualMode
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import (
    FunctionDef,
    FunctionDefLibrary,
    NameAttrList,
    NodeDef,
    OpDef,
)
from hostcall_runtime._errors import LoweringError


def bypass(function: FunctionDef) -> None:
    """Remove NoOps, in place: make their users wait for their inputs."""
    # TensorFlow puts one behind the stateful ops of a function. The constant folding before XLA
    # takes it for a constant, and makes all constants again: half a second for 20,000 of them. A
    # NoOp with several inputs and several users stays, since its removal would add edges.
    returned = set(function.control_ret.values())
    found = [(i, node) for i, node in enumerate(function.node_def) if node.op == "NoOp"]
    no_ops = {f"^{node.name}": node for _, node in found if node.name not in returned}
    if not no_ops:
        return
    users = _users(function, no_ops)
    bypassed = set()
    for control, node in no_ops.items():
        if len(node.input) > 1 and len(users[control]) > 1:
            continue
        for user in users[control]:
            others = [value for value in user.input if value != control]
            user.input[:] = [*others, *(value for value in node.input if value not in others)]
        for before in filter(users.__contains__, node.input):
            users[before] = [user for user in users[before] if user is not node] + users[control]
        bypassed.add(node.name)
    for position, node in reversed(found):
        if node.name in bypassed:
            del function.node_def[position]


def _users(function: FunctionDef, controls: Iterable[str]) -> dict[str, list[Any]]:
    """Return the nodes that wait for each of some control inputs."""
    users: dict[str, list[Any]] = {control: [] for control in controls}
    for node in function.node_def:
        inputs = node.input[:]
        if not inputs or inputs[-1][0] != "^":  # control inputs come last
            continue
        for value in inputs:
            if value in users:
                users[value].append(node)
    return users


# The most calls that are inlined into one program; XLA takes hours even for fewer.
_MOST_COPIES = 50_000
# The most levels of calls that TensorFlow inlines. Stock TensorFlow crashes on more.
_MOST_LEVELS = 21

_TOO_MANY = (
    "hostcall: {entry} calls functions with script ops, directly or not, more than {most} times. "
    "Each call is inlined, and functions that call one another several times double with each "
    "level. Call them in a tf.while_loop or a tf.map_fn, or make script ops in fewer places."
)
_TOO_DEEP = (
    "hostcall: {entry} calls functions with script ops that call one another more than {most} "
    "deep, and TensorFlow inlines no more. Make plain Python functions of some of them."
)

# Names that TensorFlow reads (tf2xla/side_effect_util.h).
_TOKEN_INPUTS = "_xla_token_input_nodes"
_TOKEN_NAME = "_xla_original_oc_node_name"
_UNIT_TOKEN = "_xla_token_arg_node"

# The ops, other than functions, that may have side effects or call functions with side effects.
_EFFECT_OPS = op_kinds.ORDERED_OPS | op_kinds.SCRIPT_OPS | op_kinds.CALLING_OPS

SUFFIX = "__hostcall"  # the suffix of the names of new functions


def order_side_effects(
    library: FunctionDefLibrary, entry: str, suffix: str = SUFFIX, barriers: bool = True
) -> tuple[FunctionDefLibrary, str]:
    """Write the order of side effects into copies of a function and of all that it reaches."""
    # Without `barriers`, the order is right in programs whose tokens are not wrapped.
    # Returned are the new functions, and the name of the one that replaces `entry`: equal for equal
    # input. TensorFlow keeps functions by name, so a library that was prepared in another way needs
    # another suffix.
    orderer = _Orderer(library, suffix, barriers)
    name = orderer.entry(entry)
    for function in orderer.ordered.function:
        bypass(function)
    return orderer.ordered, name


# A conditional: the name of its node, and the names of its branch functions.
_Branches: TypeAlias = tuple[str, tuple[str, ...]]


class _Carried(NamedTuple):
    """The place of the integer of barriers in the signature of a loop's or a branch's function."""

    argument: int  # the position of the argument
    result: int | None  # the position of the result; None for the condition of a loop


class _Orderer:
    def __init__(self, library: FunctionDefLibrary, suffix: str, barriers: bool) -> None:
        self._suffix = suffix
        self._functions = defs.by_name(library)
        self._units: dict[tuple[str, frozenset[str], _Branches | None, _Carried | None], str] = {}
        self._barriers = barriers
        self._is_shared = False  # whether a loop or branch would not be alone in this unit
        self._effects = Effects(self._functions)
        self._may_record = any(defs.nodes_of(f, {op_kinds.EAGER_PY_FUNC}) for f in library.function)
        self._entry = ""
        self._tracks_run = False
        self._is_cluster = False
        self._inlined = 0
        self._level = 0
        self.ordered: FunctionDefLibrary = protos.function_pb2.FunctionDefLibrary()

    def entry(self, name: str) -> str:
        """Order the whole program; return the name of its ordered copy."""
        self._entry = f"{name}{self._suffix}"
        known = self._functions
        self._functions = control_flow.carry(known, self._effects.of_function, self._entry)
        added = [new for new in self._functions if new not in known]
        if added:
            self._effects = Effects(self._functions)
        for new in added:
            if not self._effects.of_function(new):
                self._copy(new, new)  # the others are copied when they are called
        function = self._copy(name, self._entry)
        self._is_cluster = attributes.CLUSTER in function.attr
        self._is_shared = self._has_several(name)
        self._order(function, "", _UNIT_TOKEN, self._returned(function, function.ret))
        function.attr[attributes.TRACKS_RUN].b = self._tracks_run
        return str(function.signature.name)

    def _has_several(self, name: str) -> bool:
        if not self._barriers:
            return False
        return len([*itertools.islice(self._in_unit(name, frozenset()), 2)]) > 1

    def _in_unit(self, name: str, inside: frozenset[str]) -> Iterator[NodeDef]:
        """Yield the nodes with side effects in a unit, with those that plain calls inline."""
        if name in inside or name not in self._functions:
            return
        for node in self._may_have_effects(self._functions[name]):
            if op_kinds.is_ordered(node):
                if attributes.AFTER_EFFECTS not in node.attr:
                    yield node
            elif self._effects.of_callees(node):
                if node.op in op_kinds.CONTROL_FLOW_OPS:
                    yield node
                    continue
                for callee in defs.called_functions(node, self._functions):
                    yield from self._in_unit(callee, inside | {name})

    def _unit(
        self,
        name: str,
        escaping: frozenset[str],
        compared: _Branches | None,
        carried: _Carried | None,
    ) -> str:
        """Return the name of the ordered copy of a loop's body or condition, or of a branch."""
        key = (name, escaping, compared, carried)
        if key not in self._units:
            # Two programs may reach the same function, and need different copies of it.
            self._units[key] = f"{self._entry}__{len(self._units)}_{name}"
            function = self._copy(name, self._units[key])
            outer = self._level, self._is_shared
            self._level = 0
            self._is_shared = carried is not None or self._has_several(name)
            returned = self._returned(function, escaping)
            self._order(function, "", _UNIT_TOKEN, returned, carried)
            self._level, self._is_shared = outer
            if compared is not None:
                control_flow.compare_results(function, *compared)
        return self._units[key]

    def _order(
        self,
        function: FunctionDef,
        path: str,
        last: str,
        escaping: set[str],
        carried: _Carried | None = None,
    ) -> str:
        """Chain the ops of `function` in place, from the token `last`; return the last one."""
        # `path` is the prefix that inlining will put before the names of its nodes. `escaping` are
        # the values in it that become results of the whole program.
        consumed = self._consumed(function)
        previous: Any = None
        for node in self._effects_of(function):
            token, steps = f"{path}{node.name}", [node]
            if attributes.AFTER_RAISE in node.attr:
                _chain(node, last, token)
                node.input.append(f"^{previous.name}")
                continue
            if op_kinds.is_ordered(node):
                last = _chain_effect(node, last, token)
                self._mark_residuals(node, consumed, escaping)
            elif node.op in op_kinds.CONTROL_FLOW_OPS:
                steps = self._order_units(function, node, escaping)
                for step in steps:
                    last = _chain(step, last, f"{path}{step.name}")
            else:
                copy = self._copy_callee(node, function.signature.name)
                returned = self._escaping_of(node, copy.signature, escaping)
                self._level += 1
                self._refuse(_TOO_DEEP, self._level, _MOST_LEVELS)
                last = self._order(copy, f"{token}/", last, self._returned(copy, returned))
                self._level -= 1
            # The bridge looks tokens up as it visits nodes in its own order; edges fix that order.
            for step in steps:
                if previous is not None and f"^{previous.name}" not in step.input:
                    step.input.append(f"^{previous.name}")
                previous = step
        if carried is not None:
            previous = _carry(function, carried, previous, last) or previous
        if previous is not None:
            function_edits.add_control_output(function, previous.name)
        return last

    def _order_units(self, function: FunctionDef, node: NodeDef, escaping: set[str]) -> list[Any]:
        """Order the functions of a loop or branch; return it with the barriers that it needs."""
        branches = tuple(callee.name for callee in defs.callees(node))
        compared = (node.name, branches) if node.op in op_kinds.BRANCH_OPS else None
        condition = node.attr["cond"].func.name if "cond" in node.attr else ""
        place = _place(node)
        for callee in defs.callees(node):
            returned = self._escaping_of(node, callee, escaping)
            result = None if callee.name == condition else place.result
            carried = place._replace(result=result) if self._is_shared else None
            callee.name = self._unit(callee.name, returned, compared, carried)
        return _between_barriers(function, node, place) if self._is_shared else [node]

    def _effects_of(self, function: FunctionDef) -> list[Any]:
        """Return the nodes of a function with side effects, callees included, in their order."""
        found = [
            node
            for node in self._may_have_effects(function)
            if op_kinds.is_ordered(node)
            or attributes.AFTER_RAISE in node.attr
            or self._effects.of_callees(node)
        ]
        if len(found) < 2:
            return found
        names = {node.name for node in found}
        return [node for node in defs.program_order(function) if node.name in names]

    def _may_have_effects(self, function: FunctionDef) -> list[Any]:
        """Return the nodes of a function whose ops may have side effects, callees included."""
        known = self._functions
        return [n for n in function.node_def if (op := n.op) in _EFFECT_OPS or op in known]

    def _refuse(self, why: str, count: int, most: int) -> None:
        if count > most:
            entry = self._entry.removesuffix(self._suffix)
            raise LoweringError(why.format(entry=entry, most=most))

    def _mark_residuals(self, node: NodeDef, consumed: set[str], escaping: set[str]) -> None:
        if node.op != op_kinds.EAGER_PY_FUNC:
            return
        hidden = f"{node.name}:output:{len(node.attr['Tout'].list.type) - 1}"
        mode = ResidualMode.NO
        if hidden in escaping:
            mode = ResidualMode.CLUSTER if self._is_cluster else ResidualMode.ESCAPING
        elif hidden in consumed:
            mode = ResidualMode.RUN
        node.attr[attributes.RECORD].i = mode
        self._tracks_run |= mode is not ResidualMode.NO

    def _escaping_of(
        self, node: NodeDef, callee: NameAttrList | OpDef, escaping: set[str]
    ) -> frozenset[str]:
        """Return the names of a callee's results that escape as results of the calling node."""
        results = self._functions[callee.name].signature.output_arg
        return frozenset(
            result.name
            for i, result in enumerate(results)
            if escaping & {f"{node.name}:output:{i}", f"{node.name}:{result.name}:0"}
        )

    def _returned(self, function: FunctionDef, results: Iterable[str]) -> set[str]:
        """Return the values behind the named results, if one may be a tape residual's handle."""
        if not self._may_record:
            return set()
        identities = {
            f"{node.name}:output:{i}": value
            for node in defs.nodes_of(function, op_kinds.IDENTITIES)
            for i, value in enumerate(node.input)
        }
        returned = [function.ret[name] for name in results]
        return set(reach(returned, lambda v: [identities[v]] if v in identities else ()))

    def _consumed(self, function: FunctionDef) -> set[str]:
        """Return the values that have users, if one may be a tape residual's handle."""
        if not self._may_record or not defs.nodes_of(function, {op_kinds.EAGER_PY_FUNC}):
            return set()
        consumed = set(function.ret.values())
        for node in function.node_def:
            consumed.update(node.input[:])
        return consumed

    def _copy_callee(self, node: NodeDef, caller: str) -> FunctionDef:
        """Return a copy of the function that a plain call calls, for this call alone."""
        self._inlined += 1
        self._refuse(_TOO_MANY, self._inlined, _MOST_COPIES)
        name = node.attr["f"].func.name if node.op in op_kinds.CALL_OPS else node.op
        copy = self._copy(name, f"{caller}__{node.name}".replace("/", "__"))
        self._functions[copy.signature.name] = self._functions[name]
        # The names of the tokens are right only if the body is inlined.
        copy.attr.pop("_noinline", None)
        if node.op in op_kinds.CALL_OPS:
            node.attr["f"].func.name = copy.signature.name
            node.attr["f"].func.attr.pop("_noinline", None)
        else:
            node.op = copy.signature.name
        return copy

    def _copy(self, name: str, new_name: str) -> FunctionDef:
        copy = self.ordered.function.add()
        copy.CopyFrom(self._functions[name])
        copy.signature.name = new_name
        return copy


def _chain(node: NodeDef, last: str, token: str) -> str:
    node.attr[_TOKEN_INPUTS].list.s[:] = [last.encode()]
    node.attr[_TOKEN_NAME].s = token.encode()
    return token


def _chain_effect(node: NodeDef, last: str, token: str) -> str:
    if attributes.AFTER_EFFECTS in node.attr:
        # Its operand orders it, so that a loop before it is alone with its effects.
        _chain(node, _UNIT_TOKEN, token)
        return last
    return _chain(node, last, token)


_INTEGER = "hostcall_order"  # the argument and the result that barriers write


def _barrier(function: FunctionDef, name: str, value: str) -> NodeDef:
    return function.node_def.add(name=name, op="HostcallOrder", input=[value])


def _place(node: NodeDef) -> _Carried:
    """Return where a loop or branch takes and returns the integer of its barriers."""
    if node.op not in op_kinds.LOOP_OPS:
        taken = node.attr["Tin"].list.type
        return _Carried(control_flow.before_resources(taken), len(node.attr["Tout"].list.type))
    position = control_flow.before_resources(node.attr["T"].list.type)
    return _Carried(position, position)


def _between_barriers(function: FunctionDef, node: Any, place: _Carried) -> list[Any]:
    """Let a loop or branch carry the integer from one barrier to another; return all three."""
    number = tf.make_tensor_proto(0, tf.int32)
    zero = function_edits.constant(f"{node.name}/hostcall_zero", number)
    function.node_def.append(zero)
    before = _barrier(function, f"{node.name}/hostcall_before", f"{zero.name}:output:0")
    begin = f"{before.name}:output:0"
    if node.op in op_kinds.LOOP_OPS:
        end = control_flow.carry_through(function, node, begin, defs.INT32)
    else:
        node.input.insert(place.argument + 1, begin)  # the first input selects the branch
        node.attr["Tin"].list.type.insert(place.argument, defs.INT32)
        end = control_flow.add_result(node, defs.INT32)
    after = _barrier(function, f"{node.name}/hostcall_after", end)
    return [before, node, after]


def _carry(function: FunctionDef, carried: _Carried, previous: Any, last: str) -> Any | None:
    """Carry the integer in a function; return the barrier at its end, if it has one."""
    function_edits.insert_argument(function, carried.argument, _INTEGER, defs.INT32)
    if carried.result is None:
        return None
    function_edits.insert_result(function, carried.result, _INTEGER, defs.INT32)
    function.ret[_INTEGER] = _INTEGER
    if previous is None:
        return None
    end = _barrier(function, "hostcall_end", _INTEGER)
    _chain(end, last, end.name)
    end.input.append(f"^{previous.name}")
    function.ret[_INTEGER] = f"{end.name}:output:0"
    return end
