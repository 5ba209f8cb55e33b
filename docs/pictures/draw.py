"""Draws the pictures of docs/architecture.md: `python docs/pictures/draw.py` writes them again.

A picture is a list of bands, each with a heading and rows of boxes. A box has a title and a line
below it, mostly the file that does the work. Each row leads to the next one.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

Box = tuple[str, str]
Band = tuple[str, list[list[Box]]]

FOLDER = Path(__file__).parent

WIDTH, MARGIN, GAP = 620, 16, 20
BOX, HEADING, BETWEEN = 44, 30, 20

PICTURES: dict[str, list[Band]] = {
    "custom-call": [
        (
            "The user's function is traced",
            [
                [("tf.numpy_function(f, [x], T)", "the user's program")],
                [("The op is created", "_ops/emit/script_ops.py")],
                [("f becomes a spec, which the graph owns", "_ops/callback_spec.py")],
            ],
        ),
        (
            "TensorFlow creates the kernel of the must-compile function",
            [
                [("The kernel hook takes over", "tensorflow/kernel_creator.cc")],
                [("All script ops can be custom calls", "_compiler/route_selection.py")],
                [("The order of calls is written down", "_compiler/one_program/ordering.py")],
            ],
        ),
        (
            "XLA compiles",
            [
                [("The op asks what to emit", "tensorflow/script_op_kernel.cc")],
                [("Shapes of the results; lowering", "_compiler/one_program/lowering.py")],
                [('Custom call "hostcall", callback id 7', "one XLA program")],
            ],
        ),
        (
            "The program runs",
            [
                [("XLA reaches the call", "runtime/handler.cc")],
                [("The callback by its id; its arrays", "runtime/call.cc, runtime/arguments.cc")],
                [("f(x)", "Python, on the host")],
                [("Results are checked and copied out", "runtime/results.cc")],
            ],
        ),
    ],
    "partitioned": [
        (
            "TensorFlow creates the kernel of the must-compile function",
            [
                [("The kernel hook takes over", "_compiler/kernel_hook.py")],
                [("A script op cannot be a custom call", "_compiler/route_selection.py")],
                [("Which nodes stay on the host", "_compiler/analyses/host_ops.py")],
                [
                    (
                        "Which of the others are compiled together",
                        "hostcall_runtime/_scheduling.py",
                    )
                ],
                [("Values that cross become arguments", "_compiler/clusters/partitioner.py")],
            ],
        ),
        (
            "program__partitioned(x) runs on the host",
            [
                [("x", "argument")],
                [("Cluster 0: y = sin(x)", "an XLA program")],
                [("Host op: z = f(y)", "Python, on the host")],
                [("Cluster 1: z + y", "an XLA program; y is from cluster 0")],
                [("result", "as of the whole function")],
            ],
        ),
    ],
    "exported": [
        (
            "Process A, with TensorFlow: hostcall.export",
            [
                [("The function is traced for known sizes", "_export/exporting.py")],
                [("XLA's program, its calls in order", "_export/exporting.py")],
                [("Callbacks by qualified names", "_export/exporting.py")],
                [("Portable StableHLO", "program/portable.py")],
            ],
        ),
        (
            "A directory",
            [
                [
                    ("program.stablehlo", "the program"),
                    ("manifest.json", "names, hashes"),
                    ("variables.npz", "values"),
                ]
            ],
        ),
        (
            "Process B: hostcall_mlir.load with JAX, or hostcall.load with TensorFlow",
            [
                [("All files are checked", "program/files.py")],
                [("The named functions are imported", "program/function_lookup.py")],
                [
                    ("JAX: ids, XLA's executable", "loading.py"),
                    ("TensorFlow: XlaCallModule", "_export/loading.py"),
                ],
                [("The same runtime calls the functions", "runtime/handler.cc")],
            ],
        ),
    ],
}

_STYLE = """
text { font-family: system-ui, sans-serif; fill: #1a1a2e; }
.heading { font-size: 14px; font-weight: 600; }
.title { font-size: 14px; text-anchor: middle; }
.detail { font: 12px ui-monospace, monospace; text-anchor: middle; fill: #44475a; }
.band { fill: #f3f4f8; stroke: #d5d8e4; }
.box { fill: #ffffff; stroke: #3f51b5; stroke-width: 1.2; }
.arrow { stroke: #3f51b5; stroke-width: 1.4; fill: none; marker-end: url(#head); }
"""

_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#3f51b5"/></marker></defs>'
)


def draw(name: str) -> str:
    """Return a picture as SVG."""
    top, shapes = float(MARGIN), [_HEAD]
    for number, (heading, rows) in enumerate(PICTURES[name]):
        if number:
            shapes += _arrows([WIDTH / 2], top, [WIDTH / 2], top + BETWEEN)
            top += BETWEEN
        height = HEADING + len(rows) * (BOX + BETWEEN) - BETWEEN + MARGIN
        shapes.append(_rect("band", MARGIN / 2, top, WIDTH - MARGIN, height))
        shapes.append(_text("heading", MARGIN + 4, top + 20, heading))
        shapes += _rows(rows, top + HEADING)
        top += height
    size = f"{WIDTH} {top + MARGIN:g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{WIDTH}" '
        f'role="img">\n<style>{_STYLE}</style>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def _rows(rows: list[list[Box]], top: float) -> list[str]:
    """Draw the boxes of a band, and arrows from each row to the next."""
    shapes: list[str] = []
    above: list[float] = []
    for row in rows:
        places = _places(row)
        centers = [x + width / 2 for x, width in places]
        shapes += [_box(box, x, top, width) for box, (x, width) in zip(row, places, strict=True)]
        shapes += _arrows(above, top - BETWEEN, centers, top)
        above, top = centers, top + BOX + BETWEEN
    return shapes


def _places(row: list[Box]) -> list[tuple[float, float]]:
    """Return the start and the width of each box of a row."""
    inside = WIDTH - 4 * MARGIN
    width = min((inside - GAP * (len(row) - 1)) / len(row), 420)
    left = (WIDTH - len(row) * width - (len(row) - 1) * GAP) / 2
    return [(left + i * (width + GAP), width) for i in range(len(row))]


def _box(box: Box, x: float, y: float, width: float) -> str:
    title, detail = box
    center = x + width / 2
    return "".join(
        (
            _rect("box", x, y, width, BOX),
            _text("title", center, y + 19, title),
            _text("detail", center, y + 36, detail),
        )
    )


def _arrows(starts: list[float], top: float, ends: list[float], bottom: float) -> list[str]:
    """From each start to each end."""
    return [
        f'<path class="arrow" d="M{start:g} {top:g} L{end:g} {bottom - 2:g}"/>'
        for start in starts
        for end in ends
    ]


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
    )


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


if __name__ == "__main__":
    for picture in PICTURES:
        (FOLDER / f"{picture}.svg").write_text(draw(picture), encoding="utf-8")
