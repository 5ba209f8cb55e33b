"""The history of each figure, run by run, in history.csv, for plots of the effect of changes."""

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
      date: the date of the run.
      commit: the measured commit, with a + if files were changed since.
      question: the file of the benchmark.
      program: the program that was called.
      cost: the median cost of a call or of a process. Compare it only within a run.
      unit: the unit of the cost, seconds or bytes.
      beside: the program that the ratio is taken to; empty if there is no ratio.
      ratio: the median ratio, with the quartiles `low` and `high`; empty if there is no ratio.
      cpu: the model of the machine's CPU.
      cores: the number of cores that the run could use.
      load: the machine's load average before the run.
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
    """Return the commit of the sources, with a + if they differ from it."""
    ask = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    asked = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def entries(question: str, rows: Sequence[Row], machine: Mapping[str, object]) -> list[Entry]:
    """Return the entries of a question's answer."""
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
    """Append entries to the file; create it with a header if it does not exist."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(field.name for field in fields(Entry))
        writer.writerows(astuple(entry) for entry in added)
