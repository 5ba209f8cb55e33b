"""Which nodes of a function are compiled together.

The nodes of a function that is partitioned fall into *host* nodes and nodes that XLA can compile.
Time runs in steps: the nodes of an even step are compiled as one cluster, those of an odd step run
on the host, one by one. Each node takes the first step that comes after all that it waits for. So
independent chains share their clusters, and there are as many clusters as the path with the most
changes between host and compiled code has.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

# How often the groups below may push each other on before they are run on the host.
_ROUNDS = 8


class Place(enum.Enum):
    """Where a node may run."""

    HOST = enum.auto()
    COMPILED = enum.auto()
    # Wherever what it waits for has run: identities and the like.
    EITHER = enum.auto()


def first_steps(
    places: Sequence[Place], predecessors: Sequence[Sequence[int]], floors: Sequence[int]
) -> list[int]:
    """The step of each node: even in a cluster, odd on the host.

    Args:
      places: of each node.
      predecessors: of each node, the nodes that it waits for, all of them before it.
      floors: of each node, the step before which it must not run.
    """
    steps: list[int] = []
    for place, before, floor in zip(places, predecessors, floors, strict=True):
        step = max((steps[i] for i in before), default=1)
        step = max(step, floor)
        if (place is Place.HOST and step % 2 == 0) or (place is Place.COMPILED and step % 2 == 1):
            step += 1
        steps.append(step)
    return steps


def sink(
    places: Sequence[Place],
    predecessors: Sequence[Sequence[int]],
    steps: Sequence[int],
    fixed: Sequence[int],
) -> list[int]:
    """Steps where each node that nothing in its own cluster feeds has moved to its first user's.

    A value that is made of arguments, or of values that exist on the host, and is used later need
    not be carried from cluster to cluster.

    Args:
      places: of each node.
      predecessors: of each node, the nodes that it waits for, all of them before it.
      steps: of each node, from `assign`.
      fixed: nodes that stay where they are.
    """
    may_move = [place is Place.COMPILED for place in places]
    for i in fixed:
        may_move[i] = False
    for _ in range(_ROUNDS):
        moved = _latest(predecessors, steps, may_move)
        settled = True
        for i, before in enumerate(predecessors):
            if moved[i] > steps[i] and any(moved[j] == steps[i] for j in before):
                may_move[i] = settled = False
        if settled:
            return moved
    return list(steps)


def _latest(
    predecessors: Sequence[Sequence[int]], steps: Sequence[int], may_move: Sequence[bool]
) -> list[int]:
    """The last cluster that each node may be in, which for those that stay is their own."""
    end = max(steps, default=0) + 2
    latest = [end if may else step for may, step in zip(may_move, steps, strict=True)]
    for i in reversed(range(len(steps))):
        if latest[i] == end:
            latest[i] = steps[i]  # nobody uses it
        # The last cluster before a host op has the step before that.
        bound = latest[i] - latest[i] % 2
        for j in predecessors[i]:
            if may_move[j]:
                latest[j] = min(latest[j], bound)
    return latest


def assign(
    places: Sequence[Place],
    predecessors: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    floors: Sequence[int] = (),
) -> list[int]:
    """The step of each node, the nodes of each group together.

    Args:
      places: of each node.
      predecessors: of each node, the nodes that it waits for, all of them before it.
      groups: nodes that pass each other values which cannot leave a compiled program. They are in
        one cluster, or all of them on the host.
      floors: of each node, the step before which it must not run; none if there are none.
    """
    places = list(places)
    given = floors or [0] * len(places)
    floors = list(given)
    for group in groups:
        _keep_together(places, group, on_host=any(places[i] is Place.HOST for i in group))
    for _ in range(_ROUNDS):
        steps = first_steps(places, predecessors, floors)
        torn = [
            group for group in groups if len({steps[i] for i in group if _inside(places, i)}) > 1
        ]
        if not torn:
            return steps
        for group in torn:
            latest = max(steps[i] for i in group)
            for i in group:
                floors[i] = latest
    # A path leads out of a group and back into it by way of the host.
    for group in torn:
        _keep_together(places, group, on_host=True)
    return assign(places, predecessors, groups, given)


def _inside(places: Sequence[Place], i: int) -> bool:
    return places[i] is not Place.HOST


def _keep_together(places: list[Place], group: Sequence[int], on_host: bool) -> None:
    for i in group:
        places[i] = Place.HOST if on_host else Place.COMPILED
