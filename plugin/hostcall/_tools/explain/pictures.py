"""Pictures of functions for explanations, in SVG: clusters and host ops, and what they wait for."""

from __future__ import annotations

import dataclasses
import itertools
import os
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from hostcall._tools.explain import labels
from hostcall._tools.explain.callback_facts import through
from hostcall._tools.explain.facts import Cluster, FunctionFacts, HostOp, ScriptOp, Step
from hostcall_runtime._errors import counted

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
    """The positions of boxes and edges."""

    corners: dict[str, tuple[float, float]]  # the upper left corner of each box
    # For each edge the points that it goes through.
    paths: dict[tuple[str, str], list[tuple[float, float]]]
    # The size of the whole.
    width: float
    height: float


def arrange(
    sizes: Mapping[str, tuple[float, float]], before: Mapping[str, Sequence[str]]
) -> Layout:
    """Arrange boxes in rows, each box below the boxes `before` it, which its edges come from."""
    # They come in an order in which they can run, with the width and height of each.
    row_of: dict[str, int] = {}
    for name in sizes:
        row_of[name] = 1 + max((row_of[source] for source in before[name]), default=-1)
    rows: list[list[_Item]] = [[] for _ in range(1 + max(row_of.values(), default=-1))]
    for name, row in row_of.items():
        rows[row].append(name)
    edges = [(source, name) for name in sizes for source in before[name]]
    # An edge goes through a lane in each row that it crosses.
    crossed = {edge: range(row_of[edge[0]] + 1, row_of[edge[1]]) for edge in edges}
    if sum(map(len, crossed.values())) > _MOST_LANES:
        crossed = dict.fromkeys(edges, range(0))
    links: list[tuple[_Item, _Item]] = []
    for (source, name), between in crossed.items():
        lanes: list[tuple[str, str, int]] = [(source, name, row) for row in between]
        for lane in lanes:
            rows[lane[2]].append(lane)
        links += itertools.pairwise([source, *lanes, name])
    _sort(rows, links)
    centers, tops, width, height = _place(rows, sizes)
    corners = {name: (centers[name] - sizes[name][0] / 2, tops[row_of[name]]) for name in sizes}
    paths = {}
    for (source, name), between in crossed.items():
        points = [(centers[source], corners[source][1] + sizes[source][1])]
        for row in between:
            bottom = tops[row] + max(sizes[item][1] for item in rows[row] if isinstance(item, str))
            points += [(centers[source, name, row], y) for y in (tops[row], bottom)]
        paths[source, name] = [*points, (centers[name], corners[name][1])]
    return Layout(corners, paths, width, height)


def _sort(rows: list[list[_Item]], links: Sequence[tuple[_Item, _Item]]) -> None:
    """Sort each row by the mean position of its items' neighbours, so that few edges cross."""
    above: dict[_Item, list[_Item]] = {item: [] for row in rows for item in row}
    below: dict[_Item, list[_Item]] = {item: [] for item in above}
    for source, item in links:
        above[item].append(source)
        below[source].append(item)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        position: dict[_Item, float] = {}
        for row in rows if down else reversed(rows):
            center = {
                item: statistics.fmean([position[n] for n in neighbours[item]] or [float(place)])
                for place, item in enumerate(row)
            }
            row.sort(key=center.__getitem__)
            position.update({item: float(place) for place, item in enumerate(row)})


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
    """A rectangle with lines of text, and below them what is drawn within it."""

    kind: str
    lines: list[_Line]
    hint: str = ""
    within: list[_Box | _Drawing] = dataclasses.field(default_factory=list)

    @property
    def size(self) -> tuple[float, float]:
        """The width and height that all lines and parts fit into."""
        sizes = [part.size for part in self.within]
        widths = [len(line.text) * _CHARACTER for line in self.lines]
        width = max(widths + [width for width, _ in sizes], default=0.0)
        height = _LINE * len(self.lines) + sum(height + _PADDING for _, height in sizes)
        return width + 2 * _PADDING, height + 1.4 * _PADDING

    def draw(self, x: float, y: float, width: float) -> str:
        """Return the SVG of the box at a place, as wide as is wanted."""
        drawn = [f"<g><title>{escape(self.hint)}</title>" if self.hint else "<g>"]
        drawn.append(
            f'<rect class="{self.kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{self.size[1]:.1f}" rx="5"/>'
        )
        top = y + 0.7 * _PADDING
        for line in self.lines:
            top += _LINE
            style = f' class="{line.style}"' if line.style else ""
            place = f'x="{x + _PADDING:.1f}" y="{top - 4:.1f}"'
            drawn.append(f"<text{style} {place}>{escape(line.text)}</text>")
        for part in self.within:
            top += 0.5 * _PADDING
            drawn.append(part.draw(x + _PADDING, top, width - 2 * _PADDING))
            top += part.size[1] + 0.5 * _PADDING
        return "".join([*drawn, "</g>"])


@dataclasses.dataclass
class _Drawing:
    """The boxes of a function, and the arrows between them."""

    boxes: dict[str, _Box]
    # For each box, the boxes that it waits for and whether a value comes from there.
    edges: Mapping[str, Mapping[str, bool]]
    marker: str
    layout: Layout

    @property
    def size(self) -> tuple[float, float]:
        """The width and height of the whole."""
        return self.layout.width, self.layout.height

    def draw(self, x: float, y: float, _width: float) -> str:
        """Return the SVG of the boxes and arrows, at a place."""
        drawn = []
        for (source, name), points in self.layout.paths.items():
            kind = "value" if self.edges[name][source] else "order"
            curve = _curve([(x + left, y + top) for left, top in points])
            drawn.append(f'<path class="{kind}" d="{curve}" marker-end="url(#{self.marker})"/>')
        for name, box in self.boxes.items():
            left, top = self.layout.corners[name]
            drawn.append(box.draw(x + left, y + top, box.size[0]))
        return "\n".join(drawn)


def of(
    functions: Sequence[FunctionFacts], script_ops: Sequence[ScriptOp]
) -> Iterator[tuple[FunctionFacts, str]]:
    """Yield the SVG of each function that is not drawn within another, as a branch is."""
    inside: dict[str, list[ScriptOp]] = {}  # by the cluster's name
    for op in script_ops:
        if op.cluster is not None:
            inside.setdefault(op.cluster, []).append(op)
    by_name = {function.name: function for function in functions}
    steps = itertools.chain.from_iterable(function.steps for function in functions)
    within = {part.name for step in steps for part in labels.parts_of(step, by_name)}
    for function in filter(labels.worth_showing, functions):
        if function.name not in within:
            drawing = _drawing(function, inside, by_name, f"hostcall-arrow-{next(_marker_numbers)}")
            drawn = drawing.draw(0.0, 0.0, drawing.layout.width)
            yield function, "\n".join([_opening(function, drawing), drawn, "</g></svg>"])


def _drawing(
    function: FunctionFacts,
    inside: Mapping[str, Sequence[ScriptOp]],
    functions: Mapping[str, FunctionFacts],
    marker: str,
) -> _Drawing:
    steps = [step for step in function.steps if not labels.is_plumbing(step)]
    boxes = {step.node: _box(step, inside) for step in steps}
    # A recursive function is not drawn within itself.
    others = {name: other for name, other in functions.items() if name != function.name}
    for step in steps:
        for part in labels.parts_of(step, others):
            drawing = _drawing(part, inside, others, marker)
            role = labels.role_of(part.path) or labels.short_name(part.name)
            boxes[step.node].within.append(_part(role, drawing))
    waits = [(step.node, step.takes_from, step.waits_for) for step in function.steps]
    edges = through(waits, set(boxes))
    before = {name: list(edges[name]) for name in boxes}
    layout = arrange({name: box.size for name, box in boxes.items()}, before)
    return _Drawing(boxes, edges, marker, layout)


def _part(title: str, drawn: _Box | _Drawing) -> _Box:
    """Return a box around a loop's body or a branch."""
    return _Box("part", [_Line(title, "name")], within=[drawn])


def _opening(function: FunctionFacts, drawing: _Drawing) -> str:
    width, height = (length + 2 * _MARGIN for length in drawing.size)
    label = escape(f"how {labels.short_name(function.name)} runs", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<defs><marker id="{drawing.marker}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
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
        lines += _wrapped(labels.summary(ops))
        hint = "\n".join([step.name, *(f"{op.op} {op.node}" for op in ops)])
        return _Box("cluster", lines, hint, _inner(inside.get(step.name, ()), step.path))
    if isinstance(step, ScriptOp):
        kind, lines = "python", _script_op_lines(step)
    else:
        kind, lines = "other", _host_op_lines(step)
    lines += _wrapped(f"why here: {step.reason}", "dim")
    return _Box(kind, lines, f"{step.node}\n{step.location}\n{step.reason}")


def _inner(ops: Sequence[ScriptOp], path: str) -> list[_Box | _Drawing]:
    """Return boxes for the script ops at a box's path, and for its loops and branches."""
    boxes: list[_Box | _Drawing] = []
    deeper: dict[str, list[ScriptOp]] = {}
    start = f"{path} > " if path else ""
    for op in ops:
        if op.path == path or not op.path.startswith(start):
            boxes.append(_Box("inner", _script_op_lines(op)))
        else:
            step = op.path.removeprefix(start).partition(" > ")[0]
            deeper.setdefault(start + step, []).append(op)
    for place, others in sorted(deeper.items(), key=lambda item: labels.rank(item[0])):
        body = _Box("bare", [], within=_inner(others, place))
        boxes.append(_part(labels.role_of(place), body))
    return boxes


def _title(cluster: Cluster) -> str:
    """Return a short title: the number of a cluster, or the name of a compiled function."""
    _, separator, number = cluster.name.rpartition("__cluster_")
    return f"cluster {number}" if separator else f"{labels.short_name(cluster.name)}, compiled"


def _script_op_lines(op: ScriptOp) -> list[_Line]:
    made_by = _Line(f"{op.kind}{_at(op.location)}", "dim")
    return [*_wrapped(labels.callback(op), "name"), made_by, *_wrapped(labels.shapes(op))]


def _host_op_lines(step: HostOp) -> list[_Line]:
    lines = [_Line(step.op, "name")]
    if step.location:
        lines.append(_Line(_at(step.location).strip(), "dim"))
    if step.calls and not step.op.endswith(("While", "If", "Case")):
        names = ", ".join(labels.short_name(name) for name in step.calls)
        lines += _wrapped(f"calls {names}")
    return lines


def _at(location: str) -> str:
    """Return the file name and line of a location; the hint of the box has the whole path."""
    return f" {os.path.basename(location)}" if location else ""


def _wrapped(text: str, style: str = "") -> list[_Line]:
    lines = textwrap.wrap(text, _PICTURE_COLUMNS, max_lines=_MOST_LINES, placeholder=" …")
    return [_Line(line, style) for line in lines or [""]]
