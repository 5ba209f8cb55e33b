"""A report as a table for terminals."""

from __future__ import annotations

import io
import textwrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hostcall._check.facts import Facts
from hostcall_runtime._words import counted

_WIDTH = 110


def text(report: Facts) -> str:
    """The table as plain text, and below it what has passed and what was not checked."""
    stream = io.StringIO()
    console = Console(file=stream, width=_WIDTH, color_system=None, legacy_windows=False)
    console.print(Text(f"{report.name}: {report.headline}", style="bold"), soft_wrap=True)
    if report.findings:
        console.print(_findings(report))
        console.print(Text("\nWrite:\n"))
        for line in dict.fromkeys(finding.line for finding in report.findings):
            console.print(Text(textwrap.indent(line, "    ")), soft_wrap=True)
        console.print()
    for one in report.suggestions:
        console.print(Text(f"Suggested: {one.line}: {one.what}."))
    if report.passed:
        console.print(Text(f"Passed: {', '.join(report.passed)}."))
    for why, names in _reasons(report).items():
        console.print(Text(f"Not checked: {', '.join(names)}: {why}."))
    console.print(Text(f"The function was called {counted(report.calls, 'time')}."))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _reasons(report: Facts) -> dict[str, list[str]]:
    """The checks that were not made for a reason, by the reason."""
    reasons: dict[str, list[str]] = {}
    for one in report.not_checked:
        reasons.setdefault(one.why.removesuffix("."), []).append(one.check)
    return reasons


def _findings(report: Facts) -> Table:
    table = Table(title="Findings", title_justify="left", show_lines=True)
    table.add_column("check", overflow="fold", min_width=10)
    table.add_column("what happened", overflow="fold", ratio=4)
    table.add_column("likely cause", overflow="fold", ratio=3)
    for finding in report.findings:
        table.add_row(Text(finding.check), Text(finding.what), Text(finding.cause))
    return table
