"""Program order: the rewriting of a function before XLA compiles it.

XLA keeps a call that has a side effect, but runs independent ones in any order. What orders them is
a token: a value that each call takes from the one before it. TensorFlow's bridge to XLA threads
tokens through loops and conditionals by itself once two attributes say who follows whom. Writing
those attributes is what this module does, on copies of the function and of all that it reaches.

A *unit* is what the bridge compiles as one computation: the function itself, the body and the
condition of a loop, the branch of a conditional. Each unit begins with a token of its own. A plain
call is inlined into the unit that it stands in, so that its ops follow those of the caller; a
function that is called twice needs a copy for each call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hostcall._callbacks.recording import Recording
from hostcall._compiler import loop_conditions, no_ops
from hostcall._compiler.branch_results import compare_results
from hostcall._compiler.effects import Effects
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf.function_defs import (
    CALL_OPS,
    CONTROL_FLOW_OPS,
    callees,
    nodes_of,
    program_order,
)
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NameAttrList, NodeDef, OpDef
from hostcall_runtime._errors import LoweringError

# As many calls as are inlined into one program; XLA takes hours for fewer.
_MOST_COPIES = 50_000
# As many as TensorFlow inlines in one another. Stock TensorFlow crashes where there are more.
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

# Read by TensorFlow (tf2xla/side_effect_util.h).
_TOKEN_INPUTS = "_xla_token_input_nodes"
_TOKEN_NAME = "_xla_original_oc_node_name"
_UNIT_TOKEN = "_xla_token_arg_node"

# What may have side effects or call what does, beside the functions that are ops.
_EFFECT_OPS = op_kinds.ORDERED_OPS | CONTROL_FLOW_OPS | CALL_OPS

# Of the names of new functions.
SUFFIX = "__hostcall"


def order_side_effects(
    library: FunctionDefLibrary, entry: str, suffix: str = SUFFIX
) -> tuple[Any, str]:
    """Writes the order of side effects into copies of a function and of all that it reaches.

    Args:
      library: a FunctionDefLibrary that holds them.
      entry: the name of the function.
      suffix: of the names of the new functions. TensorFlow keeps them by their names, so that who
        prepares a library in another way takes another one.

    Returns:
      A FunctionDefLibrary with the new functions, and the name of the one that takes the place of
      `entry`. The same input gives the same output, names included.
    """
    orderer = _Orderer(library, suffix)
    name = orderer.entry(entry)
    for function in orderer.ordered.function:
        no_ops.bypass(function)
    return orderer.ordered, name


class _Branches(NamedTuple):
    """A conditional: the name of its node, and of the functions that are its branches."""

    node: str
    functions: tuple[str, ...]


class _Orderer:
    def __init__(self, library: FunctionDefLibrary, suffix: str) -> None:
        self._suffix = suffix
        self._functions = {function.signature.name: function for function in library.function}
        self._units: dict[tuple[str, frozenset[str], _Branches | None], str] = {}
        self._effects = Effects(self._functions)
        self._may_record = any(nodes_of(f, {op_kinds.EAGER_PY_FUNC}) for f in library.function)
        self._entry = ""
        self._tracks_run = False
        self._is_cluster = False
        self._inlined = 0
        self._level = 0
        self.ordered = protos.function_pb2.FunctionDefLibrary()

    def entry(self, name: str) -> str:
        """The name of the ordered copy of the whole program."""
        self._entry = f"{name}{self._suffix}"
        known = self._functions
        self._functions = loop_conditions.carry(known, self._effects.of_function, self._entry)
        added = [new for new in self._functions if new not in known]
        if added:
            self._effects = Effects(self._functions)
        for new in added:
            if not self._effects.of_function(new):
                self._copy(new, new)  # the others are copied when they are called
        function = self._copy(name, self._entry)
        self._is_cluster = attributes.CLUSTER in function.attr
        self._order(function, "", _UNIT_TOKEN, self._returned(function, function.ret))
        function.attr[attributes.TRACKS_RUN].b = self._tracks_run
        new_name: str = function.signature.name
        return new_name

    def _unit(self, name: str, escaping: frozenset[str], compared: _Branches | None) -> str:
        """The name of the ordered copy of a loop's body or condition, or of a branch."""
        key = (name, escaping, compared)
        if key not in self._units:
            # Two programs may reach the same function, and need different copies of it.
            self._units[key] = f"{self._entry}__{len(self._units)}_{name}"
            function = self._copy(name, self._units[key])
            level, self._level = self._level, 0
            self._order(function, "", _UNIT_TOKEN, self._returned(function, escaping))
            self._level = level
            if compared is not None:
                compare_results(function, *compared)
        return self._units[key]

    def _order(self, function: FunctionDef, path: str, last: str, escaping: set[str]) -> str:
        """Chains the ops of `function`, from the token named `last`; returns the new last one.

        Args:
          function: the FunctionDef, changed in place.
          path: what inlining will put before the names of its nodes.
          last: the name of the token to begin with.
          escaping: the values in it that become results of the whole program.
        """
        consumed = self._consumed(function)
        previous: Any = None
        for node in self._effects_of(function):
            token = f"{path}{node.name}"
            if op_kinds.is_ordered(node):
                last = _chain(node, last, token)
                self._mark_recording(node, consumed, escaping)
            elif node.op in CONTROL_FLOW_OPS:
                compared = _branches_of(node)
                for callee in callees(node):
                    returned = self._escaping_of(node, callee, escaping)
                    callee.name = self._unit(callee.name, returned, compared)
                last = _chain(node, last, token)
            else:
                copy = self._copy_callee(node, function.signature.name)
                returned = self._escaping_of(node, copy.signature, escaping)
                self._level += 1
                self._refuse(_TOO_DEEP, self._level, _MOST_LEVELS)
                last = self._order(copy, f"{token}/", last, self._returned(copy, returned))
                self._level -= 1
            # The bridge looks tokens up while it goes through the graph in an order of its own.
            if previous is not None and f"^{previous.name}" not in node.input:
                node.input.append(f"^{previous.name}")
            previous = node
        if previous is not None:
            _return_control(function, previous.name)
        return last

    def _effects_of(self, function: FunctionDef) -> list[Any]:
        """The nodes of a function that have side effects, or call what does, in their order."""
        known = self._functions
        may_have_some = [n for n in function.node_def if (op := n.op) in _EFFECT_OPS or op in known]
        found = [
            node
            for node in may_have_some
            if op_kinds.is_ordered(node) or self._effects.of_callees(node)
        ]
        if len(found) < 2:
            return found
        names = {node.name for node in found}
        return [node for node in program_order(function) if node.name in names]

    def _refuse(self, why: str, count: int, most: int) -> None:
        if count > most:
            entry = self._entry.removesuffix(self._suffix)
            raise LoweringError(why.format(entry=entry, most=most))

    def _mark_recording(self, node: NodeDef, consumed: set[str], escaping: set[str]) -> None:
        if node.op != op_kinds.EAGER_PY_FUNC:
            return
        hidden = f"{node.name}:output:{len(node.attr['Tout'].list.type) - 1}"
        recording = Recording.NO
        if hidden in escaping:
            recording = Recording.CLUSTER if self._is_cluster else Recording.ESCAPING
        elif hidden in consumed:
            recording = Recording.RUN
        node.attr[attributes.RECORD].i = recording
        self._tracks_run |= recording is not Recording.NO

    def _escaping_of(
        self, node: NodeDef, callee: NameAttrList | OpDef, escaping: set[str]
    ) -> frozenset[str]:
        """The results of a callee, by name, that escape as results of the node that calls it."""
        results = self._functions[callee.name].signature.output_arg
        return frozenset(
            result.name
            for i, result in enumerate(results)
            if escaping & {f"{node.name}:output:{i}", f"{node.name}:{result.name}:0"}
        )

    def _returned(self, function: FunctionDef, results: Iterable[str]) -> set[str]:
        """The values that become the named results, if one of them may be a tape's."""
        return _values_of(function, results) if self._may_record else set()

    def _consumed(self, function: FunctionDef) -> set[str]:
        """The values that something takes, if one of them may be a tape's."""
        if not self._may_record or not nodes_of(function, {op_kinds.EAGER_PY_FUNC}):
            return set()
        consumed = set(function.ret.values())
        for node in function.node_def:
            consumed.update(node.input)
        return consumed

    def _copy_callee(self, node: NodeDef, caller: str) -> Any:
        """A copy of the function that a plain call calls, for this call alone."""
        self._inlined += 1
        self._refuse(_TOO_MANY, self._inlined, _MOST_COPIES)
        name = node.attr["f"].func.name if node.op in CALL_OPS else node.op
        copy = self._copy(name, f"{caller}__{node.name}".replace("/", "__"))
        self._functions[copy.signature.name] = self._functions[name]
        # The names of the tokens count on the body being inlined.
        copy.attr.pop("_noinline", None)
        if node.op in CALL_OPS:
            node.attr["f"].func.name = copy.signature.name
            node.attr["f"].func.attr.pop("_noinline", None)
        else:
            node.op = copy.signature.name
        return copy

    def _copy(self, name: str, new_name: str) -> Any:
        copy = self.ordered.function.add()
        copy.CopyFrom(self._functions[name])
        copy.signature.name = new_name
        return copy


def _branches_of(node: NodeDef) -> _Branches | None:
    if node.op not in op_kinds.BRANCH_OPS:
        return None
    return _Branches(node.name, tuple(callee.name for callee in callees(node)))


def _chain(node: NodeDef, last: str, token: str) -> str:
    node.attr[_TOKEN_INPUTS].list.s[:] = [last.encode()]
    node.attr[_TOKEN_NAME].s = token.encode()
    return token


def _return_control(function: FunctionDef, name: str) -> None:
    """Makes whatever follows a call of `function` follow the node, too."""
    if name not in function.control_ret.values():
        function.control_ret[name] = name
        function.signature.control_output.append(name)


def _values_of(function: FunctionDef, results: Iterable[str]) -> set[str]:
    """The values of a function that become the named results, straight or through identities."""
    identities = {
        f"{node.name}:output:{i}": value
        for node in nodes_of(function, op_kinds.IDENTITIES)
        for i, value in enumerate(node.input)
    }
    values = {function.ret[name] for name in results}
    pending = list(values)
    while pending:
        value = identities.get(pending.pop())
        if value is not None and value not in values:
            values.add(value)
            pending.append(value)
    return values
