"""Shape rules for bounded sizes, of the ops that are proven right with them.

A rule returns the shapes of an op's results. It raises an UnprovenError for operands that are not
proven right, say one with another bounded dimension. It may ignore operands that XLA cannot compile
anyway.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from hostcall._compiler.analyses.sizes import (
    DIFFER,
    LONGEST,
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

_JOINS = "it joins or divides dimensions of bounded size"
_WHERE = "which dimensions it works on, or where, is not known"
_PART = "it takes such a part of a dimension whose size is bounded"


@dataclasses.dataclass(frozen=True)
class Site:
    """An op, the path that no other op of the program has, and its results' shapes if known."""

    node: Any
    path: str
    shapes: Sequence[Shape | None]

    def symbol(self, dim: int, bound: int | None = None, result: int = 0) -> Symbol:
        return Symbol((self.path, result, dim), bound)

    def flag(self, name: str) -> bool:
        """Return the value of an attribute, or False if the op lacks it."""
        # Reading a missing attribute would add it.
        return name in self.node.attr and bool(self.node.attr[name].b)

    def number(self, name: str) -> int:
        """Return the value of an attribute, or 0 if it is left out or the op has none."""
        return int(self.node.attr[name].i) if name in self.node.attr else 0

    def numbers(self, name: str) -> list[int]:
        """Return the value of an attribute, or no numbers if it is left out."""
        return [*self.node.attr[name].list.i] if name in self.node.attr else []


Rule: TypeAlias = Callable[[Site, Sequence[Tensor]], list[Tensor]]


def shape_of(tensor: Tensor) -> Shape:
    """Return the shape of an operand whose rank has to be known."""
    if tensor.shape is None:
        raise UnprovenError("the rank of what it takes is not known")
    return tensor.shape


def integers(tensor: Tensor) -> tuple[int, ...]:
    """Return the elements of an operand that have to be known, as axes have."""
    if tensor.contents is None or not all(isinstance(n, int) for n in tensor.contents):
        raise UnprovenError(_WHERE)
    return tuple(n for n in tensor.contents if isinstance(n, int))


def sizes_in(tensor: Tensor) -> Shape:
    """Return the elements of an operand that are sizes."""
    if tensor.contents is None:
        raise UnprovenError("it takes a size that is worked out from a bounded one")
    return tensor.contents


def check_fixed(*sizes: Size) -> None:
    """Raise an UnprovenError if a size is bounded."""
    if any(isinstance(size, Symbol) for size in sizes):
        raise UnprovenError("it works along a dimension whose size is bounded")


def elementwise(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the broadcast shape of an elementwise op."""
    if all(operand.shape is not None for operand in operands):
        return [Tensor(broadcast([shape_of(operand) for operand in operands]))]
    large = [operand for operand in operands if operand.shape != ()]
    return [Tensor(None if len(large) == 1 else shape_of(next(o for o in large if not o.shape)))]


def zeros_like(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of ZerosLike, also of a vector of sizes."""
    contents = operands[0].contents
    return [Tensor(operands[0].shape, None if contents is None else (0,) * len(contents))]


def kept(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Return the operands: each result equals an operand, except perhaps in its dtype."""
    return [*operands]


def bitcast(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of bits as elements of another dtype, if it has as many of them."""
    sizes = {tf.as_dtype(site.node.attr[name].type).size for name in ("T", "type")}
    if len(sizes) > 1:
        raise UnprovenError(_JOINS)
    return [Tensor(operands[0].shape)]


def arithmetic(operate: Callable[..., int]) -> Rule:
    """Make the rule of an elementwise op that may also compute with sizes."""

    def rule(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
        (result,) = elementwise(site, operands)
        contents = [c for operand in operands if (c := operand.contents) is not None]
        known = all(isinstance(n, int) for c in contents for n in c)
        if len(contents) < len(operands) or not known:
            return [result]
        count = max(map(len, contents))
        repeated = [c * (count if len(c) == 1 else 1) for c in contents]
        columns = zip(*repeated, strict=True)
        return [dataclasses.replace(result, contents=tuple(operate(*c) for c in columns))]

    return rule


def or_zero(divide: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """Make a division that returns 0 if the divisor is 0."""
    return lambda number, divisor: divide(number, divisor) if divisor else 0


added = arithmetic(operator.add)
divided = arithmetic(or_zero(operator.floordiv))
maximum, minimum = arithmetic(max), arithmetic(min)
multiplied = arithmetic(operator.mul)
negated = arithmetic(operator.neg)
remainder = arithmetic(or_zero(operator.mod))
subtracted = arithmetic(operator.sub)


def scalar(_: Site, __: Sequence[Tensor]) -> list[Tensor]:
    """Return one scalar."""
    return [Tensor(())]


def alike(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape that all operands and the result have in common."""
    shapes = [shape_of(operand) for operand in operands]
    if len({len(shape) for shape in shapes}) > 1:
        raise UnprovenError(DIFFER)
    return [Tensor(tuple(same(sizes) for sizes in zip(*shapes, strict=True)))]


def like_first(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of the first operand; the others have fixed sizes."""
    for operand in operands[1:]:
        check_fixed(*shape_of(operand))
    return [Tensor(operands[0].shape)]


def select(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Select; the condition is a scalar or as large as the other operands."""
    return alike(site, operands[1:] if operands[0].shape == () else operands)


def ensure_shape(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of EnsureShape, which must leave bounded sizes open."""
    wanted, shape = site.node.attr["shape"].shape, operands[0].shape
    if not wanted.unknown_rank:
        pairs = zip(shape_of(operands[0]), wanted.dim, strict=True)
        check_fixed(*(size for size, dim in pairs if dim.size >= 0))
    return [Tensor(shape)]


def shapes(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the elements of Shape and ShapeN."""
    return [Tensor((len(shape_of(operand)),), operand.shape) for operand in operands]


def size(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the value of Size."""
    return [Tensor((), (product(shape_of(operands[0])),))]


def rank(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the value of Rank."""
    return [Tensor((), (len(shape_of(operands[0])),))]


def reduction(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of a reduction along any dimensions."""
    shape = shape_of(operands[0])
    axes = {axis % max(len(shape), 1) for axis in integers(operands[1])}
    if site.flag("keep_dims"):
        return [Tensor(tuple(1 if d in axes else n for d, n in enumerate(shape)))]
    return [Tensor(tuple(n for d, n in enumerate(shape) if d not in axes))]


def product_reduction(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Prod, also of a vector of sizes."""
    (result,) = reduction(site, operands)
    contents = operands[0].contents
    if contents is None or result.shape != ():
        return [result]
    return [dataclasses.replace(result, contents=(product(contents),))]


def arg_reduction(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of ArgMax and ArgMin, which TensorFlow refuses if there are no elements."""
    shape = shape_of(operands[0])
    (axis,) = integers(operands[1])
    axis %= len(shape)
    check_fixed(shape[axis])
    return [Tensor(shape[:axis] + shape[axis + 1 :])]


def along_axis(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of an op along a dimension of fixed size, its second operand."""
    shape = shape_of(operands[0])
    check_fixed(*(shape[axis] for axis in integers(operands[1])))
    return [Tensor(shape)]


def along_any_axis(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of an op along any dimensions, its second operand."""
    integers(operands[1])
    return [Tensor(shape_of(operands[0]))]


def matmul(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of MatMul and BatchMatMulV2."""
    first = _matrix(operands[0], site.flag("transpose_a") or site.flag("adj_x"))
    second = _matrix(operands[1], site.flag("transpose_b") or site.flag("adj_y"))
    same([first[-1], second[-2]])
    return [Tensor((*broadcast([first[:-2], second[:-2]]), first[-2], second[-1]))]


def _matrix(operand: Tensor, transposed: bool) -> Shape:
    shape = shape_of(operand)
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def bias_add(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of BiasAdd to the last dimension."""
    shape = shape_of(operands[0])
    same([shape[-1], shape_of(operands[1])[0]])
    return [Tensor(shape)]


def bias_add_grad(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of BiasAddGrad of the last dimension."""
    return [Tensor(shape_of(operands[0])[-1:])]


def cross_entropy(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of SoftmaxCrossEntropyWithLogits: a loss for each row, and gradients."""
    shape = shape_of(alike(site, operands)[0])
    return [Tensor(shape[:1]), Tensor(shape)]


def sparse_cross_entropy(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of SparseSoftmaxCrossEntropyWithLogits."""
    shape = shape_of(operands[0])
    check_fixed(shape[1])
    return [Tensor((same([shape[0], shape_of(operands[1])[0]]),)), Tensor(shape)]


def top(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of TopKV2 along a dimension of fixed size, or all of one, as in sorting."""
    shape = shape_of(operands[0])
    (count,) = sizes_in(operands[1])
    if count != shape[-1]:
        check_fixed(shape[-1], count)
    return [Tensor((*shape[:-1], count))] * 2


def where(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Where of one dimension, or of several with fixed sizes."""
    shape = shape_of(operands[0])
    if len(shape) != 1 and has_symbol(shape):
        raise UnprovenError("it looks for elements in several dimensions")
    return [Tensor((site.symbol(0, _largest(product(shape))), len(shape)))]


def _largest(size: Size) -> int | None:
    """Return the largest number that a size may be, if that is known."""
    return size.bound if isinstance(size, Symbol) else size


def unique(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of Unique and UniqueV2 of a vector of fixed size."""
    shape = shape_of(operands[0])
    check_fixed(*shape)
    if len(shape) != 1:
        raise UnprovenError("it compares elements in several dimensions")
    return [Tensor((site.symbol(0, _largest(shape[0])),)), Tensor(shape)]


def partition(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of DynamicPartition of fixed sizes."""
    data, partitions = shape_of(operands[0]), shape_of(operands[1])
    check_fixed(*data, *partitions)
    rest, largest = data[len(partitions) :], _largest(product(partitions))
    count = site.number("num_partitions")
    return [Tensor((site.symbol(0, largest, i), *rest)) for i in range(count)]


def suppression(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of NonMaxSuppressionV3; without any boxes XLA ends the process."""
    count, _ = shape_of(operands[0])
    if not isinstance(count, int) or count == 0:
        raise UnprovenError("there may be no boxes")
    (most,) = integers(operands[2])
    return [Tensor((site.symbol(0, min(most, count)),))]


def one_hot(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of OneHot with a known depth."""
    shape = shape_of(operands[0])
    axis = site.number("axis") % (len(shape) + 1)
    return [Tensor((*shape[:axis], *integers(operands[1]), *shape[axis:]))]


def gather(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of GatherV2, also from a vector of sizes."""
    values, indices = shape_of(operands[0]), shape_of(operands[1])
    batch = site.number("batch_dims")
    (axis,) = integers(operands[2])
    axis %= len(values)
    leading = tuple(same(pair) for pair in zip(values[:batch], indices[:batch], strict=True))
    shape = (*leading, *values[batch:axis], *indices[batch:], *values[axis + 1 :])
    contents, positions = operands[0].contents, operands[1].contents
    if contents is None or positions is None or not all(isinstance(n, int) for n in positions):
        return [Tensor(shape)]
    return [Tensor(shape, tuple(contents[n] for n in positions if isinstance(n, int)))]


def gather_nd(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of GatherNd."""
    values, indices = shape_of(operands[0]), shape_of(operands[1])
    return [Tensor((*indices[:-1], *values[_depth(indices) :]))]


def _depth(indices: Shape) -> int:
    """Return the number of dimensions that each index names."""
    if not isinstance(indices[-1], int):
        raise UnprovenError(_WHERE)
    return indices[-1]


def scatter_nd(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of ScatterNd into a shape of fixed sizes."""
    indices, updates, shape = shape_of(operands[0]), shape_of(operands[1]), sizes_in(operands[2])
    check_fixed(*shape)
    _check_updates(indices, updates, shape)
    return [Tensor(shape)]


def scatter(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of TensorScatterUpdate and its kin."""
    shape = shape_of(operands[0])
    _check_updates(shape_of(operands[1]), shape_of(operands[2]), shape)
    return [Tensor(shape)]


def _check_updates(indices: Shape, updates: Shape, shape: Shape) -> None:
    expected = (*indices[:-1], *shape[_depth(indices) :])
    if len(expected) != len(updates):
        raise UnprovenError(DIFFER)
    for pair in zip(expected, updates, strict=True):
        same(pair)


def segments(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of UnsortedSegmentSum and its kin."""
    values, ids = shape_of(operands[0]), shape_of(operands[1])
    for pair in zip(values, ids, strict=False):
        same(pair)
    return [Tensor((*sizes_in(operands[2]), *values[len(ids) :]))]


def split(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of Split along a dimension of fixed size."""
    (axis,) = integers(operands[0])
    return _split(site, shape_of(operands[1]), axis)


def split_by_sizes(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of SplitV along a dimension of fixed size."""
    (axis,) = integers(operands[2])
    integers(operands[1])
    return _split(site, shape_of(operands[0]), axis)


def _split(site: Site, shape: Shape, axis: int) -> list[Tensor]:
    check_fixed(shape[axis])
    axis %= len(shape)
    sizes = [None if known is None else known[axis] for known in site.shapes]
    return [Tensor((*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


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
        raise UnprovenError(_WHERE)
    check_fixed(*(shape[axis] for shape in shapes))
    begins, results = 0, []
    for shape in shapes:
        offsets = [0] * len(shape)
        offsets[axis] = begins
        results.append(Tensor((len(shape),), tuple(offsets)))
        size = shape[axis]
        if not isinstance(size, int):
            raise UnprovenError(_WHERE)
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
            raise UnprovenError(DIFFER)
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
    return [Tensor(_refined(padded, site.shapes[0]))]


def _refined(sizes: Shape, known: Shape | None) -> Shape:
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
    for one, other in zip(*padded, strict=True):
        if one is None or other is None or not (one == other or 1 in (one, other)):
            raise UnprovenError(DIFFER)
    axes = [tuple(dim for dim, size in enumerate(sizes) if size == 1) for sizes in padded]
    return [Tensor((len(found),), found) for found in axes]


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
    return [Tensor(_refined(tuple(sizes), site.shapes[0]))]


def _taken(site: Site, size: Size, part: _Part, dim: int) -> Size:
    _, begin, end, stride = part
    if begin in (None, 0) and end is None and stride == 1:
        return size
    if not isinstance(size, Symbol):
        return None
    if begin in (None, 0) and end is not None and end >= 0 and stride == 1:
        bound = None if size.bound is None else min(size.bound, end)
        return site.symbol(dim, bound)
    raise UnprovenError(_PART)


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
                raise UnprovenError(DIFFER)
    return [Tensor(sizes)]


def slice_(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of Slice, which may only take all of a bounded dimension."""
    shape, begins, counts = shape_of(operands[0]), sizes_in(operands[1]), sizes_in(operands[2])
    sizes: list[Size] = []
    for size, begin, count in zip(shape, begins, counts, strict=True):
        whole = begin == 0 and count in (-1, size)
        if not whole and (isinstance(size, Symbol) or isinstance(count, Symbol)):
            raise UnprovenError(_PART)
        check_fixed(begin)
        sizes.append(size if whole else None if count == -1 else count)
    return [Tensor(_refined(tuple(sizes), site.shapes[0]))]


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
