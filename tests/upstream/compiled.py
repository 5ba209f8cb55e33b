"""Runs tests with nothing compiled and with everything, and tells what differs.

Each file is run by stock TensorFlow, and then by hostcall with each `tf.function`, and each op that
is run eagerly, a compiled function. What stock TensorFlow fails is left out, and so is what calls
no compiled function. What differs is run once more without hostcall and with all compiled, which
tells what stock TensorFlow makes of it.

The journals of a run lie in a folder. A run that was ended goes on where it was.
"""
# ruff: noqa: T201 - it prints its report

import collections
import dataclasses
import functools
import shutil
from pathlib import Path

from tests.upstream.running import TOO_LONG, WHOLE_FILE, Outcome, in_turn, known_of, run, run_forked
from tests.upstream.suites import Suite, areas

JOURNALS = Path("build/upstream").resolve()
SECONDS_A_TEST = 300.0
SECONDS_A_FILE = 600.0

_COMPLETE = "complete"
_COLUMNS = ("files", "tests", "compiled calls", "the same", "known to differ", "differ")


@dataclasses.dataclass
class Compared:
    """The results of one test file.

    Attributes:
      tests: how many have passed with stock TensorFlow and have called compiled functions.
      calls: how many compiled functions they have called.
      known: how many differ for a known reason.
      differences: a text for each other one that differs.
      note: why the file is not run.
    """

    tests: int = 0
    calls: int = 0
    known: int = 0
    differences: list[str] = dataclasses.field(default_factory=list)
    note: str = ""

    def row(self) -> list[int]:
        differ = len(self.differences)
        same = self.tests - self.known - differ
        return [bool(self.tests), self.tests, self.calls, same, self.known, differ]


def compare_all(
    sources: dict[str, str], only: str, jobs: int | None = None, seconds: float = SECONDS_A_FILE
) -> int:
    """Runs the files of all areas with `only` in their titles; returns the exit status.

    No other test of a file begins after so many seconds.
    """
    if (JOURNALS / _COMPLETE).exists():
        shutil.rmtree(JOURNALS)
    JOURNALS.mkdir(parents=True, exist_ok=True)
    chosen = areas(sources, only)
    table: dict[str, list[int]] = {}
    compare_one = functools.partial(compare, seconds=seconds)
    for suite, result in in_turn(compare_one, chosen, sources, jobs):
        row = result.row()
        summary = result.note or _figures(row[1:])
        print(f"{suite.title}: {summary}", *result.differences, sep="\n", flush=True)
        before = table.get(chosen[suite], [0] * len(_COLUMNS))
        table[chosen[suite]] = [a + b for a, b in zip(before, row, strict=True)]
    if not only:
        (JOURNALS / _COMPLETE).touch()
    return report(table)


def report(table: dict[str, list[int]]) -> int:
    total = [sum(column) for column in zip(*table.values(), strict=True)] or [0] * len(_COLUMNS)
    print("| Area |", " | ".join(_COLUMNS), "|")
    print("| --- |", " | ".join(["---:"] * len(_COLUMNS)), "|")
    for area, row in {**table, "all": total}.items():
        print(f"| {area} |", " | ".join(f"{number:,}" for number in row), "|")
    return int(bool(total[-1]) or not total[1])


def _figures(row: list[int]) -> str:
    said = ", ".join(f"{n} {name}" for n, name in zip(row, _COLUMNS[1:], strict=True) if n)
    return said or "nothing is called that can be compiled"


def compare(suite: Suite, source: str, seconds: float = SECONDS_A_FILE) -> Compared:
    run_in = functools.partial(_run, suite, source, seconds)
    plain = run_in("plain", hostcall=False, compiled=False)
    if WHOLE_FILE in plain:
        detail = plain[WHOLE_FILE].detail.strip().splitlines()[-1:]
        return Compared(note=f"cannot be run: {''.join(detail)}")
    passing = [test for test, outcome in plain.items() if outcome.kind == "passed"]
    if not passing:
        return Compared()
    ours = run_in("compiled", hostcall=True, compiled=True, chosen=passing)
    failing = [test for test, outcome in ours.items() if outcome.kind != "passed"]
    listed = known_of("compiled", suite)
    known = listed.intersection(failing)
    new = [test for test in failing if test not in known]
    mended = listed.difference(failing).intersection(ours)
    ended = [test for test in new if ours[test].kind != TOO_LONG]
    stock = run_in("stock", hostcall=False, compiled=True, chosen=ended) if ended else {}
    return Compared(
        tests=sum(bool(o.calls) or test in failing for test, o in ours.items()),
        calls=sum(outcome.calls for outcome in ours.values()),
        known=len(known),
        differences=[
            *(_describe(test, ours[test], stock.get(test)) for test in new),
            *(f"  DIFFERS NO MORE: {test}" for test in mended),
        ],
    )


def _run(
    suite: Suite, source: str, seconds: float, way: str, hostcall: bool, compiled: bool,
    chosen: list[str] | None = None,
) -> dict[str, Outcome]:  # fmt: skip
    journal = JOURNALS / f"{suite.file.replace('/', '.')}.{way}.jsonl"
    return run(suite, source, hostcall, chosen, SECONDS_A_TEST, compiled, seconds, journal,
               run_forked)  # fmt: skip


def _describe(test: str, ours: Outcome, stock: Outcome | None) -> str:
    last = collections.deque(filter(str.strip, ours.detail.splitlines()), 3)
    return "\n".join(
        [
            f"  DIFFERS: {test}",
            f"    compiled with hostcall: {ours.kind}",
            f"    compiled without it: {stock.kind if stock else 'not run'}",
            *(f"      {line[:300]}" for line in last),
        ]
    )
