"""The history of each figure, run by run, in history.csv, for plots of the effect of changes.

`date`, `cpu`, `cores` and `load` are of the machine, before the run; `commit` is the measured one,
with a + if files were changed since. `question` is the file of the benchmark, and `program` what
was called. `cost` is the median cost of a call or of a process, in the `unit`: compare it only
within a run. `beside` is the program that the median `ratio` is taken to, with the quartiles `low`
and `high`; the four are empty if there is no ratio.
"""

import csv
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks.report import Row

ROOT = Path(__file__).parents[1]
PATH = Path(__file__).with_name("history.csv")

Entry = dict[str, object]


def commit() -> str:
    """Return the commit of the sources, with a + if they differ from it."""
    ask = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    asked = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def facts() -> dict[str, object]:
    """Return the facts by which to judge figures; nothing names the machine itself."""
    packages = ("hostcall", "tensorflow-cpu", "tensorflow", "jax", "numpy")
    return {
        "cpu": _model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {
            name: found.version for name in packages for found in metadata.distributions(name=name)
        },
        "date": datetime.now(UTC).date().isoformat(),
    }


def _model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    parts = [line.partition(":") for line in lines]
    fields = {name.strip(): value.strip() for name, _, value in parts}
    if "model name" not in fields:
        return platform.machine()
    # Virtual machines may show a shortened name; the numbers identify the generation.
    return f"{fields['model name']}, family {fields['cpu family']}, model {fields['model']}"


def entries(question: str, rows: Sequence[Row], machine: Mapping[str, object]) -> list[Entry]:
    """Return the entries of a question's answer."""
    measured = commit()
    return [
        {
            "date": machine["date"],
            "commit": measured,
            "question": question,
            "program": row.name,
            "cost": row.cost.median,
            "unit": row.unit,
            "beside": row.peer or "",
            "ratio": row.ratio.median if row.ratio else "",
            "low": row.ratio.low if row.ratio else "",
            "high": row.ratio.high if row.ratio else "",
            "cpu": machine["cpu"],
            "cores": machine["cores"],
            "load": machine["load_before"],
        }
        for row in rows
    ]


def append(added: Sequence[Entry], path: Path = PATH) -> None:
    """Append entries to the file; create it with a header if it does not exist."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, added[0].keys(), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(added)
