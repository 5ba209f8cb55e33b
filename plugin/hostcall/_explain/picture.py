"""One function as an SVG: clusters and host ops as boxes, what they wait for as arrows."""

from __future__ import annotations

import dataclasses
import itertools
import os
import textwrap
from collections.abc import Mapping, Sequence
from html import escape

from hostcall._explain import words
from hostcall._explain.bodies import through
from hostcall._explain.facts import Cluster, Function, HostOp, ScriptOp, Step, count
from hostcall._explain.layout import Layout, arrange

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

    @property
    def size(self) -> tuple[float, float]:
        """Width and height, that all lines fit into."""
        lines = [*self.lines, *itertools.chain(*self.inner)]
        longest = max(len(line.text) for line in lines)
        inset = 2 * _PADDING if self.inner else 0.0
        height = _LINE * len(lines) + len(self.inner) * 1.6 * _PADDING
        return longest * _CHARACTER + 2 * _PADDING + inset, height + 1.4 * _PADDING


def drawing(function: Function, inside: Mapping[str, Sequence[ScriptOp]]) -> str:
    """The SVG of a function.

    Args:
      function: what to draw.
      inside: the script ops in each cluster, by its name.
    """
    steps = [step for step in function.steps if not words.is_plumbing(step)]
    boxes = {step.node: _box(step, inside) for step in steps}
    edges = _edges(function, set(boxes))
    before = {name: list(sources) for name, sources in edges.items()}
    layout = arrange({name: box.size for name, box in boxes.items()}, before)
    marker = f"hostcall-arrow-{next(_marker_numbers)}"
    parts = [_opening(function, layout, marker)]
    for (source, name), points in layout.paths.items():
        kind = "value" if edges[name][source] else "order"
        parts.append(f'<path class="{kind}" d="{_curve(points)}" marker-end="url(#{marker})"/>')
    parts.extend(_draw(box, *layout.corners[name]) for name, box in boxes.items())
    parts.append("</g></svg>")
    return "\n".join(parts)


def _edges(function: Function, shown: set[str]) -> dict[str, dict[str, bool]]:
    """For each box those that it waits for, and whether a value comes from there."""
    waits = [(step.node, step.takes_from, step.waits_for) for step in function.steps]
    return {name: found for name, found in through(waits, shown).items() if name in shown}


def _opening(function: Function, layout: Layout, marker: str) -> str:
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
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
        lines = [_Line(_title(step), "name"), _Line(count(len(ops), "op"), "dim")]
        lines += [_Line(line) for line in _wrapped(words.summary(ops))]
        inner = [_script_op_lines(op) for op in inside.get(step.name, ())]
        hint = "\n".join([step.name, *(f"{op.op} {op.node}" for op in ops)])
        return _Box("cluster", lines, inner, hint)
    if isinstance(step, ScriptOp):
        lines = _script_op_lines(step)
        lines += [_Line(line, "dim") for line in _wrapped(f"why here: {step.reason}")]
        return _Box("python", lines, [], f"{step.node}\n{step.location}\n{step.reason}")
    return _host_op(step)


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
    if step.calls:
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
    return "".join([*parts, "</g>"])


def _rectangle(kind: str, x: float, y: float, width: float, height: float, radius: int) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius}"/>'
    )


def _text(line: _Line, x: float, y: float) -> str:
    style = f' class="{line.style}"' if line.style else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}">{escape(line.text)}</text>'
