"""A schedule of a program: calls begin early, and their results are taken late.

The nodes of a program are numbers here, in the order in which they stand.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

# Kinds of steps, by priority: of several steps that are ready, `steps_of` takes the smallest kind.
BEGINS, _LEADS_TO_CALL, _OTHER, WAITS = range(4)
Step = tuple[int, int]


class Gate(NamedTuple):
    """A point before which some nodes run, and after which the results of some calls are taken.

    Attributes:
      awaited: the calls that begin before the gate, and other nodes that run before it, in the
        order of the steps. Each gate but the first also waits for the gate before it.
      calls: the calls whose results are taken after the gate.
    """

    awaited: list[int]
    calls: list[int]


def steps_of(before: Sequence[Collection[int]], calls: Collection[int]) -> list[Step]:
    """Return the steps of a program in an order that its edges allow.

    A call has two steps: it begins (BEGINS) as early as possible, and is waited for (WAITS) as late
    as possible. `before` has for each node the nodes that it waits for.
    """
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
