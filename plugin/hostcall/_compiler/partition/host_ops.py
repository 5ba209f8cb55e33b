"""Which nodes of a function stay on the host when it is partitioned, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import settings
from hostcall._compiler import node_places
from hostcall._compiler.effects import Effects
from hostcall._compiler.overlap import turns
from hostcall._compiler.partition.data_constants import DataConstants
from hostcall._compiler.route_selection import Choice
from hostcall._tf import attributes, op_kinds
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef
from hostcall_runtime._errors import LoweringError

_STRING = tf.string.as_datatype_enum
_MADE_UP = frozenset({"FakeParam"})
# What loops keep for their gradients, made up or not.
_LIST_READS = frozenset({"TensorListPopBack", "TensorListGetItem", "TensorListStack"})
# On a node that shall be on the host whatever else is.
_FOR_HOST = (attributes.HINDERED, attributes.LOSES_ORDER, attributes.WRONG)

_ENDS_PROCESS = (
    "hostcall: the branches of op '{node}' return different shapes, and hold calls with side "
    "effects. XLA ends the process for that. Let the branches return equal shapes, call with "
    "stateful=False, or let the function be partitioned: with route='auto'."
)
_NOT_RIGHT = (
    "hostcall: op '{node}' ({op}){where} cannot be in one program: {reason}. Let the function be "
    "partitioned: with route='auto' and hostcall.configure(uncompilable='partition')."
)
_LOSES_ORDER = (
    "hostcall: op '{node}' holds calls with side effects, and so does the function around it. XLA "
    "before TensorFlow 2.20 does not keep their order. Let the function be partitioned, with "
    "route='auto' and hostcall.configure(uncompilable='partition'), call with stateful=False, or "
    "install TensorFlow 2.20 or later."
)


@dataclasses.dataclass(frozen=True)
class Findings:
    """What has been found of the nodes of one function.

    Attributes:
      reasons: the nodes that are not compiled, by name, each with the reason.
      made_up: the nodes and arguments whose values may be made up. A branch returns what the
        gradient wants of every branch, and on the host TensorFlow makes up values of any shape for
        those that are not taken. Only the gradient of such a branch uses them, which does not run;
        but XLA would compile it.
      data_constants: those of the former that XLA would compile, for each value that they get.
      index_nodes: what computes such values, and may run wherever it wants to.
    """

    reasons: dict[str, str]
    made_up: set[str]
    data_constants: set[str] = dataclasses.field(default_factory=set)
    index_nodes: set[str] = dataclasses.field(default_factory=set)


def _is_in_order(node: NodeDef) -> bool:
    return op_kinds.has_effect(node) or turns.takes_turns(node)


class HostOps:
    """What of some functions is for the host.

    Args:
      functions: FunctionDefs by name: those to look into.
      choose: the route of a script op, by its NodeDef.
      has_kernel: whether XLA can compile an op, by its NodeDef.
      constant_operands: the positions of the operands of an op that XLA wants to know when it
        compiles, by its NodeDef.
      marked: whether a node shall be on the host whatever it is, by its NodeDef.

    Attributes:
      choose: as given.
      in_order: what calls Python in calls that run one at a time.
    """

    def __init__(
        self,
        functions: Mapping[str, Any],
        choose: Callable[[Any], Choice],
        has_kernel: Callable[[Any], bool],
        constant_operands: Callable[[Any], Sequence[int]],
        marked: Callable[[Any], bool],
    ) -> None:
        self._functions = functions
        self.choose = choose
        self._has_kernel = has_kernel
        self._data_constants = DataConstants(functions, constant_operands)
        self._marked = marked
        self._must: dict[str, bool] = {}
        # Few functions have any: in their bytes, that is seen in a tenth of the time.
        texts = [function.SerializePartialToString() for function in functions.values()]
        self._marks = [m for m in _FOR_HOST if any(m.encode() in text for text in texts)]
        self._effects = Effects(functions, op_kinds.has_effect)
        self.in_order = Effects(functions, _is_in_order, op_kinds.SCRIPT_OPS)
        self._reached: dict[tuple[str, frozenset[str]], bool] = {}
        self._obstacles: dict[tuple[str, bool], str] = {}
        self._data_reasons: dict[str, str] = {}

    def must_partition(self, name: str) -> bool:
        """Whether a function reaches a node that shall be on the host."""
        if name not in self._must:
            self._must[name] = False  # what a function that calls itself finds
            self._must[name] = any(map(self._must_be_on_host, self._nodes(name))) or any(
                map(self.must_partition, self._called_by(name))
            )
        return self._must[name]

    def _must_be_on_host(self, node: NodeDef) -> bool:
        if node.op in op_kinds.SCRIPT_OPS:
            return self.choose(node).route == "partition"
        if self._marked(node) or self._ends_process(node):
            return True
        return bool(self._marks) and any(mark in node.attr for mark in self._marks)

    def _ends_process(self, node: NodeDef) -> bool:
        """Whether XLA ends the process when it compiles a node.

        It looks for the largest shape among those that branches return, where these differ, and
        among what they return is a token, which has none.
        """
        return attributes.BRANCHES_DIFFER in node.attr and self._effects.of_node(node)

    def check_whole(self) -> None:
        """Makes sure that a function can be compiled whole.

        Raises:
          LoweringError: where the process would end, calls would lose their order, or XLA would get
            something wrong.
        """
        for name, function in self._functions.items():
            for node in function.node_def:
                if self._ends_process(node):
                    raise LoweringError(_ENDS_PROCESS.format(node=node.name))
                if attributes.LOSES_ORDER in node.attr:
                    raise LoweringError(_LOSES_ORDER.format(node=node.name))
                self._check_right(name, node)

    def _check_right(self, function: str, node: NodeDef) -> None:
        """Makes sure that XLA gets a node right; script ops are told of elsewhere."""
        for mark in (attributes.HINDERED, attributes.WRONG):
            if mark in node.attr and node.op not in op_kinds.SCRIPT_OPS:
                reason = node.attr[mark].s.decode()
                place = node_places.find(self._functions, function, node.name, node.op)
                where = f" at {place}" if place else ""
                raise LoweringError(
                    _NOT_RIGHT.format(node=node.name, op=node.op, where=where, reason=reason)
                )

    def find(self, function: FunctionDef, after_branch: bool = False) -> Findings:
        """The nodes of a function that are not compiled.

        Args:
          function: a FunctionDef.
          after_branch: whether its arguments may be made up, as those of a gradient: see Findings.
        """
        if defs.has_frames(function):
            reason = "TensorFlow 1's loops and branches are not partitioned"
            return Findings({node.name: reason for node in function.node_def}, set())
        reasons = self._reasons(function)
        made_up = {arg.name for arg in function.signature.input_arg} if after_branch else set()
        for node in defs.program_order(function):
            takes = any(defs.source(v) in made_up for v in node.input if not v.startswith("^"))
            if takes and node.name not in reasons and self._reaches(node, op_kinds.BRANCH_OPS):
                reasons[node.name] = "its branches take values of branches that were not taken"
            makes_up = node.name in reasons and self._reaches(node, _MADE_UP)
            if makes_up or node.op in _LIST_READS or (takes and node.op in op_kinds.IDENTITIES):
                made_up.add(node.name)
        constants = self._add_data_constants(function, reasons)
        index_nodes = self._data_constants.index_nodes(function, constants) - reasons.keys()
        return Findings(reasons, made_up, constants, index_nodes)

    def _add_data_constants(self, function: FunctionDef, reasons: dict[str, str]) -> set[str]:
        found = {
            node.name: reason
            for node in function.node_def
            if node.name not in reasons
            and (reason := self._data_constant(function.signature.name, node))
        }
        reasons.update(found)
        return set(found)

    def _data_constant(self, function: str, node: NodeDef) -> str:
        """Why a node, or one in what it calls, would have its cluster compiled for each value."""
        if node.op in op_kinds.LOOP_OPS:
            return ""  # a loop of compiled code is not taken apart for it
        for name in self._called(node):
            if name not in self._data_reasons:
                self._data_reasons[name] = ""
                found = (self._data_constant(name, inner) for inner in self._nodes(name))
                self._data_reasons[name] = next(filter(None, found), "")
            if reason := self._data_reasons[name]:
                return f"in {name}: {reason}"
        return self._data_constants.reason(function, node)

    def _reaches(self, node: NodeDef, ops: frozenset[str]) -> bool:
        """Whether a node, or one that it leads to, is one of some ops."""
        return node.op in ops or any(self._function_reaches(n, ops) for n in self._called(node))

    def _function_reaches(self, name: str, ops: frozenset[str]) -> bool:
        key = (name, ops)
        if key not in self._reached:
            self._reached[key] = False
            self._reached[key] = any(self._reaches(node, ops) for node in self._nodes(name))
        return self._reached[key]

    def _reasons(self, function: FunctionDef) -> dict[str, str]:
        found = {}
        for node in function.node_def:
            reason = self._obstacle(node, inside_loop=False)
            if not reason and defs.handles(node, _STRING, self._functions):
                reason = "it works on strings"
            if reason:
                found[node.name] = reason
        return found

    def _obstacle(self, node: NodeDef, inside_loop: bool) -> str:
        """Why a node is not compiled, if it is not."""
        if reason := self.own_obstacle(node, inside_loop):
            return reason
        for name in self._called(node):
            if self.must_partition(name):
                return f"it calls {name}, which is partitioned"
            loop = inside_loop or node.op in op_kinds.LOOP_OPS
            if reason := self.obstacle_in(name, inside_loop=loop):
                return reason
        return ""

    def own_obstacle(self, node: NodeDef, inside_loop: bool = False) -> str:
        """Why a node is not compiled for what it is itself, if it is not."""
        if node.op in op_kinds.SCRIPT_OPS:
            choice = self.choose(node)
            return choice.reason if choice.route == "partition" else ""
        if self._ends_process(node):
            return "its branches return different shapes, and hold calls with side effects"
        if attributes.LOSES_ORDER in node.attr:
            return "XLA before TensorFlow 2.20 does not keep the order of calls in it and beside it"
        for mark in (attributes.REFUSED, attributes.HINDERED, attributes.WRONG):
            if mark in node.attr:
                return str(node.attr[mark].s.decode())
        if self._marked(node):
            return "route='partition' was asked for, and it has no XLA kernel"
        if node.op in op_kinds.CHECKS:
            # A loop of compiled code is not taken apart for it.
            dropped = inside_loop and not settings.assertions()
            return "" if dropped else f"XLA would drop the {op_kinds.CHECKS[node.op]}"
        if op_kinds.lets_list_grow(node):
            return "XLA would not let the list grow"
        if node.op not in self._functions and not self._has_kernel(node):
            return f"{node.op} has no XLA kernel for its types"
        return ""

    def obstacle_in(self, name: str, inside_loop: bool = False) -> str:
        """Why a function is not compiled as a whole, if it is not."""
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

    def _called_by(self, name: str) -> Iterator[str]:
        """The names of the functions that a function calls."""
        function = self._functions.get(name)
        for node in () if function is None else defs.calls_in(function, self._functions):
            yield from self._called(node)

    def _nodes(self, name: str) -> Any:
        function = self._functions.get(name)
        return () if function is None else function.node_def
