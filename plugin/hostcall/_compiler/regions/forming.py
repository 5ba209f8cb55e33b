"""Which ops on the host are one region: those that are connected, with nothing compiled between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostcall._compiler.partition import clustering
from hostcall._compiler.partition.clustering import Place
from hostcall._compiler.regions.references import data_inputs
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

_EITHER_OPS = op_kinds.IDENTITIES | {"NoOp"}

# They see what others have written, and TensorFlow does not call them stateful.
_FILE_OPS = frozenset({"ReadFile", "MatchingFiles"})


def regions_of(
    function: FunctionDef, host_ops: Iterable[str], functions: Mapping[str, Any]
) -> list[list[NodeDef]]:
    """The regions of a function, each with its nodes in an order in which they can run.

    Args:
      function: a FunctionDef.
      host_ops: the names of its nodes that have to be on the host.
      functions: those that it calls, by name.
    """
    wanted = set(host_ops)
    ordered = defs.program_order(function)
    # A constant that an op of a region takes is copied into that region.
    nodes = [node for node in ordered if node.op != "Const" or node.name in wanted]
    places = [_place(node, wanted) for node in nodes]
    before = defs.predecessors(nodes)
    steps = clustering.first_steps(places, before, [0] * len(nodes))
    is_member = [place is Place.HOST for place in places]
    _delay(function, nodes, before, steps, is_member, functions)
    _fill_gaps(before, steps, places, is_member)
    groups = _connected(before, steps, is_member)
    return [[nodes[i] for i in group] for group in groups]


def _place(node: NodeDef, wanted: set[str]) -> Place:
    if node.name in wanted:
        return Place.HOST
    return Place.EITHER if node.op in _EITHER_OPS else Place.COMPILED


def _delay(
    function: FunctionDef,
    nodes: Sequence[NodeDef],
    before: Sequence[Sequence[int]],
    steps: list[int],
    is_member: Sequence[bool],
    functions: Mapping[str, Any],
) -> None:
    """Moves ops without effects to the step of the first op that uses them, if that is a host op.

    The text that tf.print prints is made where it is printed, and not at the first occasion.
    """
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
    places: Sequence[Place],
    is_member: list[bool],
) -> None:
    """Takes identities between two ops of one step along, which would be a way out and back in."""
    follows = list(is_member)
    for i, place in enumerate(places):
        if place is Place.EITHER:
            follows[i] = any(follows[j] and steps[j] == steps[i] for j in before[i])
    leads = list(is_member)
    for i in reversed(range(len(places))):
        if leads[i]:
            for j in before[i]:
                leads[j] = leads[j] or (places[j] is Place.EITHER and steps[j] == steps[i])
    for i, place in enumerate(places):
        is_member[i] = is_member[i] or (place is Place.EITHER and follows[i] and leads[i])


def _connected(
    before: Sequence[Sequence[int]], steps: Sequence[int], is_member: Sequence[bool]
) -> list[list[int]]:
    """The members of each step, those together that wait for one another."""
    parents = list(range(len(steps)))

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i

    for i, sources in enumerate(before):
        for j in sources:
            if is_member[i] and is_member[j] and steps[i] == steps[j]:
                parents[root(i)] = root(j)
    groups: dict[int, list[int]] = {}
    for i in range(len(steps)):
        if is_member[i]:
            groups.setdefault(root(i), []).append(i)
    return list(groups.values())


def is_stateful(nodes: Iterable[NodeDef], types: defs.Types, resource: int) -> bool:
    """Whether a region of these nodes has effects, sees those of others, or waits for some."""
    return any(
        types.definition_of(node).is_stateful
        or node.op in _FILE_OPS
        or any(value.startswith("^") for value in node.input)
        or any(types.of(value) == resource for value in data_inputs(node))
        for node in nodes
    )
