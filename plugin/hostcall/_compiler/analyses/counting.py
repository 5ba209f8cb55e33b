"""Loops that count: which of them end whatever they compute, and which indices stay in range.

A loop counts if its condition compares an argument with a limit that stays, and its body adds a
positive constant to that argument. An element of a list whose place is the counter needs no check
if the list is as long as the loop counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hostcall._compiler.analyses import loops
from hostcall._compiler.analyses.sizes import Inferred, argument_shapes
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds, protos
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import FunctionDef, Functions, NodeDef

_Nodes = Mapping[str, Any]
_ELEMENT_OPS = frozenset({"TensorListGetItem", "TensorListSetItem"})
_PASSING = frozenset({"Identity", "HostcallList"})
_WRITES = _PASSING | {"TensorListSetItem"}
# The most nodes in which shapes are inferred for the length of a list.
_MOST_NODES = 100


class _Counter(NamedTuple):
    """An argument of a loop that counts up to a limit: a constant or another argument."""

    position: int
    step: float
    limit: float  # the constant, or the position of the argument
    is_constant: bool


def ends(condition: FunctionDef, body: FunctionDef) -> bool:
    """Return whether a loop ends whatever its iterations compute, since it counts them."""
    return any(True for _ in _counters(condition, body))


def elements_in_range(functions: Functions) -> set[tuple[str, str]]:
    """Return the nodes, by their functions and names, that take elements which are in a list."""
    with_elements = {n for n, f in functions.items() if defs.nodes_of(f, _ELEMENT_OPS)}
    inside: dict[str, set[str]] = {}
    for function in functions.values() if with_elements else ():
        for node in defs.calls_in(function, functions):
            for name in with_elements.intersection(defs.called_functions(node, functions)):
                found = {*_in_range(function, node, name, functions)}
                inside[name] = inside.get(name, found) & found  # it may be called by several
    return {(name, node) for name, found in inside.items() for node in found}


def _in_range(
    function: FunctionDef, call: NodeDef, name: str, functions: Functions
) -> Iterator[str]:
    """Yield the nodes of a loop's body whose elements are in their lists in each iteration."""
    if call.op not in op_kinds.LOOP_OPS or call.attr["body"].func.name != name:
        return
    condition, body = functions[call.attr["cond"].func.name], functions[name]
    counters = {counter.position: counter for counter in _counters(condition, body)}
    nodes = {node.name: node for node in body.node_def} if counters else {}
    places = {argument.name: i for i, argument in enumerate(body.signature.input_arg)}
    lengths = _Lengths(function, call, functions)
    for node in defs.nodes_of(body, _ELEMENT_OPS) if counters else ():
        counter = counters.get(places.get(_behind(node.input[1], nodes), -1))
        of_list = places.get(_behind(node.input[0], nodes, writes=True))
        if counter is None or of_list is None or counter.step != 1:  # others may wrap around
            continue
        result = body.ret[body.signature.output_arg[of_list].name]
        keeps_length = places.get(_behind(result, nodes, writes=True)) == of_list
        if keeps_length and lengths.hold(counter, of_list):
            yield node.name


class _Lengths:
    """The lengths of the lists that a loop of a function takes."""

    def __init__(self, function: FunctionDef, loop: NodeDef, functions: Functions) -> None:
        self._function = function
        self._inputs = defs.data_inputs(loop)
        self._functions = functions
        self._nodes = {node.name: node for node in function.node_def}

    def hold(self, counter: _Counter, of_list: int) -> bool:
        """Return whether a counter begins at 0 or later, and ends where a list does, or before."""
        begin = _constant(self._inputs[counter.position], self._nodes)
        made = _node(_behind(self._inputs[of_list], self._nodes, writes=True), self._nodes)
        if begin is None or begin < 0 or made is None:
            return False
        limit: float | None = counter.limit
        if not counter.is_constant:
            value = _behind(self._inputs[int(counter.limit)], self._nodes)
            if made.op == "TensorListReserve" and value == _behind(made.input[1], self._nodes):
                return True
            limit = _constant(value, self._nodes)
        return limit is not None and limit <= self._length(made)

    def _length(self, made: NodeDef) -> float:
        """Return the least length that a list has where it is made."""
        if made.op == "TensorListReserve":
            return _constant(made.input[1], self._nodes) or 0
        if made.op == "TensorListFromTensor":
            return self._rows(made.input[0])
        return 0

    def _rows(self, value: str) -> int:
        """Return the size of a value's first dimension, or 0."""
        needed = self._needed(value)
        if len(needed) > _MOST_NODES:
            return 0
        part: Any = protos.function_pb2.FunctionDef(signature=self._function.signature)
        part.node_def.extend(node for node in self._function.node_def if node.name in needed)
        inferred = Inferred(part, argument_shapes(self._function), self._functions)
        shape = inferred.shape(*inferred.position(value))
        return shape[0] if shape and isinstance(shape[0], int) else 0

    def _needed(self, value: str) -> set[str]:
        """Return the names of the nodes that a value is computed by, if these are not too many."""

        def operands(name: str) -> list[str]:
            return [defs.source(v) for v in defs.data_inputs(self._nodes[name])]

        def nodes(names: Iterable[str]) -> Iterator[str]:
            return filter(self._nodes.__contains__, names)

        found = reach(nodes([defs.source(value)]), lambda name: nodes(operands(name)))
        return set(itertools.islice(found, _MOST_NODES + 1))


def _counters(condition: FunctionDef, body: FunctionDef) -> Iterator[_Counter]:
    """Yield the arguments that a loop counts up while they are less than a limit."""
    nodes = {node.name: node for node in condition.node_def}

    def conjuncts(value: str) -> list[str]:
        node = _node(value, nodes)
        return defs.data_inputs(node) if node and node.op in {"Identity", "LogicalAnd"} else []

    for value in reach(condition.ret.values(), conjuncts):
        node = _node(value, nodes)
        if node and node.op == "Less" and (counter := _counter(node, nodes, condition, body)):
            yield counter


def _counter(
    less: NodeDef, nodes: _Nodes, condition: FunctionDef, body: FunctionDef
) -> _Counter | None:
    """Return the counter that is the first operand of a comparison with a limit that stays."""
    places = {argument.name: i for i, argument in enumerate(condition.signature.input_arg)}
    number, limit = (_behind(value, nodes) for value in defs.data_inputs(less))
    if number not in places or not (step := _step(body, places[number])):
        return None
    if limit in places:
        stays = places[limit] in loops.invariants(body)
        return _Counter(places[number], step, places[limit], is_constant=False) if stays else None
    constant = _constant(limit, nodes)
    return None if constant is None else _Counter(places[number], step, constant, is_constant=True)


def _step(body: FunctionDef, position: int) -> float:
    """Return the positive constant that a body adds to one of its arguments, or 0."""
    nodes = {node.name: node for node in body.node_def}
    node = _node(_behind(body.ret[body.signature.output_arg[position].name], nodes), nodes)
    if node is None or node.op not in {"Add", "AddV2"}:
        return 0
    operands = [_behind(value, nodes) for value in defs.data_inputs(node)]
    if body.signature.input_arg[position].name not in operands:
        return 0
    steps = [step for o in operands if (step := _constant(o, nodes)) is not None]
    return max([0, *steps])


def _constant(value: str, nodes: _Nodes) -> float | None:
    """Return the number that a value is, if it is a constant scalar."""
    array = defs.constant(_node(_behind(value, nodes), nodes))
    if array is None or array.shape or array.dtype.kind not in "iuf":
        return None
    number: float = array.item()
    return number


def _behind(value: str, nodes: _Nodes, writes: bool = False) -> str:
    """Return the value that is passed on as another one; `writes` to a list keep its length."""
    while (node := _node(value, nodes)) is not None and node.op in (
        _WRITES if writes else _PASSING
    ):
        value = node.input[0]
    return value


def _node(value: str, nodes: _Nodes) -> NodeDef | None:
    return nodes.get(defs.source(value))
