"""The benchmarks run, and compare what they say; how long things take is not asserted."""

import csv
import functools
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks import ON_GPU, QUESTIONS, compare, gpu, history, page, programs, report
from benchmarks.programs.program import Program
from benchmarks.report import Spread, about, at_least, at_most, at_most_more
from benchmarks.timing import QUICK, Samples, measure
from tests.gpu import found

FILES = {path.stem for folder in benchmarks.__path__ for path in Path(folder).glob("*.py")}
PACKAGES = {"programs"}
HELPERS = {"__init__", "__main__", "compare", "executor_functions", "history", "jax_programs"}
HELPERS |= {"native_programs", "page", "plot", "report", "steps", "timing"}


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


def test_every_file_is_a_question_or_a_helper() -> None:
    assert {*QUESTIONS, *ON_GPU, *HELPERS} == FILES | PACKAGES


@pytest.mark.parametrize("kinds", [("tensorflow",), ("jax",)])
def test_the_programs_for_gpus_run_on_the_cpu(kinds: tuple[str, ...]) -> None:
    rows = gpu.rows(QUICK, kinds, "CPU:0")
    names = {row.name for row in rows}
    assert {row.peer for row in rows if row.peer is not None} <= names
    programs = {"tensorflow": {gpu.TENSORFLOW}, "jax": {gpu.JAX, gpu.PEER}}
    assert {name.split()[0] for name in names} == set().union(*(programs[kind] for kind in kinds))


def test_without_a_gpu_there_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = found.Found("none", (), {}, (), ())
    monkeypatch.setattr(found, "find", lambda: nothing)
    with pytest.raises(SystemExit) as ended:
        gpu.main(QUICK)
    assert ended.value.code == found.NO_GPU


def test_ratios_are_taken_within_a_round() -> None:
    # The machine gets ten times slower after the first round, and the ratio stays.
    fast, slow = Samples([1.0, 10.0, 10.0]), Samples([2.0, 20.0, 20.0])
    row = report.beside({"fast": fast, "slow": slow}, "slow", "fast", at_most(2))
    assert row.ratio == Spread(2.0, 2.0, 2.0)
    assert row.met


def test_programs_are_measured_in_turn() -> None:
    order: list[str] = []
    samples = measure({name: functools.partial(order.append, name) for name in "ab"}, QUICK)
    # Each twice: the first call of a turn is not counted.
    assert order[-8:] == ["a", "a", "b", "b", "b", "b", "a", "a"]
    assert {len(taken.values) for taken in samples.values()} == {QUICK.rounds}


def test_goals_are_met_or_not() -> None:
    two, more = Spread(2.0, 1.95, 2.05), Spread(5e-6, 4e-6, 6e-6)
    met = [at_most(2), at_least(2), at_most_more(5e-6), about(2.01)]
    missed = [at_most(1.9), at_least(2.1), at_most_more(4e-6), about(1)]
    assert [goal.met(two, more) for goal in met + missed] == [True] * 4 + [False] * 4
    assert about(2).met(Spread(2.0, 1.8, 2.2), more) is None


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


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("docs/performance.md", "| ours | bare | 3 (2.5 to 3.5) |\n"),
        ("benchmarks/README.md", "| ours | bare | 3 (2.5 to 3.5) | at most 3 x | yes |\n"),
    ],
)
def test_pages_get_ratios_between_their_two_marks(answers: Path, name: str, row: str) -> None:
    text = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    written = page.rewritten(text, name, answers.parent)
    assert written.startswith(f"before\n{page.BEGIN}\n")
    assert written.endswith(f"{page.END}\nafter\n")
    assert "old" not in written
    assert "a CPU" in written
    assert row in written
    assert page.rewritten(written, name, answers.parent) == written


@pytest.mark.parametrize("name", page.PAGES)
def test_pages_have_their_marks(answers: Path, name: str) -> None:
    text = (page.ROOT / name).read_text(encoding="utf-8")
    written = page.rewritten(text, name, answers.parent)
    assert text == written if name == "README.md" else "A loop" in written


def test_readme_has_the_milliseconds_of_real_programs(answers: Path) -> None:
    costs = {way: Samples([0.001 * cost]) for cost, way in enumerate(page.WAYS, start=1)}
    del costs["stock jit"]
    rows = [
        report.alone(f"{one}, {way}", cost) for one in page.SHOWN for way, cost in costs.items()
    ]
    machine = json.loads(answers.read_text(encoding="utf-8"))["machine"]
    report.write("programs", "Programs", rows, machine)
    written = page.rewritten(f"{page.BEGIN}\n{page.END}\n", "README.md", answers.parent)
    assert written.count("| 1.00 | error | 3.00 |\n") == len(page.SHOWN)


def test_pages_have_a_row_for_each_real_program(answers: Path) -> None:
    samples = {
        f"{one}, {way}": Samples([1.0]) for one in "ab" for way in ("graph mode", "hostcall")
    }
    samples["a, hostcall"] = Samples([3.0])
    rows = [
        report.beside(samples, f"{one}, hostcall", f"{one}, graph mode", at_most(1.05))
        for one in "ab"
    ]
    machine = json.loads(answers.read_text(encoding="utf-8"))["machine"]
    report.write("programs", programs.TITLE, rows, machine)
    for name in ("docs/performance.md", "benchmarks/README.md"):
        written = page.rewritten(f"{page.BEGIN}\n{page.END}\n", name, answers.parent)
        assert "| a | 3.00 | error | error | error | error | error |\n" in written
        assert (
            "Median of hostcall: 2.00. Goal: at most 1.05 in each; 1 of 2 are above it." in written
        )


def test_readme_shows_programs_that_there_are() -> None:
    assert {*page.SHOWN} <= {program.name for program in programs.programs()}
    ways = [programs.COMPILED, programs.BOUND, programs.BY_HAND, programs.STOCK]
    first = [f"{programs.FIRST} {way}" for way in (programs.COMPILED, programs.STOCK)]
    assert [*page.RATIOS] == [*ways, *first]


def test_page_without_the_marks_is_refused(answers: Path) -> None:
    with pytest.raises(ValueError, match=r"performance\.md .* lines"):
        page.rewritten("no marks", "docs/performance.md", answers.parent)


def test_history_has_a_line_for_each_figure(tmp_path: Path) -> None:
    rows = [report.alone("bare", SAMPLES["bare"]), report.beside(SAMPLES, "ours", "bare")]
    facts = {"cpu": "a CPU, of a kind", "cores": 2, "load_before": 0.5, "date": "2026-01-01"}
    path = tmp_path / "history.csv"
    for _ in range(2):
        history.append(history.entries("loop", rows, facts), path)
    with path.open(newline="", encoding="utf-8") as file:
        lines = [*csv.DictReader(file)]
    assert [line["program"] for line in lines] == ["bare", "ours"] * 2
    assert lines[0]["beside"] == lines[0]["ratio"] == ""
    assert (lines[1]["beside"], float(lines[1]["ratio"])) == ("bare", 3.0)
    assert (lines[1]["cpu"], lines[1]["date"]) == ("a CPU, of a kind", "2026-01-01")
    assert lines[1]["commit"]


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


@pytest.mark.parametrize(
    ("pace", "ratios", "verdict"),
    [
        ([1.0, 3.0, 2.0, 1.5], [1.1, 1.11, 1.09, 1.1], "slower"),  # the machine gets slower
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], ""),
    ],
)
def test_ratios_are_those_of_runs_beside_each_other(pace: Any, ratios: Any, verdict: str) -> None:
    here = [{"a": p * ratio} for p, ratio in zip(pace, ratios, strict=True)]
    (change,) = compare.changes([{"a": p} for p in pace], here)
    assert change.ratio == pytest.approx(ratios[0], rel=0.001)
    assert change.verdict == verdict


def test_among_many_programs_chance_is_told_of_less() -> None:
    noise = [1.03, 1.01, 1.05]
    [alone] = compare.changes([{"a": 1.0}] * 3, [{"a": n} for n in noise])
    others = [f"p{i}" for i in range(50)]
    here = [{"a": n, **dict.fromkeys(others, 0.9 + 0.1 * i)} for i, n in enumerate(noise)]
    [one, *_] = compare.changes([dict.fromkeys(["a", *others], 1.0)] * 3, here)
    assert one.ratio == alone.ratio
    assert one.confidence < alone.confidence


@pytest.mark.parametrize(("base", "here"), [(1, 1), (2, 3), (0, 0)])
def test_too_few_runs_are_refused(base: int, here: int) -> None:
    with pytest.raises(ValueError, match="runs of the base"):
        compare.changes([{"a": 1.0}] * base, [{"a": 1.0}] * here)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-commit"], "there is no commit 'no-such-commit'"),
        (["HEAD", "no-such-question"], "there is no question 'no-such-question'"),
        (["HEAD", "--runs", "1"], "tells nothing"),
    ],
)
def test_wrong_comparisons(arguments: Any, said: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        compare.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
