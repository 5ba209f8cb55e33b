"""Writes the figures into docs/performance.md, between two comments, from the JSON of a run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import QUESTIONS
from benchmarks.report import Spread, seconds, verdict

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN = "<!-- Figures, by `make bench`: what stands from here to the end mark is written over. -->"
END = "<!-- End of the figures. -->"

HEADER = "| program | beside | ratio (quartiles) | goal | met |\n|---|---|---|---|---|"

Answer = Mapping[str, Any]


def read_answers(directory: Path) -> dict[str, Answer]:
    """What the questions were answered with, in their order; those never asked are left out."""
    paths = {name: directory / f"{name}.json" for name in QUESTIONS}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def rewritten(text: str, directory: Path) -> str:
    """The page with the figures of that directory.

    Raises ValueError if the page lacks the two comments.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            "docs/performance.md has lost one of the two lines that the figures stand between. "
            f"Put them back, one below the other:\n{BEGIN}\n{END}"
        )
    parts = [_section(answer) for answer in read_answers(directory).values()]
    return before + "\n\n".join([BEGIN, *parts, END]) + after


def _section(answer: Answer) -> str:
    lines = [_line(row) for row in answer["rows"] if row["ratio"] is not None]
    table = "\n".join([HEADER, *lines])
    return f"### {answer['title']}\n\n{table}\n\n{_machine(answer['machine'])}"


def _line(row: Mapping[str, Any]) -> str:
    goal = row["goal"] or ""
    if "more" in goal:  # no ratio tells how far that is
        goal += f": {seconds(row['more']['median'])}"
    cells = (
        row["name"],
        row["peer"],
        str(Spread(**row["ratio"])),
        goal,
        verdict(row["goal"], row["met"]),
    )
    return f"| {' | '.join(cells)} |"


def _machine(facts: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Taken on {facts['date']} with {facts['cores']} cores of {facts['cpu']}, "
        f"{facts['memory_gib']} GiB of memory, at a load average of {facts['load_before']} before; "
        f"Python {facts['python']}, {versions}."
    )
