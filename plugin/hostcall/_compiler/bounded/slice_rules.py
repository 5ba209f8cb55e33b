"""What becomes of sizes, known and bounded, where parts of tensors are taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hostcall._compiler.bounded.elementwise_rules import (
    Site,
    check_fixed,
    integers,
    shape_of,
    sizes_in,
)
from hostcall._compiler.bounded.layout_rules import refined
from hostcall._compiler.bounded.sizes import Size, Symbol, Tensor, UnprovenError

# What is taken of a dimension, "one" element or a "part", or a "new" dimension; begin, end, stride.
_Part: TypeAlias = tuple[str, int | None, int | None, int]


def strided_slice(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """StridedSlice: of a bounded dimension all, or the first few elements."""
    if operands[0].contents is not None:
        return [_part_of_sizes(site, operands)]
    shape = shape_of(operands[0])
    sizes: list[Size] = []
    dim = 0
    for part in _parts(site, operands[1:4], len(shape)):
        if part[0] == "new":
            sizes.append(1)
            continue
        if part[0] == "one":
            check_fixed(shape[dim])
        else:
            sizes.append(_taken(site, shape[dim], part, dim))
        dim += 1
    return [Tensor(refined(tuple(sizes), site.shapes[0]))]


def _taken(site: Site, size: Size, part: _Part, dim: int) -> Size:
    _, begin, end, stride = part
    if begin in (None, 0) and end is None and stride == 1:
        return size
    if not isinstance(size, Symbol):
        return None
    if begin in (None, 0) and end is not None and end >= 0 and stride == 1:
        bound = None if size.bound is None else min(size.bound, end)
        return site.symbol(dim, bound)
    raise UnprovenError("it takes such a part of a dimension whose size is bounded")


def strided_slice_grad(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """StridedSliceGrad, for the slices that are proven."""
    sizes = sizes_in(operands[0])
    known = Site(site.node, site.path, [None])
    (taken,) = strided_slice(known, [Tensor(sizes), *operands[1:4]])
    for size, given in zip(shape_of(taken), shape_of(operands[4]), strict=True):
        if isinstance(size, Symbol) and size != given and not _has_bound_of(given, size):
            raise UnprovenError("it takes sizes that may differ")
    return [Tensor(sizes)]


def _has_bound_of(size: Size, other: Symbol) -> bool:
    """Whether XLA, which compares bounds here, takes two sizes for the same."""
    return isinstance(size, Symbol) and size.bound is not None and size.bound == other.bound


def slice_(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Slice: of bounded dimensions all."""
    shape, begins, counts = shape_of(operands[0]), sizes_in(operands[1]), sizes_in(operands[2])
    sizes: list[Size] = []
    for size, begin, count in zip(shape, begins, counts, strict=True):
        whole = begin == 0 and count in (-1, size)
        if not whole and (isinstance(size, Symbol) or isinstance(count, Symbol)):
            raise UnprovenError("it takes such a part of a dimension whose size is bounded")
        check_fixed(begin)
        sizes.append(size if whole else None if count == -1 else count)
    return [Tensor(refined(tuple(sizes), site.shapes[0]))]


def _part_of_sizes(site: Site, operands: Sequence[Tensor]) -> Tensor:
    """A part of a vector of sizes, or a vector of a size."""
    contents = sizes_in(operands[0])
    parts = _parts(site, operands[1:4], len(shape_of(operands[0])))
    if not operands[0].shape and [part[0] for part in parts] == ["new"]:
        return Tensor((1,), contents)
    if len(parts) != 1 or parts[0][0] == "new":
        raise UnprovenError("it takes a part of sizes")
    kind, begin, end, stride = parts[0]
    if kind == "one":
        return Tensor((), (contents[begin or 0],))
    part = contents[begin:end:stride]
    return Tensor((len(part),), part)


def _parts(site: Site, operands: Sequence[Tensor], rank: int) -> list[_Part]:
    """What is taken of each dimension."""
    begin, end, strides = map(integers, operands)
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = {name: site.number(f"{name}_mask") for name in names}
    parts: list[_Part] = []
    everything: _Part = ("part", None, None, 1)
    for i in range(len(begin)):
        bit = 1 << i
        if masks["ellipsis"] & bit:
            later = sum(not masks["new_axis"] >> j & 1 for j in range(i + 1, len(begin)))
            parts += [everything] * (rank - later - _used(parts))
        elif masks["new_axis"] & bit:
            parts.append(("new", None, None, 1))
        elif masks["shrink_axis"] & bit:
            parts.append(("one", begin[i], None, 1))
        else:
            first = None if masks["begin"] & bit else begin[i]
            last = None if masks["end"] & bit else end[i]
            parts.append(("part", first, last, strides[i]))
    return parts + [everything] * (rank - _used(parts))


def _used(parts: Sequence[_Part]) -> int:
    return sum(part[0] != "new" for part in parts)
