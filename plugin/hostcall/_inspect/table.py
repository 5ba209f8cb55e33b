"""An inspection as a table for terminals."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hostcall._inspect.facts import Facts, PythonFunction, Use

_WIDTH = 110


def text(inspection: Facts) -> str:
    """The table as plain text, and below it what to write."""
    stream = io.StringIO()
    console = Console(file=stream, width=_WIDTH, color_system=None, legacy_windows=False)
    console.print(Text(f"{inspection.path}: {inspection.headline}", style="bold"))
    for note in inspection.notes:
        console.print(Text(note))
    if inspection.functions:
        console.print(_table(inspection))
    lines = dict.fromkeys(function.write for function in inspection.functions if function.write)
    if lines:
        console.print(Text("\nIf you trust the file, write:\n"))
        for line in lines:
            console.print(Text(f"    {line}"), soft_wrap=True)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _table(inspection: Facts) -> Table:
    table = Table(show_lines=True)
    table.add_column("function", overflow="fold", ratio=3)
    table.add_column("used", overflow="fold", ratio=5)
    table.add_column("here", overflow="fold", ratio=3)
    for function in inspection.functions:
        uses = "\n".join(map(_use, function.uses))
        table.add_row(Text(_name(function)), Text(uses), Text(function.problem or "can be called"))
    return table


def _name(function: PythonFunction) -> str:
    place = [function.place] if function.place not in (None, function.name) else []
    carried = ["a pickle in the file"] if function.pickle else []
    declared = [f"{name}={value}" for name, value in function.declared.items()]
    return "\n".join(map(str, [function.name, *place, *carried, *declared]))


def _use(use: Use) -> str:
    of = f" in {', '.join(use.of)}" if use.of else ""
    line = f" at {use.line}" if use.line else ""
    flow = f"\n  {_listed(use.arguments)} → {_listed(use.results)}" if use.arguments else ""
    return f"{use.kind}, {use.node}{of}{line}{flow}"


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(values) or "?"
