"""An explanation as an HTML page: pictures in SVG, and tables of the facts.

The page has no scripts and loads nothing, so it can be shown anywhere. All text from the user's
program is escaped.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from hostcall._explain import labels
from hostcall._explain.callback_facts import through
from hostcall._explain.facts import Cluster, Function, HostOp, Risk, ScriptOp, Step
from hostcall_runtime._errors import counted

# The class stands in `explanation`, which draws by this module.
Explanation = Any

_GAP = 28.0
_ROW_GAP = 44.0
_LANE = 14.0  # the width that an edge takes where it crosses a row
_SWEEPS = 4
# With more lanes than this, edges go straight.
_MOST_LANES = 2000

# A box, or the lane of an edge that crosses a row: (from, to, row).
_Item = str | tuple[str, str, int]


@dataclasses.dataclass
class Layout:
    """The positions of boxes and edges.

    Attributes:
      corners: the upper left corner of each box.
      paths: for each edge the points that it goes through.
      width, height: the size of the whole.
    """

    corners: dict[str, tuple[float, float]]
    paths: dict[tuple[str, str], list[tuple[float, float]]]
    width: float
    height: float


def arrange(
    sizes: Mapping[str, tuple[float, float]], before: Mapping[str, Sequence[str]]
) -> Layout:
    """Arrange boxes in rows, each box below the boxes that its edges come from.

    Args:
      sizes: width and height of each box, in an order in which they can run.
      before: for each box the boxes that an edge comes from.
    """
    row_of: dict[str, int] = {}
    for name in sizes:
        row_of[name] = 1 + max((row_of[source] for source in before[name]), default=-1)
    rows: list[list[_Item]] = [[] for _ in range(1 + max(row_of.values(), default=-1))]
    for name, row in row_of.items():
        rows[row].append(name)
    edges = [(source, name) for name in sizes for source in before[name]]
    above = _add_lanes(rows, row_of, edges)
    _sort(rows, above)
    centers, tops, width, height = _place(rows, sizes)
    corners = {name: (centers[name] - sizes[name][0] / 2, tops[row_of[name]]) for name in sizes}
    paths = {}
    for source, name in edges:
        points = [(centers[source], corners[source][1] + sizes[source][1])]
        for row in range(row_of[source] + 1, row_of[name]):
            lane = (source, name, row)
            if lane in centers:
                bottom = max(sizes[n][1] for n in rows[row] if isinstance(n, str))
                points += [(centers[lane], tops[row]), (centers[lane], tops[row] + bottom)]
        points.append((centers[name], corners[name][1]))
        paths[source, name] = points
    return Layout(corners, paths, width, height)


def _add_lanes(
    rows: list[list[_Item]], row_of: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> dict[_Item, list[_Item]]:
    """Add a lane to each row that an edge crosses; return the items above each item."""
    above: dict[_Item, list[_Item]] = {item: [] for row in rows for item in row}
    lanes = sum(row_of[name] - row_of[source] - 1 for source, name in edges)
    for source, name in edges:
        last: _Item = source
        if lanes <= _MOST_LANES:
            for row in range(row_of[source] + 1, row_of[name]):
                lane = (source, name, row)
                rows[row].append(lane)
                above[lane] = [last]
                last = lane
        above[name].append(last)
    return above


def _sort(rows: list[list[_Item]], above: Mapping[_Item, Sequence[_Item]]) -> None:
    """Sort each row by the mean position of its items' neighbours, so that few edges cross."""
    below: dict[_Item, list[_Item]] = {item: [] for item in above}
    for item, sources in above.items():
        for source in sources:
            below[source].append(item)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        position: dict[_Item, float] = {}
        for row in rows if down else reversed(rows):
            position.update({item: float(i) for i, item in enumerate(row)})
            center = {
                item: _mean([position[n] for n in neighbours[item]], position[item]) for item in row
            }
            row.sort(key=center.__getitem__)
            position.update({item: float(i) for i, item in enumerate(row)})


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _place(
    rows: list[list[_Item]], sizes: Mapping[str, tuple[float, float]]
) -> tuple[dict[_Item, float], list[float], float, float]:
    """Return the center of each item, the top of each row, and the size of the whole."""

    def width_of(item: _Item) -> float:
        return sizes[item][0] if isinstance(item, str) else _LANE

    widths = [sum(map(width_of, row)) + _GAP * (len(row) - 1) for row in rows]
    width = max(widths, default=0.0)
    centers: dict[_Item, float] = {}
    tops = []
    top = 0.0
    for row, row_width in zip(rows, widths, strict=True):
        left = (width - row_width) / 2
        for item in row:
            centers[item] = left + width_of(item) / 2
            left += width_of(item) + _GAP
        tops.append(top)
        top += max(sizes[item][1] for item in row if isinstance(item, str)) + _ROW_GAP
    return centers, tops, width, max(top - _ROW_GAP, 0.0)


_CHARACTER = 7.3  # the width at 12 px in the widest of the usual monospaced fonts
_LINE = 17.0
_PADDING = 10.0
_PICTURE_COLUMNS = 44
_MOST_LINES = 6
_MARGIN = 4.0

_marker_numbers = itertools.count()


@dataclasses.dataclass
class _Line:
    text: str
    style: str = ""


@dataclasses.dataclass
class _Box:
    kind: str
    lines: list[_Line]
    inner: list[list[_Line]]
    hint: str
    parts: list[_Part] = dataclasses.field(default_factory=list)

    @property
    def size(self) -> tuple[float, float]:
        """The width and height that all lines and parts fit into."""
        lines = [*self.lines, *itertools.chain(*self.inner)]
        longest = max((len(line.text) for line in lines), default=0)
        inset = 2 * _PADDING if self.inner else 0.0
        height = _LINE * len(lines) + len(self.inner) * 1.6 * _PADDING
        width = longest * _CHARACTER + 2 * _PADDING + inset
        for part in self.parts:
            width = max(width, part.width + 4 * _PADDING)
            height += part.height + _LINE + 3 * _PADDING
        return width, height + 1.4 * _PADDING


@dataclasses.dataclass
class _Part:
    """A drawing within a box, of a loop's body or of a branch; `draw` takes its corner."""

    title: str
    draw: Callable[[float, float], str]
    width: float
    height: float


def _drawing(
    function: Function,
    inside: Mapping[str, Sequence[ScriptOp]],
    functions: Mapping[str, Function],
) -> str:
    """Return the SVG of a function.

    Args:
      function: the function to draw.
      inside: the script ops in each cluster, by the cluster's name.
      functions: the functions that its loops and branches may run, by name; drawn in their boxes.
    """
    marker = f"hostcall-arrow-{next(_marker_numbers)}"
    part = _part(function, inside, functions, marker)
    return "\n".join([_opening(function, part, marker), part.draw(0.0, 0.0), "</g></svg>"])


def _part(
    function: Function,
    inside: Mapping[str, Sequence[ScriptOp]],
    functions: Mapping[str, Function],
    marker: str,
) -> _Part:
    steps = [step for step in function.steps if not labels.is_plumbing(step)]
    boxes = {step.node: _box(step, inside) for step in steps}
    # A recursive function is not drawn within itself.
    others = {name: other for name, other in functions.items() if name != function.name}
    for step in steps:
        for part in labels.parts_of(step, others):
            boxes[step.node].parts.append(_part(part, inside, others, marker))
    waits = [(step.node, step.takes_from, step.waits_for) for step in function.steps]
    # For each box, the boxes that it waits for and whether a value comes from there.
    edges = through(waits, set(boxes))
    before = {name: list(edges[name]) for name in boxes}
    layout = arrange({name: box.size for name, box in boxes.items()}, before)

    def draw(x: float, y: float) -> str:
        drawn = []
        for (source, name), points in layout.paths.items():
            kind = "value" if edges[name][source] else "order"
            curve = _curve([(x + left, y + top) for left, top in points])
            drawn.append(f'<path class="{kind}" d="{curve}" marker-end="url(#{marker})"/>')
        for name, box in boxes.items():
            left, top = layout.corners[name]
            drawn.append(_draw(box, x + left, y + top))
        return "\n".join(drawn)

    return _Part(labels.role(function), draw, layout.width, layout.height)


def _opening(function: Function, part: _Part, marker: str) -> str:
    width, height = part.width + 2 * _MARGIN, part.height + 2 * _MARGIN
    label = escape(f"how {labels.short_name(function.name)} runs", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<defs><marker id="{marker}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">'
    )


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Return a line through points that leaves and reaches each of them vertically."""
    x, y = points[0]
    d = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in points[1:]:
        if next_x == x:
            d.append(f"L{next_x:.1f} {next_y:.1f}")
        else:
            middle = (y + next_y) / 2
            d.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return " ".join(d)


def _box(step: Step, inside: Mapping[str, Sequence[ScriptOp]]) -> _Box:
    if isinstance(step, Cluster):
        ops = labels.working(step.ops)
        lines = [_Line(_title(step), "name"), _Line(counted(len(ops), "op"), "dim")]
        lines += [_Line(line) for line in _wrapped(labels.summary(ops))]
        hint = "\n".join([step.name, *(f"{op.op} {op.node}" for op in ops)])
        return _Box("cluster", lines, *_inner(inside.get(step.name, ()), step.path, hint))
    if isinstance(step, ScriptOp):
        lines = _script_op_lines(step)
        lines += [_Line(line, "dim") for line in _wrapped(f"why here: {step.reason}")]
        return _Box("python", lines, [], f"{step.node}\n{step.location}\n{step.reason}")
    return _host_op(step)


def _inner(
    ops: Sequence[ScriptOp], path: str, hint: str = ""
) -> tuple[list[list[_Line]], str, list[_Part]]:
    """Return the lines of the script ops at a box's path, its hint, and its loops and branches."""
    lines: list[list[_Line]] = []
    deeper: dict[str, list[ScriptOp]] = {}
    start = f"{path} > " if path else ""
    for op in ops:
        if op.path == path or not op.path.startswith(start):
            lines.append(_script_op_lines(op))
        else:
            step = op.path.removeprefix(start).partition(" > ")[0]
            deeper.setdefault(start + step, []).append(op)
    parts = []
    for place, others in sorted(deeper.items(), key=lambda item: labels.rank(item[0])):
        box = _Box("bare", [], *_inner(others, place))
        parts.append(_Part(labels.role_of(place), functools.partial(_draw, box), *box.size))
    return lines, hint, parts


def _title(cluster: Cluster) -> str:
    """Return a short title: the number of a cluster, or the name of a compiled function."""
    _, separator, number = cluster.name.rpartition("__cluster_")
    return f"cluster {number}" if separator else f"{labels.short_name(cluster.name)}, compiled"


def _script_op_lines(op: ScriptOp) -> list[_Line]:
    lines = [_Line(line, "name") for line in _wrapped(labels.callback(op))]
    lines.append(_Line(f"{op.kind}{_at(op.location)}", "dim"))
    return lines + [_Line(line) for line in _wrapped(labels.shapes(op))]


def _host_op(step: HostOp) -> _Box:
    lines = [_Line(step.op, "name")]
    if step.location:
        lines.append(_Line(_at(step.location).strip(), "dim"))
    if step.calls and not step.op.endswith(("While", "If", "Case")):
        names = ", ".join(labels.short_name(name) for name in step.calls)
        lines += [_Line(line) for line in _wrapped(f"calls {names}")]
    lines += [_Line(line, "dim") for line in _wrapped(f"why here: {step.reason}")]
    return _Box("other", lines, [], f"{step.node}\n{step.location}\n{step.reason}")


def _at(location: str) -> str:
    """Return the file name and line of a location; the hint of the box has the whole path."""
    return f" {os.path.basename(location)}" if location else ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _PICTURE_COLUMNS, max_lines=_MOST_LINES, placeholder=" …") or [""]


def _draw(box: _Box, x: float, y: float) -> str:
    width, height = box.size
    parts = [f"<g><title>{escape(box.hint)}</title>", _rectangle(box.kind, x, y, width, height, 7)]
    top = y + 0.7 * _PADDING
    for line in box.lines:
        top += _LINE
        parts.append(_text(line, x + _PADDING, top - 4))
    for lines in box.inner:
        top += 0.8 * _PADDING
        room = _LINE * len(lines) + 0.6 * _PADDING
        parts.append(_rectangle("inner", x + _PADDING, top, width - 2 * _PADDING, room, 4))
        for line in lines:
            top += _LINE
            parts.append(_text(line, x + 2 * _PADDING, top - 1))
        top += 0.8 * _PADDING
    for part in box.parts:
        top += _PADDING
        height = part.height + _LINE + 2 * _PADDING
        parts.append(_rectangle("part", x + _PADDING, top, width - 2 * _PADDING, height, 5))
        parts.append(_text(_Line(part.title, "name"), x + 2 * _PADDING, top + _LINE - 2))
        parts.append(part.draw(x + 2 * _PADDING, top + _LINE + _PADDING))
        top += height
    return "".join([*parts, "</g>"])


def _rectangle(kind: str, x: float, y: float, width: float, height: float, radius: int) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius}"/>'
    )


def _text(line: _Line, x: float, y: float) -> str:
    style = f' class="{line.style}"' if line.style else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}">{escape(line.text)}</text>'


_STYLE = """\
.hostcall { color: #1f2933; background: #fff; font: 14px/1.45 system-ui, sans-serif; padding: 16px;
  color-scheme: light; }
.hostcall h2 { font-size: 19px; margin: 0 0 2px; }
.hostcall h3 { font-size: 15px; margin: 22px 0 6px; }
.hostcall p { margin: 4px 0; } .hostcall .note { background: #fff7e0; padding: 6px 10px; }
.hostcall .scroll { overflow-x: auto; } .hostcall .dim { color: #66727f; font-weight: normal; }
.hostcall svg { display: block; font-family: ui-monospace, monospace; font-size: 12px; }
.hostcall svg text { fill: #1f2933; } .hostcall svg .name { font-weight: bold; }
.hostcall svg .dim { fill: #5b6875; }
.hostcall svg rect { stroke-width: 1.5; }
.hostcall .cluster { fill: #e3effc; stroke: #3b7dc4; }
.hostcall .python { fill: #fdeacb; stroke: #d08a1d; }
.hostcall .other { fill: #eef0f2; stroke: #8793a0; }
.hostcall .inner { fill: #fff4e0; stroke: #d08a1d; }
.hostcall .bare { fill: none; stroke: none; }
.hostcall .part { fill: #fff; stroke: #8793a0; stroke-dasharray: 3 3; }
.hostcall code { font: 12px/1.45 ui-monospace, monospace; white-space: pre-wrap; }
.hostcall svg path { fill: none; stroke: #66727f; stroke-width: 1.4; }
.hostcall svg path.order { stroke-dasharray: 5 4; } .hostcall svg marker path { fill: #66727f; }
.hostcall .key span { display: inline-block; border: 1.5px solid; border-radius: 4px;
  padding: 0 8px; margin-right: 8px; font-size: 12px; }
.hostcall .key .cluster { background: #e3effc; border-color: #3b7dc4; }
.hostcall .key .python { background: #fdeacb; border-color: #d08a1d; }
.hostcall .key .other { background: #eef0f2; border-color: #8793a0; }
.hostcall table { border-collapse: collapse; font-size: 13px; background: #fff; }
.hostcall th, .hostcall td { text-align: left; vertical-align: top; padding: 4px 10px 4px 0;
  border-bottom: 1px solid #dde2e7; color: #1f2933; }
.hostcall a { color: #2463a6; }
"""

_KEY = (
    '<p class="key"><span class="cluster">compiled by XLA</span><span class="python">Python</span>'
    '<span class="other">TensorFlow, on the host</span><span class="dim" style="border:0">'
    "solid: a value; dashed: the order only</span></p>"
)

_COLUMNS = ("op", "calls", "called at", "route", "why", "operands → results", "copies", "after")


def page(*explanations: Explanation) -> str:
    """Return a whole HTML document."""
    names = ", ".join(explanation.name for explanation in explanations)
    body = "\n".join(map(fragment, explanations))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(names)} - hostcall</title></head>"
        f'<body style="margin:0">{body}</body></html>\n'
    )


def fragment(explanation: Explanation) -> str:
    """Return the part of a document that a notebook shows."""
    parts = [
        f'<div class="hostcall"><style>{_STYLE}</style>',
        f"<h2>{escape(explanation.name)}</h2><p>{escape(explanation.headline)}</p>",
        *(f'<p class="note">{escape(note)}</p>' for note in explanation.notes),
        _KEY,
    ]
    inside: dict[str, list[ScriptOp]] = {}
    for op in explanation.script_ops:
        if op.cluster is not None:
            inside.setdefault(op.cluster, []).append(op)
    functions = {function.name: function for function in explanation.functions}
    within = {
        part.name
        for function in explanation.functions
        for step in function.steps
        for part in labels.parts_of(step, functions)
    }
    for function in filter(labels.worth_showing, explanation.functions):
        if function.name not in within:
            parts.append(_heading(function))
            parts.append(f'<div class="scroll">{_drawing(function, inside, functions)}</div>')
    parts += [_transfers(function) for function in explanation.functions if function.transfers]
    if explanation.boundaries:
        parts.append(_advised("What stands between compiled clusters", explanation.boundaries))
    if explanation.risks:
        parts.append(_advised("What XLA may get wrong", explanation.risks))
    if explanation.script_ops:
        parts.append(_script_ops(explanation.script_ops))
    parts.append("</div>")
    return "\n".join(parts)


def _heading(function: Function) -> str:
    where = f" in {function.path}" if function.path else ""
    mode = {
        "compiled": "one compiled program",
        "partitioned": "partitioned",
        "host": "not compiled",
    }
    return (
        f"<h3>{escape(labels.short_name(function.name))}"
        f'<span class="dim">{escape(where)}: {mode[function.mode]}</span></h3>'
    )


def _advised(title: str, ops: Sequence[ScriptOp | HostOp | Risk]) -> str:
    rows = [(labels.name_of(op), labels.relative(op.location), op.reason, op.advice) for op in ops]
    return _table(title, ("op", "at", "why", "what to write"), rows)


def _transfers(function: Function) -> str:
    rows = [
        (one.value, one.to, labels.type_of(one.what), labels.size(one.what.nbytes))
        for one in function.transfers
    ]
    return _table(labels.transfers_title(function), ("value", "to the", "what", "size"), rows)


def _script_ops(ops: Sequence[ScriptOp]) -> str:
    rows = [
        (
            labels.place_of(op),
            f"{labels.kind(op)} of {labels.callback(op)}",
            labels.relative(op.location),
            op.route,
            op.reason,
            labels.shapes(op),
            labels.size(op.bytes_copied),
            op.follows or "",
        )
        for op in ops
    ]
    return _table("Script ops", _COLUMNS, rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in rows)
    return (
        f'<h3>{escape(title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(column: str, text: str) -> str:
    shown = escape(text)
    return f"<td>{f'<code>{shown}</code>' if column == 'what to write' else shown}</td>"
