"""In which order a function's calls begin, other things are computed, and results are taken."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from hostcall._compiler.overlap.nodes import Gate, gate_value, handle
from hostcall._tf import function_defs as defs
from hostcall._tf.types import NodeDef

# When a node runs, where several could: see `steps_of`.
_BEGINS, _LEADS_TO_CALL, _OTHER, _WAITS = range(4)
_Step = tuple[int, str]


def steps_of(nodes: list[NodeDef], calls: set[str]) -> list[_Step]:
    """The steps of a function in an order that its edges allow.

    Each call has two: it begins, as early as can be, and is waited for, as late as can be.
    """
    before = defs.predecessors(nodes)
    after: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(before):
        for j in sources:
            after[j].append(i)
    leads_to_call = _ancestors(before, [i for i, n in enumerate(nodes) if n.name in calls])
    missing = [len(sources) for sources in before]

    def when(i: int) -> int:
        if nodes[i].name in calls:
            return _BEGINS
        return _LEADS_TO_CALL if i in leads_to_call else _OTHER

    ready = [(when(i), i) for i, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    steps = []
    while ready:
        kind, i = heapq.heappop(ready)
        steps.append((kind, nodes[i].name))
        if kind == _BEGINS:
            heapq.heappush(ready, (_WAITS, i))
            continue
        for j in after[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, (when(j), j))
    return steps


def _ancestors(before: list[list[int]], of: list[int]) -> set[int]:
    pending, found = list(of), set[int]()
    while pending:
        for j in before[pending.pop()]:
            if j not in found:
                found.add(j)
                pending.append(j)
    return found


def _overlapping(steps: Iterable[_Step], beside: Mapping[str, list[str]]) -> set[str]:
    """The calls that go on while another does, or while something heavy is computed."""
    under_way: set[str] = set()
    found: set[str] = set()
    for kind, name in steps:
        if kind == _BEGINS:
            if under_way:
                found |= {name, *under_way}
            under_way.add(name)
        elif kind == _WAITS:
            under_way.remove(name)
        elif name in beside:
            found |= under_way
    return found


def gates_of(steps: list[_Step], beside: Mapping[str, list[str]]) -> list[Gate]:
    """Those before the steps that wait for calls which overlap with something."""
    overlapping = _overlapping(steps, beside)
    gates: list[Gate] = []
    awaited: list[str] = []  # since the last gate
    under_way = 0
    for kind, name in steps:
        if kind == _BEGINS and name in overlapping:
            awaited.append(handle(name))
            under_way += 1
        elif kind == _WAITS and name in overlapping:
            if awaited:
                gates.append(Gate(awaited + [gate_value(len(gates) - 1)] * bool(gates), []))
                awaited = []
            gates[-1].calls.append(name)
            under_way -= 1
        elif under_way:
            awaited += beside.get(name, [])
    return gates
