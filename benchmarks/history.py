"""What each figure was, run by run, in history.csv: for plots of what a change has done to it."""

import csv
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from benchmarks.report import Row

ROOT = Path(__file__).parents[1]
PATH = Path(__file__).with_name("history.csv")


@dataclass(frozen=True)
class Entry:
    """A figure of a run: the columns of the file.

    Attributes:
      date: of the run.
      commit: what was measured; with a + where files were changed since.
      question: the file of the benchmark.
      program: what was called.
      cost: the median of what a call took, or a process had. Compare it within a run alone.
      unit: of the cost, seconds or bytes.
      beside: the program that the ratio is taken to; empty where there is none.
      ratio: the median, with the quartiles `low` and `high`; empty where there is none.
      cpu: the machine.
      cores: how many of it.
      load: its load average before.
    """

    date: str
    commit: str
    question: str
    program: str
    cost: float
    unit: str
    beside: str
    ratio: float | str
    low: float | str
    high: float | str
    cpu: str
    cores: int
    load: float


def commit() -> str:
    """The commit of the sources, with a + where they are not as it has them."""
    ask = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    asked = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def entries(question: str, rows: Sequence[Row], machine: Mapping[str, object]) -> list[Entry]:
    """The entries of a question's answer."""
    found = commit()
    return [
        Entry(
            date=str(machine["date"]),
            commit=found,
            question=question,
            program=row.name,
            cost=row.cost.median,
            unit=row.unit,
            beside=row.peer or "",
            ratio=row.ratio.median if row.ratio else "",
            low=row.ratio.low if row.ratio else "",
            high=row.ratio.high if row.ratio else "",
            cpu=str(machine["cpu"]),
            cores=int(str(machine["cores"])),
            load=float(str(machine["load_before"])),
        )
        for row in rows
    ]


def append(added: Sequence[Entry], path: Path = PATH) -> None:
    """Adds entries to the file; begins it where there is none."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(field.name for field in fields(Entry))
        writer.writerows(astuple(entry) for entry in added)
