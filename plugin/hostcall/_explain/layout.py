"""A layered layout: boxes in rows from top to bottom, each below all that it waits for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

_GAP = 28.0
_ROW_GAP = 44.0
_LANE = 14.0  # the width of the way that an edge takes through a row
_SWEEPS = 4
# With more ways through rows than this, edges go straight.
_MOST_LANES = 2000

# A box, or the way of an edge through a row: (from, to, row).
_Item = str | tuple[str, str, int]


@dataclasses.dataclass
class Layout:
    """Where things are.

    Attributes:
      corners: the upper left corner of each box.
      paths: for each edge the points that it goes through.
      width, height: of the whole.
    """

    corners: dict[str, tuple[float, float]]
    paths: dict[tuple[str, str], list[tuple[float, float]]]
    width: float
    height: float


def arrange(
    sizes: Mapping[str, tuple[float, float]], before: Mapping[str, Sequence[str]]
) -> Layout:
    """Finds a place for boxes.

    Args:
      sizes: width and height of each, in an order in which they can run.
      before: for each box those that an edge comes from.
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
    """Keeps a way through each row for the edges that cross it; what is above each item."""
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
    """Puts items below the middle of what they hang on, so that few edges cross."""
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
    """The center of each item, the top of each row, and the size of the whole."""

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
