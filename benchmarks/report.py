"""The answer to a question: rows, each beside its peer, as a table and as JSON."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.timing import Samples

# `compare` sets another folder, so that its runs give no answers for the pages.
DIRECTORY = Path(
    os.environ.get("HOSTCALL_BENCHMARKS", Path(__file__).parents[1] / "build" / "benchmarks")
)

# A ratio within NOISE of the bound counts as equal to it. Quartiles further apart than TOO_WIDE
# allow no verdict on a goal of "about".
NOISE, TOO_WIDE = 0.02, 0.2

Kind = Literal["at most", "at least", "about", "at most more"]
Unit = Literal["seconds", "bytes"]


@dataclass(frozen=True)
class Goal:
    """The wanted result of the comparison with the peer: a ratio, or seconds more."""

    kind: Kind
    bound: float

    def met(self, ratio: "Spread", more: "Spread") -> bool | None:
        """Return whether the goal is met, or None if the figures are too noisy."""
        if self.kind == "at most":
            return ratio.median <= self.bound
        if self.kind == "at least":
            return ratio.median >= self.bound
        if self.kind == "at most more":
            return more.median <= self.bound
        if ratio.high - ratio.low > TOO_WIDE:
            return None
        return ratio.low <= self.bound <= ratio.high or abs(ratio.median - self.bound) <= NOISE

    def __str__(self) -> str:
        if self.kind == "at most more":
            return f"at most {seconds(self.bound)} more"
        return f"{self.kind} {self.bound:g} x"


at_most, at_least, about, at_most_more = (partial(Goal, kind) for kind in get_args(Kind))


@dataclass(frozen=True)
class Spread:
    """A median over the rounds, and the quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Samples) -> "Spread":
        return cls(samples.median, *samples.quartiles)

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True)
class Row:
    """The cost of one program, and its comparison with another program of the run.

    The cost is in seconds a call, or in another unit that the row names.
    """

    name: str
    cost: Spread
    peer: str | None = None
    ratio: Spread | None = None
    more: Spread | None = None
    goal: str | None = None
    met: bool | None = None
    unit: Unit = "seconds"


def alone(name: str, samples: Samples, unit: Unit = "seconds") -> Row:
    """Return a row for a program that others are compared with."""
    return Row(name, Spread.of(samples), unit=unit)


def beside(
    samples: Mapping[str, Samples],
    name: str,
    peer: str,
    goal: Goal | None = None,
    unit: Unit = "seconds",
) -> Row:
    """Return a row for one of the programs that were timed together, beside another."""
    ratio = Spread.of(samples[name].over(samples[peer]))
    more = Spread.of(samples[name].less(samples[peer]))
    met = None if goal is None else goal.met(ratio, more)
    cost = Spread.of(samples[name])
    return Row(name, cost, peer, ratio, more, None if goal is None else str(goal), met, unit)


def number(value: float) -> str:
    """Format a number with three digits, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{number(value / size)} {unit}"
    return f"{number(value * 1e6)} us"


def quantity(value: float, unit: Unit) -> str:
    return seconds(value) if unit == "seconds" else f"{number(value / 2**20)} MiB"


def show(title: str, rows: Sequence[Row]) -> None:
    """Print the table of a question."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("program", "beside"):
        table.add_column(name, overflow="fold")
    for name in ("cost", "spread", "ratio (quartiles)", "more"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("goal", "met"):
        table.add_column(name)
    for row in rows:
        table.add_row(*_cells(row))
    console = Console()
    # A pipe has no width, and rich would fold everything into 80 columns.
    console.width = console.width if console.is_terminal else 160
    console.print(table)


def _cells(row: Row) -> tuple[str, ...]:
    spread = (row.cost.high - row.cost.low) / row.cost.median
    cost = (row.name, row.peer or "", quantity(row.cost.median, row.unit), f"{spread:.0%}")
    if row.ratio is None or row.more is None:
        return (*cost, "", "", "", "")
    return (
        *cost,
        f"{row.ratio}",
        quantity(row.more.median, row.unit),
        row.goal or "",
        verdict(row.goal, row.met),
    )


def verdict(goal: str | None, met: bool | None) -> str:
    """Return the text that says whether a goal is met."""
    if goal is None:
        return ""
    return {True: "yes", False: "NO", None: "too noisy"}[met]


def write(name: str, title: str, rows: Sequence[Row], machine: Mapping[str, object]) -> Path:
    """Write the JSON of a question to build/benchmarks/; return the path."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / f"{name}.json"
    answer = {"title": title, "machine": dict(machine), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    return path
