"""Schedules of programs, whose nodes are numbers here: clusters, and calls that overlap.

Clusters are nodes that compile together, between nodes that run on the host. Time runs in steps:
the nodes of an even step are compiled as one cluster, those of an odd step run on the host, one by
one. Each node takes the first step after all nodes that it waits for, which have smaller numbers.
So independent chains share their clusters, and there are as many clusters as on the path with the
most changes between host and compiled code, which is the minimum.

Calls that overlap with other work begin early, and their results are taken late.
"""

from __future__ import annotations

import enum
import heapq
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

_T = TypeVar("_T", bound=Hashable)
_ROUNDS = 8  # how often groups may push each other to later steps before they are put on the host


class Side(enum.Enum):
    """The place where a node may run."""

    HOST = enum.auto()
    COMPILED = enum.auto()
    # Wherever its predecessors run: identities and the like.
    EITHER = enum.auto()


class Groups(Generic[_T]):
    """Items in disjoint groups: each is alone until it is united with another."""

    def __init__(self) -> None:
        self._parents: dict[_T, _T] = {}

    def root(self, item: _T) -> _T:
        """Return the item that stands for the group of an item."""
        parents = self._parents
        while (parent := parents.get(item, item)) != item:
            parents[item] = item = parents.get(parent, parent)
        return item

    def unite(self, one: _T, other: _T) -> None:
        """Make one group of those of two items."""
        self._parents[self.root(one)] = self.root(other)

    def of(self, items: Iterable[_T]) -> list[list[_T]]:
        """Divide items by their groups, and keep their order."""
        found: dict[_T, list[_T]] = defaultdict(list)
        for item in items:
            found[self.root(item)].append(item)
        return list(found.values())


def first_steps(
    places: Sequence[Side], predecessors: Sequence[Sequence[int]], floors: Sequence[int] = ()
) -> list[int]:
    """Return the step of each node, after its predecessors and its floor: even in a cluster."""
    steps: list[int] = []
    floors = floors or [0] * len(places)
    for place, before, floor in zip(places, predecessors, floors, strict=True):
        step = max(1, floor, *(steps[i] for i in before))
        if (place is Side.HOST and step % 2 == 0) or (place is Side.COMPILED and step % 2 == 1):
            step += 1
        steps.append(step)
    return steps


def sink(
    predecessors: Sequence[Sequence[int]], steps: Sequence[int], movable: Iterable[int]
) -> list[int]:
    """Move `movable` nodes that nothing in their clusters feeds to those of their first users."""
    may_move = {*movable}
    for _ in range(_ROUNDS):
        moved = _latest(predecessors, steps, may_move)
        fed = {
            i
            for i in may_move
            if moved[i] > steps[i] and any(moved[j] == steps[i] for j in predecessors[i])
        }
        if not fed:
            return moved
        may_move -= fed
    return list(steps)


def _latest(
    predecessors: Sequence[Sequence[int]], steps: Sequence[int], may_move: Collection[int]
) -> list[int]:
    """Return the last cluster that each node may be in, which is its own for those that stay."""
    end = max(steps, default=0) + 2
    latest = [end if i in may_move else step for i, step in enumerate(steps)]
    for i in reversed(range(len(steps))):
        if latest[i] == end:
            latest[i] = steps[i]  # unused
        # The last cluster before a host op has the preceding step.
        bound = latest[i] - latest[i] % 2
        for j in predecessors[i]:
            if j in may_move:
                latest[j] = min(latest[j], bound)
    return latest


def assign(
    places: Sequence[Side],
    predecessors: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    floors: Sequence[int] = (),
) -> list[int]:
    """Return the step of each node as `first_steps`, each group in one cluster or on the host."""
    places = list(places)
    given = floors or [0] * len(places)
    floors = list(given)
    for group in groups:
        on_host = any(places[i] is Side.HOST for i in group)
        for i in group:
            places[i] = Side.HOST if on_host else Side.COMPILED
    for _ in range(_ROUNDS):
        steps = first_steps(places, predecessors, floors)
        compiled = (group for group in groups if places[group[0]] is not Side.HOST)
        torn = [group for group in compiled if len({steps[i] for i in group}) > 1]
        if not torn:
            return steps
        for group in torn:
            latest = max(steps[i] for i in group)
            for i in group:
                floors[i] = latest
    # A path leads out of each torn group and back into it through the host.
    for i in (i for group in torn for i in group):
        places[i] = Side.HOST
    return assign(places, predecessors, groups, given)


# Kinds of steps, by priority: of several steps that are ready, `steps_of` takes the smallest kind.
BEGINS, _LEADS_TO_CALL, _OTHER, WAITS = range(4)
Step = tuple[int, int]


class Gate(NamedTuple):
    """A point before which some nodes run, and after which the results of some calls are taken."""

    awaited: list[int]  # in the order of the steps; each gate but the first awaits the one before
    calls: list[int]


def steps_of(before: Sequence[Collection[int]], calls: Collection[int]) -> list[Step]:
    """Return the steps of a program in an order that its edges allow."""
    # A call has two: it begins as early as possible, and is waited for as late as possible.
    after: list[list[int]] = [[] for _ in before]
    for i, sources in enumerate(before):
        for j in sources:
            after[j].append(i)
    leads_to_call = _ancestors(before, calls)
    missing = [len(sources) for sources in before]

    def when(i: int) -> int:
        if i in calls:
            return BEGINS
        return _LEADS_TO_CALL if i in leads_to_call else _OTHER

    ready = [(when(i), i) for i, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    steps = []
    while ready:
        kind, i = heapq.heappop(ready)
        steps.append((kind, i))
        if kind == BEGINS:
            heapq.heappush(ready, (WAITS, i))
            continue
        for j in after[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, (when(j), j))
    return steps


def _ancestors(before: Sequence[Collection[int]], of: Iterable[int]) -> set[int]:
    pending, found = list(of), set[int]()
    while pending:
        for j in before[pending.pop()]:
            if j not in found:
                found.add(j)
                pending.append(j)
    return found


def _overlapping(steps: Iterable[Step], beside: Collection[int]) -> set[int]:
    """Return the calls that overlap with another call or with a node of `beside`."""
    under_way: set[int] = set()
    found: set[int] = set()
    for kind, node in steps:
        if kind == BEGINS:
            if under_way:
                found |= {node, *under_way}
            under_way.add(node)
        elif kind == WAITS:
            under_way.remove(node)
        elif node in beside:
            found |= under_way
    return found


def gates_of(steps: Sequence[Step], beside: Collection[int]) -> list[Gate]:
    """Return the gates before the steps that wait for calls that overlap, also with `beside`."""
    overlapping = _overlapping(steps, beside)
    gates: list[Gate] = []
    awaited: list[int] = []  # since the last gate
    under_way = 0
    for kind, node in steps:
        if kind == BEGINS and node in overlapping:
            awaited.append(node)
            under_way += 1
        elif kind == WAITS and node in overlapping:
            if awaited:
                gates.append(Gate(awaited, []))
                awaited = []
            gates[-1].calls.append(node)
            under_way -= 1
        elif under_way and node in beside:
            awaited.append(node)
    return gates
