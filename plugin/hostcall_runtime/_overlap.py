"""In which order a program's calls begin, other things are computed, and results are taken.

The nodes of a program are numbers here, in the order in which they stand.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

# When a node runs, where several could: see `steps_of`.
BEGINS, _LEADS_TO_CALL, _OTHER, WAITS = range(4)
Step = tuple[int, int]


class Gate(NamedTuple):
    """What comes first, and the calls whose results are taken after that.

    Attributes:
      awaited: calls, which have begun by then, and other nodes; in the order of the steps. Each
        gate but the first waits for the one before it, too.
      calls: those behind the gate.
    """

    awaited: list[int]
    calls: list[int]


def steps_of(before: Sequence[Collection[int]], calls: Collection[int]) -> list[Step]:
    """The steps of a program in an order that its edges allow.

    Each call has two: it begins (BEGINS), as early as can be, and is waited for (WAITS), as late as
    can be.

    Args:
      before: for each node those that it waits for.
      calls: the nodes that are calls which may begin early.

    Returns:
      Pairs of what happens, and of which node.
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
    """The calls that go on while another does, or while something heavy is computed."""
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
    """Those before the steps that wait for calls which overlap with something.

    Args:
      steps: as `steps_of` returns them.
      beside: the nodes that calls may well go on beside.
    """
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
