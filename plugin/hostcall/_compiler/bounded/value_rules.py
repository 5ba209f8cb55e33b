"""Shape rules for bounded sizes in elementwise ops, products and look-ups.

A rule returns the shapes of an op's results. It raises an UnprovenError for operands that are not
proven right, say one with another bounded dimension. It may ignore operands that XLA cannot compile
anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

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


@dataclasses.dataclass(frozen=True)
class Site:
    """An op in a program, and the shapes of its results as TensorFlow knows them.

    The path is a name that no other op of the program has.
    """

    node: Any
    path: str
    shapes: Sequence[Shape | None]

    def symbol(self, dim: int, bound: int | None = None, result: int = 0) -> Symbol:
        return Symbol((self.path, result, dim), bound)

    def fixed(self) -> list[Tensor]:
        """Return the results, none of whose sizes are bounded."""
        return [Tensor(shape) for shape in self.shapes]

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
        raise UnprovenError("which dimensions it works on, or where, is not known")
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


def floor_divided(number: int, divisor: int) -> int:
    """Compute FloorDiv, or 0 if the divisor is 0."""
    return number // divisor if divisor else 0


def remainder(number: int, divisor: int) -> int:
    """Compute FloorMod, or 0 if the divisor is 0."""
    return number % divisor if divisor else 0


def alike(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape that all operands and the result have in common."""
    shapes = [shape_of(operand) for operand in operands]
    if len({len(shape) for shape in shapes}) > 1:
        raise UnprovenError("it takes sizes that may differ")
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


def to_scalar(_: Site, __: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of a full reduction."""
    return [Tensor(())]


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
    return [Tensor((site.symbol(0), len(shape)))]


def unique(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of Unique and UniqueV2 of a vector of fixed size."""
    shape = shape_of(operands[0])
    check_fixed(*shape)
    if len(shape) != 1:
        raise UnprovenError("it compares elements in several dimensions")
    return [Tensor((site.symbol(0),)), Tensor(shape)]


def partition(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of DynamicPartition of fixed sizes."""
    data, partitions = shape_of(operands[0]), shape_of(operands[1])
    check_fixed(*data, *partitions)
    rest = data[len(partitions) :]
    count = site.number("num_partitions")
    return [Tensor((site.symbol(0, result=i), *rest)) for i in range(count)]


def suppression(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of NonMaxSuppressionV3; without any boxes XLA ends the process."""
    count, _ = shape_of(operands[0])
    if not isinstance(count, int) or count == 0:
        raise UnprovenError("there may be no boxes")
    integers(operands[2])
    return [Tensor((site.symbol(0),))]


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
        raise UnprovenError("which dimensions it works on, or where, is not known")
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
        raise UnprovenError("it takes sizes that may differ")
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
    return _parts(site, shape_of(operands[1]), axis)


def split_by_sizes(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shapes of SplitV along a dimension of fixed size."""
    (axis,) = integers(operands[2])
    integers(operands[1])
    return _parts(site, shape_of(operands[0]), axis)


def _parts(site: Site, shape: Shape, axis: int) -> list[Tensor]:
    check_fixed(shape[axis])
    axis %= len(shape)
    results = []
    for known in site.shapes:
        size: Size = None if known is None else known[axis]
        results.append(Tensor((*shape[:axis], size, *shape[axis + 1 :])))
    return results
