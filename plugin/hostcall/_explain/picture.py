"""One function as an SVG: clusters and host ops as boxes, what they wait for as arrows."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape

from hostcall._explain import words
from hostcall._explain.bodies import through
from hostcall._explain.facts import Cluster, Function, HostOp, ScriptOp, Step
from hostcall._explain.layout import arrange
from hostcall_runtime._words import counted

_CHARACTER = 7.3  # the width of one of 12 px, in the widest of the usual monospaced fonts
_LINE = 17.0
_PADDING = 10.0
_COLUMNS = 44
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
        """Width and height, that all lines fit into."""
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
    """A drawing within a box: of the body of a loop, or of a branch; `draw` takes its corner."""

    title: str
    draw: Callable[[float, float], str]
    width: float
    height: float


def drawing(
    function: Function,
    inside: Mapping[str, Sequence[ScriptOp]],
    functions: Mapping[str, Function] | None = None,
) -> str:
    """The SVG of a function.

    Args:
      function: what to draw.
      inside: the script ops in each cluster, by its name.
      functions: those that its loops and branches may run, by name: they are drawn in their boxes.
    """
    marker = f"hostcall-arrow-{next(_marker_numbers)}"
    part = _part(function, inside, functions or {}, marker)
    return "\n".join([_opening(function, part, marker), part.draw(0.0, 0.0), "</g></svg>"])


def _part(
    function: Function,
    inside: Mapping[str, Sequence[ScriptOp]],
    functions: Mapping[str, Function],
    marker: str,
) -> _Part:
    steps = [step for step in function.steps if not words.is_plumbing(step)]
    boxes = {step.node: _box(step, inside) for step in steps}
    # Nothing is drawn within itself.
    others = {name: other for name, other in functions.items() if name != function.name}
    for step in steps:
        for part in words.parts_of(step, others):
            boxes[step.node].parts.append(_part(part, inside, others, marker))
    edges = _edges(function, set(boxes))
    before = {name: list(sources) for name, sources in edges.items()}
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

    return _Part(words.role(function), draw, layout.width, layout.height)


def _edges(function: Function, shown: set[str]) -> dict[str, dict[str, bool]]:
    """For each box those that it waits for, and whether a value comes from there."""
    waits = [(step.node, step.takes_from, step.waits_for) for step in function.steps]
    return {name: found for name, found in through(waits, shown).items() if name in shown}


def _opening(function: Function, part: _Part, marker: str) -> str:
    width, height = part.width + 2 * _MARGIN, part.height + 2 * _MARGIN
    label = escape(f"how {words.short_name(function.name)} runs", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<defs><marker id="{marker}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">'
    )


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """A line through points that leaves and reaches each of them upright."""
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
        ops = words.working(step.ops)
        lines = [_Line(_title(step), "name"), _Line(counted(len(ops), "op"), "dim")]
        lines += [_Line(line) for line in _wrapped(words.summary(ops))]
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
    """What is drawn in a box for script ops in it: those at its path, and loops and branches."""
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
    for place, others in sorted(deeper.items(), key=lambda item: words.rank(item[0])):
        box = _Box("bare", [], *_inner(others, place))
        parts.append(_Part(words.role_of(place), functools.partial(_draw, box), *box.size))
    return lines, hint, parts


def _title(cluster: Cluster) -> str:
    """The last part of a cluster's name, which tells it from its neighbours."""
    _, separator, number = cluster.name.rpartition("__cluster_")
    return f"cluster {number}" if separator else f"{words.short_name(cluster.name)}, compiled"


def _script_op_lines(op: ScriptOp) -> list[_Line]:
    lines = [_Line(line, "name") for line in _wrapped(words.callback(op))]
    lines.append(_Line(f"{op.kind}{_at(op.location)}", "dim"))
    return lines + [_Line(line) for line in _wrapped(words.shapes(op))]


def _host_op(step: HostOp) -> _Box:
    lines = [_Line(step.op, "name")]
    if step.location:
        lines.append(_Line(_at(step.location).strip(), "dim"))
    if step.calls and not step.op.endswith(("While", "If", "Case")):
        names = ", ".join(words.short_name(name) for name in step.calls)
        lines += [_Line(line) for line in _wrapped(f"calls {names}")]
    lines += [_Line(line, "dim") for line in _wrapped(f"why here: {step.reason}")]
    return _Box("other", lines, [], f"{step.node}\n{step.location}\n{step.reason}")


def _at(location: str) -> str:
    """The line in the user's file, by its last name: the whole path is in the hint."""
    return f" {os.path.basename(location)}" if location else ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, max_lines=_MOST_LINES, placeholder=" …") or [""]


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
