"""Program order: rewrites a function so that side effects keep their order in XLA.

TensorFlow puts one behind the stateful ops of a function, for the results to wait for. XLA has no
use for it, and the constant folding before it takes an op without operands for a constant: for its
sake it runs all constants of the function, and makes them anew. In a function of 20,000 constants
that takes half a second.

XLA there has a loop or a branch wait for the values that it takes, and not for tokens. So one that
calls Python may begin before the calls in front of it have ended, and calls behind it before it has
ended. Where a unit (see `ordering.py`) holds such a loop or branch beside other calls with side
effects, it is a host op, between whose clusters TensorFlow keeps the order.

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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall import _versions
from hostcall._callbacks.tape_residuals import Recording
from hostcall._compiler import control_flow
from hostcall._compiler.control_flow import compare_results
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.function_defs import CALL_OPS, CONTROL_FLOW_OPS, callees, nodes_of, program_order
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NameAttrList, NodeDef, OpDef
from hostcall_runtime._errors import LoweringError


class Effects:
    """What is known of the side effects of some functions.

    Args:
      functions: FunctionDefs by name.
      of_op: whether an op has some itself, by its NodeDef. If left out: some that happen in the
        order of the program.
      ops: the types of the ops that may have some.
    """

    def __init__(
        self,
        functions: Mapping[str, Any],
        of_op: Callable[[Any], bool] = op_kinds.is_ordered,
        ops: Collection[str] = op_kinds.ORDERED_OPS,
    ) -> None:
        self._functions = functions
        self._of_op = of_op
        self._ops = ops
        self._found: dict[str, bool] = {}

    def of_function(self, name: str) -> bool:
        """Whether a function reaches such an op."""
        if name not in self._found:
            self._found[name] = False  # what a function that calls itself finds
            function = self._functions.get(name)
            self._found[name] = function is not None and (
                any(map(self._of_op, defs.nodes_of(function, self._ops)))
                or any(map(self.of_callees, defs.calls_in(function, self._functions)))
            )
        return self._found[name]

    def of_callees(self, node: NodeDef) -> bool:
        """Whether what a node calls does."""
        return any(map(self.of_function, defs.called_functions(node, self._functions)))

    def of_node(self, node: NodeDef) -> bool:
        """Whether a node has effects, or what it calls."""
        return self._of_op(node) or self.of_callees(node)

    def chain(self, function: Any) -> Any | None:
        """Add a control edge from each node that has effects to the next; return the last one.

        Tracing leaves them out before a loop or a branch that uses a variable. There are none
        between the loops and branches of TensorFlow 1, nor out of them.

        Args:
          function: a FunctionDef, changed in place.
        """
        previous = None
        if defs.has_frames(function):
            return previous
        for node in defs.program_order(function):
            if self.of_node(node):
                if previous is not None and f"^{previous.name}" not in node.input:
                    node.input.append(f"^{previous.name}")
                previous = node
        return previous


def bypass(function: FunctionDef) -> None:
    """Lets whatever waits for a NoOp wait for what the NoOp waits for.

    One with several inputs and several users stays: there would be more edges without it.

    Args:
      function: a FunctionDef, changed in place.
    """
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
    """The nodes that wait for each of some control inputs."""
    users: dict[str, list[Any]] = {control: [] for control in controls}
    for node in function.node_def:
        inputs = node.input
        if not inputs or inputs[-1][0] != "^":  # control inputs come last
            continue
        for value in inputs:
            if value in users:
                users[value].append(node)
    return users


def marked(library: FunctionDefLibrary, entry: str) -> FunctionDefLibrary:
    """A library whose loops and branches say that XLA would not keep the order of their calls.

    Args:
      library: a FunctionDefLibrary with all that the function reaches.
      entry: the name of the function.

    Returns:
      A copy where there are such loops or branches, else the same.
    """
    if is_kept(library, entry):
        return library
    copy: FunctionDefLibrary = protos.copy_of(library)
    for node in Units(copy).losing(entry):
        node.attr[attributes.LOSES_ORDER].b = True
    return copy


def is_kept(library: FunctionDefLibrary, entry: str) -> bool:
    """Whether XLA keeps the order of all calls of a function that becomes one program.

    Args:
      library: a FunctionDefLibrary with all that it reaches.
      entry: its name.
    """
    return _versions.keeps_order(tf.__version__) or not any(Units(library).losing(entry))


class Units:
    """The units of a function, and what has side effects in each.

    Args:
      library: a FunctionDefLibrary with all that the function reaches.
    """

    def __init__(self, library: FunctionDefLibrary) -> None:
        self._functions: dict[str, FunctionDef] = {f.signature.name: f for f in library.function}
        self._effects = Effects(self._functions)

    def losing(self, entry: str) -> Iterator[NodeDef]:
        """The loops and branches whose calls may change places with others of their unit."""
        pending, seen = [entry], {entry}
        while pending:
            effects = [*self._unit(pending.pop(), frozenset())]
            flow = [node for node in effects if node.op in defs.CONTROL_FLOW_OPS]
            if len(effects) > 1 or any(map(self._condition_has_effect, flow)):
                yield from flow
            for node in flow:
                called = defs.called_functions(node, self._functions)
                pending.extend(name for name in dict.fromkeys(called) if name not in seen)
                seen.update(called)

    def _unit(self, name: str, inside: frozenset[str]) -> Iterator[NodeDef]:
        """What has side effects in a unit, with what plain calls inline into it."""
        if name in inside or name not in self._functions:
            return
        for node in self._functions[name].node_def:
            if op_kinds.is_ordered(node):
                yield node
            elif self._effects.of_callees(node):
                if node.op in defs.CONTROL_FLOW_OPS:
                    yield node
                    continue
                for callee in defs.called_functions(node, self._functions):
                    yield from self._unit(callee, inside | {name})

    def _condition_has_effect(self, node: NodeDef) -> bool:
        """Whether a loop's condition does: it is computed before the loop, too."""
        return "cond" in node.attr and self._effects.of_function(node.attr["cond"].func.name)


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
        bypass(function)
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
        self._functions = control_flow.carry(known, self._effects.of_function, self._entry)
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
