"""`python -m benchmarks.compare BASE [QUESTION ...]`: finds programs slower or faster than at BASE.

The sources of the commit BASE are built in build/compare. Then each question is asked of them and
of these sources in turn, in separate processes, by the benchmarks as they are here. So both costs
of a program come from the same stretch of time. The exit status is 1 if a program is slower.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from scipy import stats

from benchmarks import QUESTIONS
from benchmarks.history import ROOT
from benchmarks.timing import FULL
from tests.support.native.trees import Tree

FOLDER = ROOT / "build" / "compare"

# A change is reported if it is larger than WORTH_TELLING and unlikely to be chance: at most a part
# of ERROR of the reported changes is expected to be chance.
WORTH_TELLING = 0.02
ERROR = 0.05

Costs = Mapping[str, float]  # seconds, by program


@dataclass(frozen=True)
class Change:
    """The cost of a program now, beside its cost at the base.

    Attributes:
      program: its name.
      ratio: the cost now to the cost then: the mean of the ratios of neighbouring runs.
      low, high: the 95 % confidence interval of the ratio.
      confidence: from 0 to 1, that the change is not by chance, given the number of programs.
    """

    program: str
    ratio: float
    low: float
    high: float
    confidence: float

    @property
    def verdict(self) -> str:
        """The word slower or faster, or "" if the runs show neither."""
        if self.confidence < 1 - ERROR or abs(self.ratio - 1) < WORTH_TELLING:
            return ""
        return "slower" if self.ratio > 1 else "faster"


def changes(base: Sequence[Costs], here: Sequence[Costs]) -> list[Change]:
    """Compare the costs of the programs that are in all runs; those at one place were neighbours.

    Raises:
      ValueError: if there are fewer than two runs, or the two lists differ in length.
    """
    if len(base) != len(here) or len(base) < 2:
        raise ValueError(f"{len(base)} runs of the base and {len(here)} of these sources")
    programs = [name for name in here[0] if all(name in costs for costs in (*base, *here))]
    logs = {
        name: [math.log(now[name] / then[name]) for then, now in zip(base, here, strict=True)]
        for name in programs
    }
    tests = {name: stats.ttest_1samp(values, 0.0) for name, values in logs.items()}
    chances = [1.0 if math.isnan(test.pvalue) else test.pvalue for test in tests.values()]
    adjusted = stats.false_discovery_control(chances) if chances else []
    found = []
    for (name, test), chance in zip(tests.items(), adjusted, strict=True):
        interval = test.confidence_interval(0.95)
        mean = sum(logs[name]) / len(logs[name])
        low, high = (mean if math.isnan(bound) else bound for bound in interval)
        ratio, least, most = map(math.exp, (mean, low, high))
        found.append(Change(name, ratio, least, most, 1.0 - float(chance)))
    return found


def resolved(base: str) -> str | None:
    """Return the hash of a commit, or None if no commit has that name."""
    ask = ["git", "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"]
    asked = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def check_out(base: str) -> Tree:
    """Check out and build the sources of a commit."""
    tree = Tree(FOLDER / "base")
    archive = subprocess.run(["git", "archive", base], cwd=ROOT, check=True, capture_output=True)
    shutil.rmtree(FOLDER / "next", ignore_errors=True)
    (FOLDER / "next").mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", "next"], cwd=FOLDER, input=archive.stdout, check=True)
    if tree.out.exists():
        shutil.move(tree.out, FOLDER / "next" / "out")
    shutil.rmtree(tree.path, ignore_errors=True)
    shutil.move(FOLDER / "next", tree.path)
    tree.prepare()
    tree.build()
    return tree


def ask(question: str, environment: Mapping[str, str]) -> Costs:
    """Ask a question once, and return the cost of each program."""
    answers = FOLDER / "answers"
    subprocess.run(
        [sys.executable, "-m", "benchmarks", question],
        cwd=ROOT,
        env={**environment, "HOSTCALL_BENCHMARKS": str(answers)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    answer = json.loads((answers / f"{question}.json").read_text(encoding="utf-8"))
    return {row["name"]: row["cost"]["median"] for row in answer["rows"]}


def compare(question: str, tree: Tree, runs: int) -> list[Change]:
    """Ask a question of both sources, `runs` times each, and return the changes."""
    places = {"base": tree.environment(), "here": dict(os.environ)}
    costs: dict[str, list[Costs]] = {name: [] for name in places}
    for number in range(runs):
        for name in [*places][:: -1 if number % 2 else 1]:
            costs[name].append(ask(question, places[name]))
    return changes(costs["base"], costs["here"])


def show(question: str, base: str, found: Sequence[Change]) -> None:
    table = Table(title=f"{question}, beside {base}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("program", overflow="fold")
    for name in ("now to then", "95 % interval", "confidence"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in found:
        interval = f"{one.low:.3f} to {one.high:.3f}"
        cells = (f"{one.ratio:.3f}", interval, f"{one.confidence:.1%}", one.verdict)
        table.add_row(one.program, *cells)
    console = Console()
    console.width = console.width if console.is_terminal else 140
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="a commit")
    parser.add_argument("questions", nargs="*", help=f"all if none: {', '.join(QUESTIONS)}")
    parser.add_argument("--runs", type=int, default=5, help="of each of the two, from 2 on (5)")
    parser.add_argument("--rounds", type=int, default=FULL.rounds, help="of each program in a run")
    given = parser.parse_args()
    if unknown := set(given.questions) - set(QUESTIONS):
        parser.error(f"there is no question {min(unknown)!r}")
    if given.runs < 2:
        parser.error("one run of each tells nothing of chance")
    if (commit := resolved(given.base)) is None:
        parser.error(f"there is no commit {given.base!r}")
    os.environ["HOSTCALL_BENCHMARK_ROUNDS"] = str(given.rounds)
    tree = check_out(commit)
    slower = []
    for question in given.questions or QUESTIONS:
        found = compare(question, tree, given.runs)
        show(question, given.base, found)
        slower += [one.program for one in found if one.verdict == "slower"]
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
