"""Shape rules for bounded sizes in ops that arrange, rearrange and cut tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hostcall._compiler.bounded.sizes import (
    Shape,
    Size,
    Symbol,
    Tensor,
    UnprovenError,
    broadcast,
    has_symbol,
    product,
    same,
)
from hostcall._compiler.bounded.value_rules import (
    Site,
    alike,
    check_fixed,
    integers,
    shape_of,
    sizes_in,
)

LONGEST = 64  # of the vectors whose elements are followed

_DIFFER = "it takes sizes that may differ"
_JOINS = "it joins or divides dimensions of bounded size"


def expand_dims(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of ExpandDims."""
    shape = shape_of(operands[0])
    (axis,) = integers(operands[1])
    axis %= len(shape) + 1
    contents = None if shape else operands[0].contents
    return [Tensor((*shape[:axis], 1, *shape[axis:]), contents)]


def squeeze(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Squeeze; if a size is bounded, its dimensions must be named."""
    shape = shape_of(operands[0])
    axes = {axis % len(shape) for axis in site.numbers("squeeze_dims")}
    check_fixed(*(shape if not axes else (shape[axis] for axis in axes)))
    kept = tuple(n for d, n in enumerate(shape) if (d not in axes if axes else n != 1))
    return [Tensor(kept, None if kept else operands[0].contents)]


def transpose(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Transpose by a known permutation."""
    shape = shape_of(operands[0])
    return [Tensor(tuple(shape[axis] for axis in integers(operands[1])))]


def concat(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of ConcatV2, also of vectors of sizes."""
    *parts, last = operands
    shapes = [shape_of(part) for part in parts]
    (axis,) = integers(last)
    axis %= len(shapes[0])
    sizes: list[Size] = []
    for dim, column in enumerate(zip(*shapes, strict=True)):
        if dim != axis:
            sizes.append(same(column))
        else:
            total = _sum(column)
            unknown = total is None and has_symbol(column)
            sizes.append(site.symbol(dim) if unknown else total)
    contents = [part.contents for part in parts]
    known = [c for c in contents if c is not None] if len(shapes[0]) == 1 else []
    joined = tuple(n for c in known for n in c) if len(known) == len(parts) else None
    return [Tensor(tuple(sizes), joined)]


def concat_offset(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the elements of ConcatOffset, the begins of the parts, along a fixed dimension."""
    (axis,), *shapes = (sizes_in(operand) for operand in operands)
    if not isinstance(axis, int):
        raise UnprovenError("which dimensions it works on, or where, is not known")
    check_fixed(*(shape[axis] for shape in shapes))
    begins, results = 0, []
    for shape in shapes:
        offsets = [0] * len(shape)
        offsets[axis] = begins
        results.append(Tensor((len(shape),), tuple(offsets)))
        size = shape[axis]
        if not isinstance(size, int):
            raise UnprovenError("which dimensions it works on, or where, is not known")
        begins += size
    return results


def _sum(sizes: Sequence[Size]) -> Size:
    """Return the sum, as the same symbol for the same sizes, or None if a size is unknown."""
    if any(size is None for size in sizes):
        return None
    if not has_symbol(sizes):
        return sum(size for size in sizes if isinstance(size, int))
    names = [str(size.origin if isinstance(size, Symbol) else size) for size in sizes]
    return Symbol(("+".join(names), 0, 0))


def pack(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Pack, also of sizes."""
    shape = shape_of(alike(site, operands)[0])
    axis = site.number("axis") % (len(shape) + 1)
    contents = [c for operand in operands if (c := operand.contents) is not None]
    known = not shape and len(contents) == len(operands)
    joined = tuple(n for c in contents for n in c) if known else None
    return [Tensor((*shape[:axis], len(operands), *shape[axis:]), joined)]


def unpack(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of Unpack along a dimension of fixed size, also of a vector of sizes."""
    shape, contents = shape_of(operands[0]), operands[0].contents
    axis = site.number("axis") % len(shape)
    check_fixed(shape[axis])
    rest = shape[:axis] + shape[axis + 1 :]
    known = contents if contents is not None and not rest else None
    count = site.number("num")
    return [Tensor(rest, None if known is None else (known[i],)) for i in range(count)]


def filled(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Fill, which its first operand gives."""
    shape, value = sizes_in(operands[0]), operands[1].contents
    count = product(shape) if len(shape) <= 1 else None
    if value is None or not isinstance(count, int) or count > LONGEST:
        return [Tensor(shape)]
    return [Tensor(shape, value * count)]


def counted(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Range between known numbers, or from 0 by 1 to a bounded size."""
    (start,), (limit,), (delta,) = map(sizes_in, operands)
    if isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int) and delta:
        numbers = tuple(range(start, limit, delta))
        return [Tensor((len(numbers),), numbers if len(numbers) <= LONGEST else None)]
    if start != 0 or delta != 1:
        raise UnprovenError("it counts to a bounded size, and not from 0 by 1")
    return [Tensor((limit,))]


def inverted(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the elements of InvertPermutation of a known permutation."""
    order = integers(operands[0])
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return [Tensor((len(order),), tuple(inverse))]


def broadcast_to(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of BroadcastTo."""
    shape, wanted = shape_of(operands[0]), sizes_in(operands[1])
    broadcast([shape, wanted])
    for size, target in zip(shape[::-1], wanted[::-1], strict=False):
        if isinstance(size, Symbol) and size != target:
            raise UnprovenError(_DIFFER)
    return [Tensor(wanted)]


def tile(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Tile by known numbers, or of one element by a bounded number."""
    sizes: list[Size] = []
    pairs = zip(shape_of(operands[0]), sizes_in(operands[1]), strict=True)
    for dim, (size, times) in enumerate(pairs):
        if size == 1 or times == 1:
            sizes.append(times if size == 1 else size)
        elif isinstance(times, Symbol):
            raise UnprovenError("it repeats what is there as often as a bounded size says")
        else:
            sizes.append(site.symbol(dim) if isinstance(size, Symbol) else None)
    return [Tensor(tuple(sizes))]


def pad(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Pad and PadV2 by known paddings."""
    if any(operand.tainted for operand in operands[1:]):
        raise UnprovenError("how much it adds follows from a bounded size")
    sizes = enumerate(shape_of(operands[0]))
    padded = tuple(site.symbol(dim) if isinstance(n, Symbol) else None for dim, n in sizes)
    return [Tensor(refined(padded, site.shapes[0]))]


def refined(sizes: Shape, known: Shape | None) -> Shape:
    """Fill in TensorFlow's known sizes for those that are not bounded."""
    if known is None or len(known) != len(sizes):
        return sizes
    return tuple(k if n is None else n for n, k in zip(sizes, known, strict=True))


def reshape(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Reshape that keeps dimensions, joins several or divides one."""
    wanted = sizes_in(operands[1])
    contents = operands[0].contents if len(wanted) <= 1 else None
    if not operands[0].bounded and not has_symbol(wanted):
        rest = _rest(product(operands[0].shape or (None,)), wanted)
        return [Tensor(tuple(rest if n == -1 else n for n in wanted), contents)]
    shape = [size for size in shape_of(operands[0]) if size != 1]
    sizes = iter(_regrouped(shape, [size for size in wanted if size != 1]))
    return [Tensor(tuple(1 if size == 1 else next(sizes) for size in wanted), contents)]


def _rest(total: Size, wanted: Shape) -> Size:
    """Return the size for -1 that follows from the other sizes."""
    others = product([size for size in wanted if size != -1])
    if total == others:
        return 1
    if isinstance(total, int) and isinstance(others, int):
        return total // others if others else None
    if isinstance(total, Symbol) and isinstance(others, int) and others and total.factors:
        number, *symbols = total.factors
        if isinstance(number, int) and number % others == 0:
            return product([number // others, *symbols])
    return None


def _regrouped(shape: list[Size], wanted: list[Size]) -> list[Size]:
    """Return the wanted sizes if each one is an old one, or a product or factor of old ones."""
    if len(shape) == 1 and -1 in wanted and (rest := _rest(shape[0], tuple(wanted))) is not None:
        return [rest if size == -1 else size for size in wanted]
    open_one = wanted.index(-1) if -1 in wanted else len(wanted)
    first = _matched(shape, wanted[:open_one])
    last = len(shape) - _matched(shape[::-1], wanted[:open_one:-1])
    middle = product(shape[first:last])
    if -1 not in wanted and first == len(shape):
        return wanted
    if -1 not in wanted or first > last or middle is None:
        raise UnprovenError(_JOINS)
    return [middle if size == -1 else size for size in wanted]


def _matched(shape: list[Size], wanted: list[Size]) -> int:
    """Count the leading dimensions that become the wanted ones by joining or dividing."""
    first = last = 0
    while last < len(wanted):
        joined = _count(wanted[last], shape[first:])
        divided = _count(shape[first], wanted[last:]) if first < len(shape) else 0
        if not joined and not divided:
            raise UnprovenError(_JOINS)
        first, last = first + (joined or 1), last + (1 if joined else divided)
    return first


def _count(size: Size, others: list[Size]) -> int:
    """Count the first sizes of a list whose product a size is; return 0 if there are none."""
    products = ((n, product(others[:n])) for n in range(1, len(others) + 1))
    return next((n for n, total in products if total is not None and total == size), 0)


def stitched(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the elements of DynamicStitch of vectors of sizes, as in gradients of reductions."""
    count = len(operands) // 2
    found: dict[int, Size] = {}
    for indices, data in zip(operands[:count], operands[count:], strict=True):
        found.update(zip(integers(indices), sizes_in(data), strict=True))
    if sorted(found) != list(range(len(found))):
        raise UnprovenError("what it makes of sizes is not known")
    return [Tensor((len(found),), tuple(found[i] for i in range(len(found))))]


def gradient_axes(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the axes of BroadcastGradientArgs, along which gradients are summed."""
    first, second = (sizes_in(operand) for operand in operands)
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(sizes)) + sizes for sizes in (first, second)]
    axes: tuple[list[int], list[int]] = ([], [])
    for dim, (one, other) in enumerate(zip(*padded, strict=True)):
        if one is None or other is None or not (one == other or 1 in (one, other)):
            raise UnprovenError(_DIFFER)
        if one == 1:
            axes[0].append(dim)
        if other == 1:
            axes[1].append(dim)
    return [Tensor((len(found),), tuple(found)) for found in axes]


# Kind ("one" element or a "part" of a dimension, or a "new" dimension), begin, end and stride.
_Part: TypeAlias = tuple[str, int | None, int | None, int]


def strided_slice(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of StridedSlice, which may take all or the start of a bounded dimension."""
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
    """Infer the shape of StridedSliceGrad, for the slices that are proven."""
    sizes = sizes_in(operands[0])
    known = Site(site.node, site.path, [None])
    (taken,) = strided_slice(known, [Tensor(sizes), *operands[1:4]])
    for size, given in zip(shape_of(taken), shape_of(operands[4]), strict=True):
        if isinstance(size, Symbol) and size != given:
            # XLA compares bounds here.
            bound = given.bound if isinstance(given, Symbol) else None
            if bound is None or bound != size.bound:
                raise UnprovenError("it takes sizes that may differ")
    return [Tensor(sizes)]


def slice_(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Slice, which may only take all of a bounded dimension."""
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
    """Return a part of a vector of sizes, or a vector of one size."""
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
    """Return the part that is taken of each dimension."""
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
