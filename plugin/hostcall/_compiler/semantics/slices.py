"""Strided slices at positions that only the run knows, such as `x[i, 1:]`.

XLA misplaces what is constant beside them: it computes `x[i, :-1]` for that, and `x[i, :2]` for
`x[i, ::2]`. So the slice is written as several ones, each of which XLA computes right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hostcall._compiler.semantics.conditions import Nodes
from hostcall._compiler.semantics.values import Writer
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import protos
from hostcall._tf.types import NodeDef

OP = "StridedSlice"
# The kinds of positions, by the masks that name them, from the strongest on.
_KINDS = _ELLIPSIS, _NEW, _ELEMENT = ("ellipsis", "new_axis", "shrink_axis")
_WINDOW = "window"


class _Position(NamedTuple):
    """What a slice takes of a dimension, in numbers where they are known, and else in scalars."""

    kind: str
    # None where the slice leaves it open.
    begin: int | str | None
    end: int | str | None
    stride: int

    @property
    def is_known(self) -> bool:
        return not isinstance(self.begin, str) and not isinstance(self.end, str)

    @property
    def may_move(self) -> bool:
        """Whether XLA may misplace it."""
        return self.kind == _WINDOW and (self.begin not in {None, 0} or self.stride != 1)


_WHOLE = _Position(_WINDOW, None, None, 1)


def is_mixed(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether XLA may misplace something that a slice takes."""
    positions = _positions(node, nodes, lambda vector, _: vector)
    taken = [one for one in positions if one != _WHOLE and one.kind != _ELLIPSIS]
    is_known = all(one.is_known for one in taken)
    return len(taken) > 1 and not is_known and any(one.may_move for one in taken)


def split(writer: Writer) -> str:
    """Write a slice of elements, one of all windows that are known, and one of each other one."""
    positions = _positions(writer.node, writer.around, lambda *at: _element(writer, *at))
    value = _slice(writer, writer.inputs[0], [_unless_window(one) for one in positions])
    # Elements have left their dimensions, and new dimensions are there.
    left = [_unless_new(one) for one in positions if one.kind != _ELEMENT]
    value = _slice(writer, value, [one if one.is_known else _WHOLE for one in left])
    for i, position in enumerate(left):
        if not position.is_known:
            others = [one if one.kind == _ELLIPSIS else _WHOLE for one in left]
            value = _slice(writer, value, [*others[:i], position, *others[i + 1 :]])
    return value


def _unless_window(position: _Position) -> _Position:
    return _WHOLE if position.kind == _WINDOW else position


def _unless_new(position: _Position) -> _Position:
    return _WHOLE if position.kind == _NEW else position


def _positions(
    node: NodeDef, nodes: Mapping[str, Any], element: Callable[[str, int], str]
) -> list[_Position]:
    """Return the positions of a slice, or none if its strides are not known."""
    vectors = [_scalars(nodes.get(defs.source(value)), nodes) for value in node.input[1:4]]
    strides = [stride for stride in vectors[2] or [] if isinstance(stride, int)]
    if len(strides) < len(vectors[2] or []):
        return []
    found = []
    for i, stride in enumerate(strides):
        kind = next((kind for kind in _KINDS if _is_masked(node, kind, i)), _WINDOW)
        if kind not in {_ELEMENT, _WINDOW}:
            found.append(_Position(kind, None, None, 1))
            continue
        begin, end = (
            None
            if kind == _WINDOW and _is_masked(node, mask, i)
            else (element(value, i) if known is None else known[i])
            for mask, value, known in zip(
                ("begin", "end"), node.input[1:3], vectors[:2], strict=True
            )
        )
        found.append(_Position(kind, begin, end, stride if kind == _WINDOW else 1))
    return found


def _is_masked(node: NodeDef, mask: str, position: int) -> bool:
    return bool(protos.integer(node, f"{mask}_mask") >> position & 1)


def _scalars(vector: NodeDef | None, nodes: Mapping[str, Any]) -> list[int | str] | None:
    """Return the elements of a vector as numbers or values, or None if it gives neither."""
    if (known := defs.constant(vector)) is not None:
        return [*map(int, known)]
    if vector is None or vector.op != "Pack":
        return None
    values = defs.data_inputs(vector)
    scalars = [defs.constant(nodes.get(defs.source(value))) for value in values]
    pairs = zip(values, scalars, strict=True)
    return [value if scalar is None else int(scalar) for value, scalar in pairs]


def _element(writer: Writer, vector: str, index: int) -> str:
    """Write an element of a vector of positions."""
    ends = [writer.constant([number], defs.INT32) for number in (index, index + 1, 1)]
    dtype = writer.node.attr["Index"].type
    value = writer.add(OP, vector, *ends, T=dtype, Index=defs.INT32)
    writer.nodes[-1].attr["shrink_axis_mask"].i = 1
    return value


def _slice(writer: Writer, value: str, positions: Sequence[_Position]) -> str:
    """Write a slice, unless it takes all there is."""
    if all(one == _WHOLE or one.kind == _ELLIPSIS for one in positions):
        return value
    dtype = writer.node.attr["Index"].type
    _, *columns = zip(*positions, strict=True)
    vectors = (_vector(writer, column) for column in columns)
    taken = writer.add(OP, value, *vectors, T=writer.node.attr["T"].type, Index=dtype)
    attributes = writer.nodes[-1].attr
    for kind in _KINDS:
        attributes[f"{kind}_mask"].i = _bits([one.kind == kind for one in positions])
    attributes["begin_mask"].i = _bits([one.begin is None for one in positions])
    attributes["end_mask"].i = _bits([one.end is None for one in positions])
    return taken


def _vector(writer: Writer, ends: Sequence[int | str | None]) -> str:
    numbers = [0 if end is None else end for end in ends]
    dtype = writer.node.attr["Index"].type
    if not any(isinstance(number, str) for number in numbers):
        return writer.constant(numbers, dtype)
    scalars = [n if isinstance(n, str) else writer.constant(n, dtype) for n in numbers]
    vector = writer.add("Pack", *scalars, T=dtype)
    writer.nodes[-1].attr["N"].i = len(scalars)
    return vector


def _bits(flags: Sequence[bool]) -> int:
    return sum(flag << i for i, flag in enumerate(flags))
