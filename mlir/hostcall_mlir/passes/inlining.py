"""Inlining of functions that make host calls, before a pass partitions or reorders a function."""

from __future__ import annotations

import contextlib
import graphlib
from collections.abc import Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir.diagnostics import Failure, report, report_all
from hostcall_mlir.ir.jaxlib_names import attribute_of, names_of_attributes

_MOST_OPS = 500_000  # the limit on ops in one function; XLA takes minutes for more


def inline_host_callers(module: ir.Module, entry: ir.Operation, of: str) -> None:
    """Inline into `entry` each function that runs custom calls on the host, directly or not."""
    # Private functions that only inlined ones called are erased. Errors name the pass `of`.
    functions = traversal.functions(module)
    bodies = {name: custom_calls.walk(op)[1:] for name, op in functions.items()}
    direct = [name for name, ops in bodies.items() if any(map(custom_calls.runs_on_host, ops))]
    callers = traversal.reaching(bodies, direct)
    _check(functions, bodies, callers, of)
    _check_size(bodies, callers, entry, of)
    waiting = custom_calls.walk(entry)[:0:-1]
    while waiting:
        op = waiting.pop()
        if (callee := traversal.callee_of(op)) in callers:
            waiting += reversed(_inline(op, functions[callee]))
    _erase_unused(functions, bodies, callers - {traversal.name_of(entry)})


def _check(
    functions: dict[str, ir.Operation],
    bodies: dict[str, list[ir.Operation]],
    callers: set[str],
    of: str,
) -> None:
    problems = []
    for ops in bodies.values():
        for op in ops:
            if traversal.callee_of(op) is None and (names := _references(op) & callers):
                text = (
                    f"'{op.name}' refers to @{min(names)}, which makes host calls; only func.call"
                )
                problems.append((op, f"{text} of such a function can be partitioned"))
    for name in sorted(callers, key=[*functions].index):
        if len(functions[name].regions[0].blocks) > 1:
            problems.append((functions[name], f"@{name} makes host calls and has several blocks"))
    for name in _on_cycles(bodies, callers):
        problems.append((functions[name], f"@{name} makes host calls and calls itself"))
    report_all((op, f"{of}: {text}") for op, text in problems)


def _check_size(
    bodies: dict[str, list[ir.Operation]], callers: set[str], entry: ir.Operation, of: str
) -> None:
    """Raise Failure before any inlining if `entry` would become too large or too deep."""
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}
    for name in _callees_first(_calls_among(bodies, callers)):
        own = traversal.depths_of(bodies[name])
        sizes[name], depths[name] = len(own), max(own, default=0)
        for op, depth in zip(bodies[name], own, strict=True):
            if (callee := traversal.callee_of(op)) in callers:
                sizes[name] += sizes[callee]
                depths[name] = max(depths[name], depth + depths[callee])
    name = traversal.name_of(entry)
    size, depth = sizes.get(name, 0), depths.get(name, 0)
    if size <= _MOST_OPS and depth <= traversal.OPS:
        return
    report(
        entry,
        f"{of}: the functions that make host calls are inlined, which would make {size} ops of "
        f"@{name}, in one another {depth} deep; {_MOST_OPS} are the most, "
        f"and {traversal.OPS} deep. "
        "Functions that call one another several times double with each level: make the host calls "
        "in fewer places",
    )
    raise Failure


def _references(op: ir.Operation) -> set[str]:
    """Return the symbols that an op's attributes name."""
    found = set()
    waiting = [attribute_of(op, name) for name in names_of_attributes(op)]
    while waiting:
        attribute = waiting.pop()
        if isinstance(attribute, ir.FlatSymbolRefAttr):
            found.add(attribute.value)
        elif isinstance(attribute, ir.ArrayAttr):
            waiting += attribute
    return found


def _on_cycles(bodies: dict[str, list[ir.Operation]], callers: set[str]) -> list[str]:
    """Return the callers that call themselves, directly or not, or are between two that do."""
    calls = _calls_among(bodies, callers)
    left = {*calls} - {*_callees_first(calls)}
    called_by: dict[str, set[str]] = {name: set() for name in calls if name in left}
    for name in left:
        for callee in calls[name] & left:
            called_by[callee].add(name)
    ends = {*_callees_first(called_by)}
    return [name for name in called_by if name not in ends]


def _calls_among(bodies: dict[str, list[ir.Operation]], callers: set[str]) -> dict[str, set[str]]:
    """Return for each caller the callers that it calls."""
    return {
        name: {str(traversal.callee_of(op)) for op in bodies[name]} & callers
        for name in bodies
        if name in callers
    }


def _callees_first(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes that lead to no cycle, each behind the nodes that it leads to."""
    sorter = graphlib.TopologicalSorter(graph)
    with contextlib.suppress(graphlib.CycleError):
        sorter.prepare()
    found: list[str] = []
    while ready := sorter.get_ready():
        found += ready
        sorter.done(*ready)
    return found


def _inline(call: ir.Operation, callee: ir.Operation) -> Sequence[ir.Operation]:
    """Replace a call by a copy of the function's body, and return the ops of the copy."""
    with call.location:
        copy = callee.clone(ip=False).operation
    ops = custom_calls.walk(copy)[1:]
    block = copy.regions[0].blocks[0]
    for argument, operand in zip(block.arguments, call.operands, strict=True):
        argument.replace_all_uses_with(operand)
    *body, terminator = [op.operation for op in block]
    for op in body:
        op.move_before(call)
    traversal.replace(call, terminator.operands)
    ops.pop()
    terminator.erase()
    return ops


def _erase_unused(
    functions: dict[str, ir.Operation], bodies: dict[str, list[ir.Operation]], names: set[str]
) -> None:
    """Erase the named functions that are private and that no public one of the named reaches."""
    kept = [name for name in names if not traversal.is_private(functions[name])]
    seen = set(kept)
    while kept:
        callees = {str(traversal.callee_of(op)) for op in bodies[kept.pop()]} & names - seen
        seen |= callees
        kept += callees
    for name in names - seen:
        functions[name].erase()
