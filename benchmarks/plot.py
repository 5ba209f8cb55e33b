"""The plots of docs/performance.md, and the figures of the pages, from build/benchmarks/*.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks import report, size
from benchmarks.page import PAGES, ROOT, Answer, read_answers, renew

# hostcall's own lines have strong colours. The colours differ in lightness, too.
STYLES = {
    size.NUMPY: ("#0b5cad", "o", "hostcall, numpy_function"),
    size.EAGER: ("#4fa3e0", "s", "hostcall, py_function"),
    size.GRAPH: ("#d9822b", "^", "graph mode, numpy_function"),
    size.JAX: ("#7a3e9d", "D", "jax.pure_callback"),
    size.BARE: ("#555555", "x", "bare call, a copy in and out"),
    size.NONE: ("#9a9a9a", "", "compiled, no callback"),
}

Row = Mapping[str, Any]


def draw_size(answer: Answer, path: Path) -> None:
    """Draw the time of a call against its size, and the same beside the bare limit."""
    figure, (cost, ratio) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, style in STYLES.items():
        rows = {
            row["name"].removeprefix(f"{name}, "): row
            for row in answer["rows"]
            if row["peer"] is None or row["peer"].startswith(size.BARE)
        }
        ours = [(size.SIZES[label] * 4, row) for label, row in rows.items() if label in size.SIZES]
        _line(cost, [(of, row["cost"]) for of, row in ours], 1e6, style)
        one = {"median": 1.0, "low": 1.0, "high": 1.0}
        _line(ratio, [(of, row["ratio"] or one) for of, row in ours], 1, style)
    cost.set(ylabel="microseconds a call", title="One call")
    ratio.set(ylabel="times the bare call and its copies", title="The same beside the bare limit")
    for axes in (cost, ratio):
        axes.set(xlabel="bytes of the array", xscale="log", yscale="log")
        axes.grid(alpha=0.3)
    cost.legend(frameon=False, fontsize="small")
    _save(figure, path)


def draw_loop(answer: Answer, path: Path) -> None:
    """Draw the cost of a call in the compiled loop, one bar for each program."""
    rows: Sequence[Row] = answer["rows"]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    names = [row["name"] for row in rows]
    medians = [row["cost"]["median"] * 1e6 for row in rows]
    colours = ["#0b5cad" if name.startswith("compiled") else "#b5b5b5" for name in names]
    bars = axes.barh(names, medians, color=colours)
    axes.bar_label(bars, [f" {report.number(median)}" for median in medians], fontsize="small")
    axes.set(xscale="log", xlabel="microseconds a call", title="One of 10,000 calls in a loop")
    axes.invert_yaxis()
    _save(figure, path)


def _line(axes: Axes, points: list[tuple[int, Row]], unit: float, style: tuple[str, ...]) -> None:
    colour, marker, label = style
    sizes = [of for of, _ in points]
    medians, lows, highs = (
        [spread[key] * unit for _, spread in points] for key in ("median", "low", "high")
    )
    axes.plot(sizes, medians, color=colour, marker=marker, markersize=4, label=label)
    axes.fill_between(sizes, lows, highs, color=colour, alpha=0.2, linewidth=0)


def _save(figure: Any, path: Path) -> None:
    # Without a date and random names, a plot of the same figures is the same file.
    with mpl.rc_context({"svg.hashsalt": "hostcall", "svg.fonttype": "none"}):
        figure.savefig(path, facecolor="white", metadata={"Date": None})
    plt.close(figure)


PLOTS = {"size": draw_size, "loop": draw_loop}


def main() -> None:
    answers = read_answers(report.DIRECTORY)
    for name, draw in PLOTS.items():
        if name in answers:
            draw(answers[name], ROOT / "docs" / f"performance-{name}.svg")
    for page in PAGES:
        renew(page, report.DIRECTORY)


if __name__ == "__main__":
    mpl.use("svg")
    main()
