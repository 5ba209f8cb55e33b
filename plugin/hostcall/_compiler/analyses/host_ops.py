"""Selection of the nodes that stay on the host, with a reason for each.

XLA wants to know some operands when it compiles: the begin of a slice, the length of a range, the
axis of a sum. If such an operand depends on data, TensorFlow keys the cluster, with all the work in
it, on every value that the operand is computed from. So the op, which rarely takes much time, runs
on the host.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hostcall._compiler.analyses import node_places, turns
from hostcall._compiler.analyses.effects import Effects
from hostcall._compiler.analyses.varying import VaryingValues
from hostcall._compiler.route_selection import Choice
from hostcall._ops import settings
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import AnyNode, FunctionDef, NodeDef
from hostcall_runtime._errors import LoweringError
from hostcall_runtime._scheduling import Side

# Ops that compute indices and sizes. They take less time than starting a program.
_INDEX_OPS = frozenset(
    {"AddV2", "Cast", "ConcatV2", "ExpandDims", "Identity", "Maximum", "Minimum", "Mul", "Pack"}
    | {"Reshape", "Shape", "Squeeze", "StridedSlice", "Sub"}
)

_REASON = "XLA wants to know operand '{operand}' when it compiles, and it depends on data"


class _DataConstants:
    """The ops with data-dependent operands that XLA wants to know when it compiles."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions

    @functools.cached_property
    def _varying(self) -> VaryingValues:
        return VaryingValues(self._functions)

    def reason(self, function: str, node: NodeDef) -> str:
        """Return the reason why a node is for the host, or an empty text."""
        operands = self._operands(function, node)
        return _REASON.format(operand=_operand_name(node, operands[0])) if operands else ""

    def index_nodes(self, function: FunctionDef, found: set[str]) -> set[str]:
        """Return the nodes that compute operands of those found, and are too small to compile."""
        nodes = {node.name: node for node in function.node_def}

        def index_ops(values: Iterable[str]) -> Iterator[str]:
            names = map(defs.source, values)
            return (name for name in names if name in nodes and nodes[name].op in _INDEX_OPS)

        starts = [
            nodes[name].input[i]
            for name in found
            for i in self._operands(function.signature.name, nodes[name])
        ]
        computing = reach(index_ops(starts), lambda name: index_ops(defs.data_inputs(nodes[name])))
        return set(computing) - found

    def _operands(self, function: str, node: NodeDef) -> list[int]:
        if node.op.startswith("Xla") or node.op in self._functions or defs.callees(node):
            return []  # only XLA has a kernel, or the called functions are checked
        operands = op_kinds.constant_operands(node)
        # Lists cannot leave a compiled program, so all their users would have to move too.
        if not operands or defs.handles(node, defs.VARIANT, self._functions):
            return []
        return [i for i in operands if self._varying.includes(function, node.input[i])]


def _operand_name(node: NodeDef, position: int) -> str:
    """Return the name that an op has for its operand at a position."""
    definition = op_kinds.op_def(node.op)
    for argument in definition.input_arg:
        count = len(defs.types_of(node, definition, argument))
        if position < count:
            return str(argument.name)
        position -= count
    return str(position)


_MADE_UP = frozenset({"FakeParam"})
# Reads of values that loops keep for their gradients, made up or not.
_LIST_READS = frozenset({"TensorListPopBack", "TensorListGetItem", "TensorListStack"})
# Marks of nodes that must be on the host in any case.
_FOR_HOST = (attributes.BLOCKER, attributes.WRONG)
# Marks of nodes that may have to be on the host.
_ON_HOST = (*_FOR_HOST, attributes.ROUTE, attributes.BRANCHES_DIFFER)

_ENDS_PROCESS = (
    "hostcall: the branches of op '{node}' return different shapes, and hold calls with side "
    "effects. XLA ends the process for that. Let the branches return equal shapes, call with "
    "stateful=False, or let the function be partitioned: with route='auto'."
)
_NOT_RIGHT = (
    "hostcall: op '{node}' ({op}){where} cannot be in one program: {reason}. Let the function be "
    "partitioned: with route='auto' and hostcall.configure(uncompilable='partition')."
)


@dataclasses.dataclass(frozen=True)
class Findings:
    """The findings about the nodes of one function."""

    reasons: dict[str, str]  # the nodes that are not compiled, by name, each with the reason
    # The nodes and arguments whose values may be made up. For gradients a branch returns values of
    # every branch, and on the host TensorFlow makes up values of any shape for the branches not
    # taken. Only the gradient of a branch not taken uses them. It does not run, but XLA would
    # compile it.
    made_up: set[str]
    # The nodes in `reasons` that XLA would compile for each value that they get.
    data_constants: set[str] = dataclasses.field(default_factory=set)
    # The nodes that compute these values, and may run on the host or in a cluster.
    index_nodes: set[str] = dataclasses.field(default_factory=set)


def _is_in_order(node: NodeDef) -> bool:
    return op_kinds.has_effect(node) or turns.takes_turns(node)


class Rules(NamedTuple):
    """The rules by which nodes are for the host, on the device of a function."""

    choose: Callable[[Any], Choice]  # returns the route of a script op
    has_kernel: Callable[[Any], bool]  # returns whether XLA can compile a node's op
    marked: Callable[[Any], bool]  # returns whether a node must be on the host in any case
    everything: bool = True  # whether `marked` may be true of nodes without a requested route


class HostOps:
    """The nodes of some functions that are for the host."""

    def __init__(self, functions: Mapping[str, Any], rules: Rules) -> None:
        self._functions = functions
        self.choose = rules.choose  # returns the route of a script op
        self._has_kernel, self._marked = rules.has_kernel, rules.marked
        self._data_constants = _DataConstants(functions)
        # Few functions have marks. Searching their bytes takes a tenth of the time.
        texts = [function.SerializePartialToString() for function in functions.values()]
        marks = [m for m in _ON_HOST if any(m.encode() in text for text in texts)]
        self._marks = [m for m in _FOR_HOST if m in marks]
        # Whether `check_whole` may raise an error.
        self.may_go_wrong = bool(self._marks) or attributes.BRANCHES_DIFFER in marks
        kinds = None if marks or rules.everything else op_kinds.SCRIPT_OPS
        self._must = Effects(functions, self._must_be_on_host, kinds)
        self._effects = Effects(functions, op_kinds.has_effect)
        # The nodes whose calls of Python run one at a time.
        self.in_order = Effects(functions, _is_in_order, op_kinds.SCRIPT_OPS)
        self._branches = Effects(functions, None, op_kinds.BRANCH_OPS)
        self._made_up = Effects(functions, None, _MADE_UP)
        self._obstacles: dict[tuple[str, bool], str] = {}
        self._data_reasons: dict[str, str] = {}

    def must_partition(self, name: str) -> bool:
        """Return whether a function reaches a node that must be on the host."""
        return self._must.of_function(name)

    def _must_be_on_host(self, node: NodeDef) -> bool:
        if node.op in op_kinds.SCRIPT_OPS:
            return self.choose(node).route == "partition"
        if self._marked(node) or self._ends_process(node):
            return True
        return any(mark in node.attr for mark in self._marks)

    def _ends_process(self, node: NodeDef) -> bool:
        """Return whether XLA ends the process when it compiles a node."""
        # If branches return different shapes, XLA looks for the largest shape. The token among
        # their results has none.
        return attributes.BRANCHES_DIFFER in node.attr and self._effects.of_node(node)

    def check_whole(self) -> None:
        """Raise a LoweringError if a function that is compiled whole would go wrong."""
        for name, function in self._functions.items():
            for node in function.node_def:
                if self._ends_process(node):
                    raise LoweringError(_ENDS_PROCESS.format(node=node.name))
                self._check_right(name, node)

    def _check_right(self, function: str, node: NodeDef) -> None:
        """Check that XLA gets a node right; script ops are reported elsewhere."""
        for mark in _FOR_HOST:
            reason = protos.text(node, mark)
            if reason and node.op not in op_kinds.SCRIPT_OPS:
                where = node_places.describe_place(self._functions, function, node.name, node.op)
                raise LoweringError(
                    _NOT_RIGHT.format(node=node.name, op=node.op, where=where, reason=reason)
                )

    def find(self, function: FunctionDef, after_branch: bool = False) -> Findings:
        """Find the nodes of a function that are not compiled."""
        # After a branch, its arguments may be made up, as those of a gradient: see Findings.
        if defs.has_frames(function):
            reason = "TensorFlow 1's loops and branches are not partitioned"
            return Findings({node.name: reason for node in function.node_def}, set())
        reasons = {}
        for node in function.node_def:
            reason = self._obstacle(node, inside_loop=False)
            if not reason and defs.handles(node, defs.STRING, self._functions):
                reason = "it works on strings"
            if reason:
                reasons[node.name] = reason
        made_up = {arg.name for arg in function.signature.input_arg} if after_branch else set()
        for node in defs.program_order(function):
            takes = any(defs.source(value) in made_up for value in defs.data_inputs(node))
            if takes and node.name not in reasons and self._branches.of_node(node):
                reasons[node.name] = "its branches take values of branches that were not taken"
            makes_up = node.name in reasons and self._made_up.of_node(node)
            if makes_up or node.op in _LIST_READS or (takes and node.op in op_kinds.IDENTITIES):
                made_up.add(node.name)
        found = {
            node.name: reason
            for node in function.node_def
            if node.name not in reasons
            and (reason := self._data_constant(function.signature.name, node))
        }
        reasons.update(found)
        index_nodes = self._data_constants.index_nodes(function, {*found}) - reasons.keys()
        return Findings(reasons, made_up, {*found}, index_nodes)

    def _data_constant(self, function: str, node: NodeDef) -> str:
        """Return why a node, or one that it reaches, would recompile its cluster for each value."""
        if node.op in op_kinds.LOOP_OPS:
            return ""  # a compiled loop is not divided for it
        for name in self._called(node):
            if name not in self._data_reasons:
                self._data_reasons[name] = ""
                found = (self._data_constant(name, inner) for inner in self._nodes(name))
                self._data_reasons[name] = next(filter(None, found), "")
            if reason := self._data_reasons[name]:
                return f"in {name}: {reason}"
        return self._data_constants.reason(function, node)

    def _obstacle(self, node: NodeDef, inside_loop: bool) -> str:
        """Return the reason why a node is not compiled, or an empty text."""
        if reason := self.own_obstacle(node, inside_loop):
            return reason
        for name in self._called(node):
            if self.must_partition(name):
                return f"it calls {name}, which is partitioned"
            loop = inside_loop or node.op in op_kinds.LOOP_OPS
            if reason := self.obstacle_in(name, inside_loop=loop):
                return reason
        return ""

    def own_obstacle(self, node: NodeDef, inside_loop: bool) -> str:
        """Return the reason in a node itself why it is not compiled, or an empty text."""
        if node.op in op_kinds.SCRIPT_OPS:
            choice = self.choose(node)
            return choice.reason if choice.route == "partition" else ""
        if self._ends_process(node):
            return "its branches return different shapes, and hold calls with side effects"
        for mark in (attributes.REFUSED, attributes.BLOCKER, attributes.WRONG):
            if reason := protos.text(node, mark):
                return reason
        if self._marked(node):
            return "route='partition' was asked for, and it has no XLA kernel"
        if node.op in op_kinds.CHECKS and settings.current.semantics == settings.XLA:
            # A compiled loop is not divided for it.
            return "" if inside_loop else f"XLA would drop the {op_kinds.CHECKS[node.op]}"
        if op_kinds.lets_list_grow(node):
            return "XLA would not let the list grow"
        if node.op not in self._functions and not self._has_kernel(node):
            return f"{node.op} has no XLA kernel for its types"
        return ""

    def obstacle_in(self, name: str, inside_loop: bool = False) -> str:
        """Return the reason why a function is not compiled as a whole, or an empty text."""
        key = (name, inside_loop)
        if key not in self._obstacles:
            self._obstacles[key] = ""
            for node in self._nodes(name):
                if reason := self._obstacle(node, inside_loop):
                    self._obstacles[key] = f"in {name}: {reason}"
                    break
        return self._obstacles[key]

    def _called(self, node: NodeDef) -> list[str]:
        return defs.called_functions(node, self._functions)

    def _nodes(self, name: str) -> Sequence[NodeDef]:
        function = self._functions.get(name)
        return () if function is None else function.node_def


_EITHER_OPS = op_kinds.IDENTITIES | {"NoOp"}


def place_of(node: AnyNode, host_ops: Container[str], either: Container[str] = ()) -> Side:
    """Return where a node may run, from the names of nodes that are for the host, or for either."""
    if node.name in host_ops:
        return Side.HOST
    return Side.EITHER if node.op in _EITHER_OPS or node.name in either else Side.COMPILED
