"""Clusters: nodes that compile together, between nodes that run on the host.

Time runs in steps: the nodes of an even step are compiled as one cluster, those of an odd step run
on the host, one by one. Each node takes the first step after all nodes that it waits for. So
independent chains share their clusters, and there are as many clusters as on the path with the most
changes between host and compiled code, which is the minimum.

Nodes are numbers here, in an order in which each comes after those that it waits for.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T", bound=Hashable)

# How often groups may push each other to later steps before they are put on the host.
_ROUNDS = 8


class Place(enum.Enum):
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
    places: Sequence[Place], predecessors: Sequence[Sequence[int]], floors: Sequence[int] = ()
) -> list[int]:
    """Return the step of each node: even in a cluster, odd on the host.

    Args:
      places: the place of each node.
      predecessors: for each node, the nodes that it waits for, all of them before it.
      floors: for each node, the step before which it must not run; empty without limits.
    """
    steps: list[int] = []
    floors = floors or [0] * len(places)
    for place, before, floor in zip(places, predecessors, floors, strict=True):
        step = max((steps[i] for i in before), default=1)
        step = max(step, floor)
        if (place is Place.HOST and step % 2 == 0) or (place is Place.COMPILED and step % 2 == 1):
            step += 1
        steps.append(step)
    return steps


def sink(
    predecessors: Sequence[Sequence[int]], steps: Sequence[int], movable: Iterable[int]
) -> list[int]:
    """Move nodes that nothing in their own clusters feeds to the clusters of their first users.

    A value that is made of arguments or host values, and is used later, then need not pass from
    cluster to cluster.

    Args:
      predecessors: for each node, the nodes that it waits for, all of them before it.
      steps: the step of each node, from `assign`.
      movable: the nodes that may move; all are in clusters.
    """
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
    places: Sequence[Place],
    predecessors: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    floors: Sequence[int] = (),
) -> list[int]:
    """Return the step of each node, with the nodes of each group together.

    Args:
      places: the place of each node.
      predecessors: for each node, the nodes that it waits for, all of them before it.
      groups: nodes that pass each other values which cannot leave a compiled program. Each group is
        in one cluster, or all of it on the host.
      floors: for each node, the step before which it must not run; empty without limits.
    """
    places = list(places)
    given = floors or [0] * len(places)
    floors = list(given)
    for group in groups:
        on_host = any(places[i] is Place.HOST for i in group)
        for i in group:
            places[i] = Place.HOST if on_host else Place.COMPILED
    for _ in range(_ROUNDS):
        steps = first_steps(places, predecessors, floors)
        compiled = (group for group in groups if places[group[0]] is not Place.HOST)
        torn = [group for group in compiled if len({steps[i] for i in group}) > 1]
        if not torn:
            return steps
        for group in torn:
            latest = max(steps[i] for i in group)
            for i in group:
                floors[i] = latest
    # A path leads out of each torn group and back into it through the host.
    for i in (i for group in torn for i in group):
        places[i] = Place.HOST
    return assign(places, predecessors, groups, given)
