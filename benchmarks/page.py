"""The figures of a run, as they stand in two pages between two comments.

docs/performance.md, for users, has the cost of each program beside another one. README.md of this
folder, for developers, has the goals, and whether they are met.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import QUESTIONS
from benchmarks.report import Spread, seconds, verdict

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- Figures, by `make bench`: what stands from here to the end mark is written over. -->"
END = "<!-- End of the figures. -->"

Answer = Mapping[str, Any]
Row = Mapping[str, Any]


def read_answers(directory: Path) -> dict[str, Answer]:
    """Return the answers to the questions, in their order, without questions never asked."""
    paths = {name: directory / f"{name}.json" for name in QUESTIONS}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def figures(answer: Answer) -> str:
    """Return the section of a question in docs/performance.md: the ratio of each row."""
    table = _table(("program", "beside", "ratio (quartiles)"), map(_ratio, _compared(answer)))
    return f"### {answer['title']}\n\n{table}\n\n{_machine(answer['machine'])}"


def goals(answer: Answer) -> str:
    """Return the section of a question in README.md: the rows that have a goal."""
    rows = [(*_ratio(row), *_goal(row)) for row in _compared(answer) if row["goal"]]
    if not rows:
        return ""
    table = _table(("program", "beside", "ratio (quartiles)", "goal", "met"), rows)
    return f"### {answer['title']}\n\n{table}\n\n{_machine(answer['machine'])}"


PAGES: dict[str, Callable[[Answer], str]] = {
    "docs/performance.md": figures,
    "benchmarks/README.md": goals,
}


def rewritten(text: str, page: str, directory: Path) -> str:
    """Return a page, one of `PAGES`, with the figures of a directory of answers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{page} has lost one of the two lines that the figures stand between. "
            f"Put them back, one below the other:\n{BEGIN}\n{END}"
        )
    parts = [PAGES[page](answer) for answer in read_answers(directory).values()]
    return before + "\n\n".join([BEGIN, *filter(None, parts), END]) + after


def _compared(answer: Answer) -> list[Row]:
    return [row for row in answer["rows"] if row["ratio"] is not None]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _ratio(row: Row) -> tuple[str, str, str]:
    return row["name"], row["peer"], str(Spread(**row["ratio"]))


def _goal(row: Row) -> tuple[str, str]:
    goal: str = row["goal"]
    if "more" in goal:  # the ratio does not show the distance to this goal
        goal += f": {seconds(row['more']['median'])}"
    return goal, verdict(row["goal"], row["met"])


def _machine(facts: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Taken on {facts['date']} with {facts['cores']} cores of {facts['cpu']}, "
        f"{facts['memory_gib']} GiB of memory, at a load average of {facts['load_before']} before; "
        f"Python {facts['python']}, {versions}."
    )
