"""An explanation as tables for terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostcall import _report
from hostcall._explain.facts import Cluster, Function, ScriptOp, Step
from hostcall._explain.labels import (
    callback,
    is_plumbing,
    kind,
    name_of,
    place_of,
    relative,
    shapes,
    short_name,
    size,
    summary,
    transfers_title,
    type_of,
    worth_showing,
)
from hostcall._report import Table, folded
from hostcall_runtime._errors import counted

# The class stands in `explanation`, which draws by this module.
Explanation = Any


def text(explanation: Explanation) -> str:
    """Return the tables as plain text."""
    return _report.as_text(_parts(explanation))


def _parts(explanation: Explanation) -> Iterator[str | Table]:
    yield f"{explanation.name}: {explanation.headline}"
    yield from explanation.notes
    if explanation.script_ops:
        yield _script_ops(explanation)
    if explanation.boundaries:
        yield Table(
            {"op": folded(2), "what to write": folded(7)},
            [(name_of(op), op.advice) for op in explanation.boundaries],
            "What stands between compiled clusters",
        )
    if explanation.risks:
        yield Table(
            {"op": folded(2), "why, and what to write": folded(7)},
            [
                (one.node, f"{one.op}{_at(one.location)}: {one.reason}. {one.advice}.")
                for one in explanation.risks
            ],
            "What XLA may get wrong",
        )
    for function in explanation.functions:
        if worth_showing(function):
            yield _steps(function)
        if function.transfers:
            yield _transfers(function)


def _script_ops(explanation: Explanation) -> Table:
    columns = {
        "op": folded(3),
        "calls": folded(4),
        "route, and why": folded(4),
        "operands → results": folded(3),
        "copies": {"justify": "right", "ratio": 1, "min_width": 8},
    }
    rows = [
        (
            place_of(op) + (f"\nafter {op.follows}" if op.follows else ""),
            f"{callback(op)}\n{kind(op)}\n{relative(op.location)}",
            f"{op.route}\n{op.reason}",
            shapes(op),
            size(op.bytes_copied),
        )
        for op in explanation.script_ops
    ]
    return Table(columns, rows, "Script ops", {"show_lines": True})


def _steps(function: Function) -> Table:
    where = f" ({function.path})" if function.path else ""
    return Table(
        {"step": folded(2), "runs": {"ratio": 1, "min_width": 8}, "what": folded(6)},
        [(step.node, *_step(step)) for step in function.steps if not is_plumbing(step)],
        f"{short_name(function.name)}{where}: {function.mode}",
    )


def _step(step: Step) -> tuple[str, str]:
    if isinstance(step, Cluster):
        return "compiled", _cluster(step)
    if isinstance(step, ScriptOp):
        return "Python", f"{step.kind} of {callback(step)}"
    runs = "called" if step.in_program else "host"
    return runs, f"{step.op}{_at(step.location)}: {step.reason}"


def _transfers(function: Function) -> Table:
    columns = {
        "value": folded(4),
        "to the": {"min_width": 6},
        "what": folded(3),
        "size": {"justify": "right", "min_width": 8},
    }
    rows = [
        (one.value, one.to, type_of(one.what), size(one.what.nbytes)) for one in function.transfers
    ]
    return Table(columns, rows, transfers_title(function), {"expand": True})


def _cluster(step: Cluster) -> str:
    if step.compilations < 2 and not step.uncompiled_runs:
        return summary(step.ops)
    plain = f"; {counted(step.uncompiled_runs, 'run')} by TensorFlow's kernels"
    times = f"compiled {counted(step.compilations, 'time')}"
    return f"{summary(step.ops)} ({times}{plain if step.uncompiled_runs else ''})"


def _at(location: str) -> str:
    return f" at {relative(location)}" if location else ""
