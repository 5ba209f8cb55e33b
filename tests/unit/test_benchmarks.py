"""The benchmarks run, and compare what they say; how long things take is not asserted."""

import csv
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ON_GPU, QUESTIONS, compare, gpu, history, page, programs, report
from benchmarks.programs.program import Program
from benchmarks.report import at_most
from benchmarks.timing import QUICK, Samples
from tests.gpu import found


@pytest.mark.full_run("takes long: each benchmark runs")
@pytest.mark.parametrize("name", QUESTIONS)
def test_question_answers_with_rows_that_name_their_peers(name: str, capsys: Any) -> None:
    question = importlib.import_module(f"benchmarks.{name}")
    rows = question.main(QUICK)
    report.show(question.TITLE, rows)
    assert question.TITLE in capsys.readouterr().out
    names = {row.name for row in rows}
    assert names
    assert {row.peer for row in rows if row.peer is not None} <= names
    assert all(row.cost.low <= row.cost.median <= row.cost.high for row in rows)


@pytest.mark.full_run("takes long: compiles each program")
@pytest.mark.parametrize("program", programs.programs(), ids=lambda program: program.name)
def test_real_programs_compute_the_same_as_in_graph_mode(program: Program) -> None:
    assert programs.agree(program.compiled()(), program.in_graph()())


@pytest.mark.parametrize(
    ("kind", "first"), [("tensorflow", {gpu.TENSORFLOW}), ("jax", {gpu.JAX, gpu.PEER})]
)
def test_the_programs_for_gpus_run_on_the_cpu(kind: str, first: set[str]) -> None:
    rows = gpu.rows(QUICK, (kind,), "CPU:0")
    names = {row.name for row in rows}
    assert {row.peer for row in rows if row.peer is not None} <= names
    assert {name.split()[0] for name in names} == first


def test_without_a_gpu_there_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = found.Found("none", (), {}, (), ())
    monkeypatch.setattr(found, "find", lambda: nothing)
    with pytest.raises(SystemExit) as ended:
        gpu.main(QUICK)
    assert ended.value.code == found.NO_GPU


SAMPLES = {"bare": Samples([1e-6, 1e-6]), "ours": Samples([2e-6, 4e-6])}


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up answer of one question, as JSON."""
    monkeypatch.setattr(report, "DIRECTORY", tmp_path)
    rows = [report.alone("bare", SAMPLES["bare"])]
    rows += [report.beside(SAMPLES, "ours", "bare", goal) for goal in (at_most(3), at_most(2))]
    facts = {"cpu": "a CPU", "cores": 2, "memory_gib": 8, "load_before": 0.0, "date": "2026-01-01"}
    machine = facts | {"python": "3.11", "versions": {"numpy": "2"}}
    return report.write("loop", "A loop", rows, machine)


@pytest.mark.parametrize("name", page.PAGES)
def test_pages_have_their_marks(answers: Path, name: str) -> None:
    text = (page.ROOT / name).read_text(encoding="utf-8")
    written = page.rewritten(text, name, answers.parent)
    assert text == written if name == "README.md" else "A loop" in written


def test_pages_have_a_row_for_each_real_program(answers: Path) -> None:
    costs = {f"{one}, {way}": 0.001 for one in page.SHOWN for way in ("graph mode", "hostcall")}
    costs[f"{page.SHOWN[0]}, hostcall"] = 0.003
    samples = {name: Samples([cost]) for name, cost in costs.items()}
    rows = [report.alone(name, samples[name]) for name in costs if name.endswith("graph mode")]
    rows += [
        report.beside(samples, f"{one}, hostcall", f"{one}, graph mode", at_most(1.05))
        for one in page.SHOWN
    ]
    machine = json.loads(answers.read_text(encoding="utf-8"))["machine"]
    report.write("programs", programs.TITLE, rows, machine)
    empty = f"{page.BEGIN}\n{page.END}\n"
    written = page.rewritten(empty, "README.md", answers.parent)
    assert f"| {page.SHOWN[0]} | 1.00 | error | 3.00 | error |\n" in written
    old = f"{page.BEGIN}\n\n### A loop\n\nold\n\n### A question\n\nunanswered\n\n{page.END}\n"
    for name in ("docs/performance.md", "benchmarks/README.md"):
        written = page.rewritten(old, name, answers.parent)
        titles = re.findall("^### (.*)", written, re.MULTILINE)
        assert titles == [programs.TITLE, "A loop", "A question"]
        assert written.endswith(f"unanswered\n\n{page.END}\n")
        assert "old" not in written
        assert f"| {page.SHOWN[0]} | 3.00 | error | error | error | error | error |\n" in written
        assert "Median of hostcall: 1.00. Goal: at most 1.05 in each; 1 of 10 are above" in written


def test_readme_shows_programs_that_there_are() -> None:
    assert {*page.SHOWN} <= {program.name for program in programs.programs()}
    ways = [programs.COMPILED, programs.BOUND, programs.BY_HAND, programs.STOCK]
    first = [f"{programs.FIRST} {way}" for way in (programs.COMPILED, programs.STOCK)]
    assert [*page.RATIOS] == [*ways, *first]


def test_history_in_the_repository_can_be_read() -> None:
    with history.PATH.open(newline="", encoding="utf-8") as file:
        lines = [*csv.DictReader(file)]
    assert {line["question"] for line in lines} <= {*QUESTIONS, *ON_GPU}
    assert all(float(line["cost"]) > 0 for line in lines)


def test_what_is_slower_and_what_is_faster() -> None:
    noise = [1.0, 1.01, 0.99, 1.005, 0.995]
    base = [{"slow": 1.0, "fast": 1.0, "same": 1.0, "gone": 1.0} for _ in noise]
    here = [{"slow": 1.2 * n, "fast": 0.8 * n, "same": n, "new": 1.0} for n in noise]
    found = {change.program: change for change in compare.changes(base, here)}
    verdicts = {name: change.verdict for name, change in found.items()}
    assert verdicts == {"slow": "slower", "fast": "faster", "same": ""}
    slow = found["slow"]
    assert slow.low < slow.ratio < slow.high
    assert slow.ratio == pytest.approx(1.2, rel=0.01)
    assert slow.confidence > 0.95 > found["same"].confidence
