"""An explanation as a table for terminals."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hostcall._explain.facts import (
    Cluster,
    Facts,
    Function,
    HostOp,
    ScriptOp,
)
from hostcall._explain.labels import (
    callback,
    is_plumbing,
    kind,
    name_of,
    relative,
    shapes,
    short_name,
    size,
    summary,
    transfers_title,
    type_of,
    worth_showing,
)
from hostcall_runtime._errors import counted

_WIDTH = 110


def text(explanation: Facts) -> str:
    """Return the tables as plain text."""
    stream = io.StringIO()
    console = Console(file=stream, width=_WIDTH, color_system=None, legacy_windows=False)
    show(explanation, console)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def show(explanation: Facts, console: Any) -> None:
    """Print the tables on a rich console."""
    console.print(Text(f"{explanation.name}: {explanation.headline}", style="bold"))
    for note in explanation.notes:
        console.print(Text(note, style="yellow"))
    if explanation.script_ops:
        console.print(_script_ops(explanation))
    if explanation.boundaries:
        console.print(_boundaries(explanation))
    if explanation.risks:
        console.print(_risks(explanation))
    for function in explanation.functions:
        if worth_showing(function):
            console.print(_steps(function))
        if function.transfers:
            console.print(_transfers(function))


def _script_ops(explanation: Facts) -> Table:
    table = Table(title="Script ops", title_justify="left", show_lines=True)
    table.add_column("op", overflow="fold", ratio=3)
    table.add_column("calls", overflow="fold", ratio=4)
    table.add_column("route, and why", overflow="fold", ratio=4)
    table.add_column("operands → results", overflow="fold", ratio=3)
    table.add_column("copies", justify="right", ratio=1, min_width=8)
    for op in explanation.script_ops:
        place = f"{op.path} > {op.node}" if op.path else op.node
        follows = f"\nafter {op.follows}" if op.follows else ""
        table.add_row(
            Text(place + follows),
            Text(f"{callback(op)}\n{kind(op)}\n{relative(op.location)}"),
            Text(f"{op.route}\n{op.reason}"),
            Text(shapes(op)),
            Text(size(op.bytes_copied)),
        )
    return table


def _boundaries(explanation: Facts) -> Table:
    table = Table(title="What stands between compiled clusters", title_justify="left")
    table.add_column("op", overflow="fold", ratio=2)
    table.add_column("what to write", overflow="fold", ratio=7)
    for op in explanation.boundaries:
        table.add_row(Text(name_of(op)), Text(op.advice))
    return table


def _risks(explanation: Facts) -> Table:
    table = Table(title="What XLA may get wrong", title_justify="left")
    table.add_column("op", overflow="fold", ratio=2)
    table.add_column("why, and what to write", overflow="fold", ratio=7)
    for one in explanation.risks:
        where = f" at {relative(one.location)}" if one.location else ""
        table.add_row(Text(one.node), Text(f"{one.op}{where}: {one.reason}. {one.advice}."))
    return table


def _steps(function: Function) -> Table:
    where = f" ({function.path})" if function.path else ""
    table = Table(
        title=Text(f"{short_name(function.name)}{where}: {function.mode}"), title_justify="left"
    )
    table.add_column("step", overflow="fold", ratio=2)
    table.add_column("runs", ratio=1, min_width=8)
    table.add_column("what", overflow="fold", ratio=6)
    for step in function.steps:
        if is_plumbing(step):
            continue
        if isinstance(step, Cluster):
            table.add_row(Text(step.node), "compiled", Text(_cluster(step)))
        elif isinstance(step, ScriptOp):
            table.add_row(Text(step.node), "Python", Text(f"{step.kind} of {callback(step)}"))
        else:
            runs = "called" if step.in_program else "host"
            table.add_row(Text(step.node), runs, Text(_host_op(step)))
    return table


def _transfers(function: Function) -> Table:
    table = Table(title=Text(transfers_title(function)), title_justify="left", expand=True)
    table.add_column("value", overflow="fold", ratio=4)
    table.add_column("to the", min_width=6)
    table.add_column("what", overflow="fold", ratio=3)
    table.add_column("size", justify="right", min_width=8)
    for one in function.transfers:
        table.add_row(Text(one.value), one.to, Text(type_of(one.what)), Text(size(one.what.nbytes)))
    return table


def _cluster(step: Cluster) -> str:
    if step.compilations < 2 and not step.uncompiled_runs:
        return summary(step.ops)
    plain = f"; {counted(step.uncompiled_runs, 'run')} by TensorFlow's kernels"
    times = f"compiled {counted(step.compilations, 'time')}"
    return f"{summary(step.ops)} ({times}{plain if step.uncompiled_runs else ''})"


def _host_op(step: HostOp) -> str:
    where = f" at {relative(step.location)}" if step.location else ""
    return f"{step.op}{where}: {step.reason}"
