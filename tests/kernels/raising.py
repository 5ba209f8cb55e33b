"""The campaign of values that make TensorFlow's CPU kernels raise, and of what XLA does with them.

Graph mode tells which values a kernel refuses. The same call is then compiled, by stock TensorFlow
alone or beside calls of Python with hostcall, and must raise an error of the same class. An op, its
dtypes, an input and what graph mode says of it, numbers aside, make a case.
"""
# ruff: noqa: T201 - it prints its report

import collections
import concurrent.futures
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.kernels import bad_values, trying
from tests.kernels.call import Call
from tests.support.stress.processes import Worker

_BATCH = 40
# A process gives back the memory of its programs when it ends.
_BATCHES_A_PROCESS = 8
_SECONDS_A_BATCH = 600.0
_PREPARATION = {trying.STOCK: "", trying.HOSTCALL: "import hostcall"}

Row = dict[str, Any]
Case = tuple[str, str, str, str]


def run(seed: int, only: set[str], modes: list[str]) -> None:
    """Try the calls in all modes at once, and print what differs."""
    numbers = bad_values.sample(seed, only)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = pool.map(lambda mode: _Run(seed, mode).rows(numbers), modes)
    for mode, rows in zip(modes, found, strict=True):
        _report(mode, rows, bad_values.calls(seed))


class _Run:
    """The processes of one mode, one after another."""

    def __init__(self, seed: int, mode: str) -> None:
        self._seed = seed
        self._mode = mode
        self._ended: dict[str, int] = {}

    def rows(self, numbers: list[int]) -> list[Row]:
        found: list[Row] = []
        size = _BATCH * _BATCHES_A_PROCESS
        for first in range(0, len(numbers), size):
            with contextlib.closing(Worker(_PREPARATION[self._mode])) as worker:
                for begin in range(first, min(first + size, len(numbers)), _BATCH):
                    found += self._batch(worker, numbers[begin : begin + _BATCH])
        return found

    def _batch(self, worker: Worker, numbers: list[int]) -> list[Row]:
        """Try a batch; after a crash, again from its call on, without what crashed."""
        found: list[Row] = []
        while numbers:
            with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as journal:
                arguments = numbers, self._seed, self._mode, journal.name, self._ended
                try:
                    worker.run(trying.tried, *arguments, limit=_SECONDS_A_BATCH)
                    rest: list[int] = []
                except AssertionError as error:
                    if not str(error).startswith("ended with"):
                        raise
                    rest = numbers
                lines = [json.loads(line) for line in Path(journal.name).read_text().splitlines()]
            begun = [line["begun"] for line in lines if "begun" in line]
            rows = [line for line in lines if "number" in line]
            if rest:
                if "step" not in lines[-1]:
                    raise RuntimeError(f"a process ended outside of a step: {lines[-1]}")
                self._ended[lines[-1]["step"]] = begun[-1]
                rest = numbers[numbers.index(begun[-1]) :]
                rows = [row for row in rows if row["number"] != begun[-1]]
            found += rows
            numbers = rest
        return found


def _report(mode: str, rows: list[Row], calls: list[Call]) -> None:
    tried = sum(row.get("trials", 0) for row in rows)
    cases: dict[Case, list[Row]] = collections.defaultdict(list)
    for row in rows:
        if "place" in row:
            call = calls[row["number"]]
            cases[call.op, bad_values.dtypes(call), row["place"], row["pattern"]].append(row)
    print(f"== {mode}: tried {tried} values; graph mode refuses some in {len(cases)} cases")
    for way in trying.WAYS:
        worst = [most for found in cases.values() if (most := _worst(found, way))]
        # In graph mode too, calls of Python do not wait for an op that they do not depend on.
        late = sum(row[way] == trying.LATE for row in worst)
        _print_differing(mode, way, [row for row in worst if row[way] != trying.LATE], calls)
        print(f"   {late} cases raise {trying.LATE}")


def _worst(rows: list[Row], way: str) -> Row | None:
    """Return the row that differs most, if one does."""
    rows = [row for row in rows if row.get(way, trying.SAME) != trying.SAME]
    return min(rows, key=lambda row: trying.DIFFERENCES.index(row[way]), default=None)


def _print_differing(mode: str, way: str, rows: list[Row], calls: list[Call]) -> None:
    """Print the cases that differ, those of several dtypes together, and how many there are."""
    groups: dict[tuple[str, ...], list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[row[way], calls[row["number"]].op, row["place"], row["pattern"]].append(row)
    for (verdict, op, place, pattern), alike in sorted(groups.items()):
        row = alike[0]
        text = f"{row['what']} {row['values']} in {calls[row['number']].text()}"
        print(f"{mode}, {way}: {verdict} | {op} {place} | {row['error']}: {pattern} | ", end="")
        print(f"{len(alike)} cases | {text} | {row[f'{way} said']}")
    counts = collections.Counter(row[way] for row in rows)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    print(f"== {mode}, {way}: {len(rows)} cases differ: {said or 'none'}")
