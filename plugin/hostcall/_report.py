"""Reports: lines and tables, as text that fits the terminal, and tables as HTML."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_WIDTH = 110


class Code(str):
    """A line of a report that is never wrapped, or code in a cell of a table."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a report."""

    # For each column its heading and options of rich's `Column`.
    columns: Mapping[str, Mapping[str, Any]]
    rows: Iterable[Sequence[str]]  # the texts of the cells
    title: str = ""  # the title; "" for none
    # Options of rich's `Table`.
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Report:
    """Facts that `print` and a REPL show as lines and tables, and a notebook as HTML."""

    def _parts(self) -> Iterable[str | Table]:
        raise NotImplementedError

    def __str__(self) -> str:
        return as_text(self._parts())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = (as_html(p) if isinstance(p, Table) else _paragraph(p) for p in self._parts())
        return "\n".join(['<div class="hostcall">', *parts, "</div>"])


def folded(ratio: int) -> dict[str, Any]:
    """Return the options of a column whose cells are folded, not cut off."""
    return {"overflow": "fold", "ratio": ratio}


def as_text(parts: Iterable[str | Table]) -> str:
    """Return lines and tables as plain text."""
    # The import of rich alone takes a tenth of a second.
    from rich.console import Console
    from rich.table import Column
    from rich.table import Table as Grid
    from rich.text import Text

    stream = io.StringIO()
    console = Console(file=stream, width=_WIDTH, color_system=None, legacy_windows=False)
    for part in parts:
        if isinstance(part, Table):
            headings = [Column(name, **options) for name, options in part.columns.items()]
            title = Text(part.title) if part.title else None
            grid = Grid(*headings, title=title, title_justify="left", **part.options)
            for row in part.rows:
                grid.add_row(*map(Text, row))
            console.print(grid)
        else:
            console.print(Text(part), soft_wrap=isinstance(part, Code))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def as_html(table: Table) -> str:
    """Return a table as HTML, with its title above it."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f'<h3>{escape(table.title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _paragraph(text: str) -> str:
    kind = "pre" if isinstance(text, Code) else "p"
    return f"<{kind}>{escape(text)}</{kind}>"


def _cell(text: str) -> str:
    shown = escape(text)
    return f"<td>{f'<code>{shown}</code>' if isinstance(text, Code) else shown}</td>"


def relative(location: str) -> str:
    """Return a location with its path relative to the working directory, if it is inside."""
    file, _, line = location.rpartition(":")
    if not file:
        return location
    path = os.path.relpath(file)
    return f"{path if not path.startswith(os.pardir) else file}:{line}"
