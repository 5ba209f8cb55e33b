"""The figures of a run, as they stand in three pages between two comments.

README.md has what real programs cost. docs/performance.md, for users, has the cost of each program
beside another one. README.md of this folder, for developers, has the goals, and whether they are
met.
"""

import json
import re
import statistics
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


# The ways whose ratios to graph mode the pages show, for each of the real programs.
RATIOS = (
    "hostcall",
    "hostcall.bind",
    "clusters by hand",
    "stock jit",
    "first call by hostcall",
    "first call by stock jit",
)


def real_programs(answer: Answer) -> str:
    """Return the section of the real programs: their ratios to graph mode, and the goal."""
    ratios = {row["name"]: row["ratio"]["median"] for row in _compared(answer)}
    ours = {row["name"]: row for row in answer["rows"] if row["goal"]}

    def cells(program: str) -> list[str]:
        found = (ratios.get(f"{program}, {way}") for way in RATIOS)
        return ["error" if ratio is None else f"{ratio:.2f}" for ratio in found]

    names = [name.removesuffix(", hostcall") for name in ours]
    table = _table(("beside graph mode", *RATIOS), [[n, *cells(n)] for n in names])
    above = sum(row["met"] is False for row in ours.values())
    goal = (
        f"Median of hostcall: {statistics.median(ratios[name] for name in ours):.2f}. "
        f"Goal: at most 1.05 in each; {above} of {len(ours)} are above it."
    )
    return f"### {answer['title']}\n\n{table}\n\n{goal}\n\n{_machine(answer['machine'])}"


# The real programs that README.md shows, and the ways to run them.
SHOWN = (
    "DETR's matcher, with gradients",
    "soft-NMS of 200 boxes",
    "an environment in a loop",
    "a metric of scikit-learn",
    "BLEU as a reward, with gradient",
    "a progress line",
    "words by a table, embedded",
    "a sparse solve and its adjoint",
    "a median for each row",
    "k-means",
)
WAYS = ("graph mode", "stock jit", "hostcall", "hostcall.bind")


def milliseconds(answers: Mapping[str, Answer]) -> str:
    """Return the table of README.md: the milliseconds a step of real programs, by each way."""
    answer = answers["programs"]
    costs = {row["name"]: row["cost"]["median"] for row in answer["rows"]}

    def cell(program: str, way: str) -> str:
        cost = costs.get(f"{program}, {way}")
        return "error" if cost is None else f"{1e3 * cost:.2f}"

    rows = [(program, *(cell(program, way) for way in WAYS)) for program in SHOWN]
    return f"{_table(('milliseconds a step', *WAYS), rows)}\n\n{_machine(answer['machine'])}"


def _of_each(section: Callable[[Answer], str]) -> Callable[[Mapping[str, Answer]], str]:
    """Return what makes a section of each question; that of the real programs has one form."""

    def sections(answers: Mapping[str, Answer]) -> str:
        makers = {"programs": real_programs}
        made = (makers.get(name, section)(answer) for name, answer in answers.items())
        return "\n\n".join(filter(None, made))

    return sections


# What makes the figures of a page, and the question that it cannot do without.
PAGES: dict[str, tuple[Callable[[Mapping[str, Answer]], str], str | None]] = {
    "README.md": (milliseconds, "programs"),
    "docs/performance.md": (_of_each(figures), None),
    "benchmarks/README.md": (_of_each(goals), None),
}


def rewritten(text: str, page: str, directory: Path) -> str:
    """Return a page, one of `PAGES`, with the figures of a directory of answers.

    Where a question has no answer there, its section stays as it is.
    """
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{page} has lost one of the two lines that the figures stand between. "
            f"Put them back, one below the other:\n{BEGIN}\n{END}"
        )
    (make, question), answers = PAGES[page], read_answers(directory)
    if question is not None and question not in answers:
        return text
    made = make(answers)
    if question is None and len(answers) < len(QUESTIONS):
        made = _merged(old, made)
    return before + "\n\n".join([BEGIN, made, END]) + after


def _merged(old: str, new: str) -> str:
    """Return the sections of both; one in `new` replaces that of its title, or comes first."""
    olds, news = (
        {section.partition("\n")[0]: f"### {section.strip()}" for section in sections}
        for sections in (re.split("^### ", text, flags=re.MULTILINE)[1:] for text in (old, new))
    )
    added = {title: text for title, text in news.items() if title not in olds}
    return "\n\n".join((added | olds | news).values())


def renew(page: str, directory: Path) -> None:
    """Write the figures of a directory of answers into a page."""
    path = ROOT / page
    path.write_text(rewritten(path.read_text(encoding="utf-8"), page, directory), encoding="utf-8")


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
