"""Shape rules of elementwise ops, products and look-ups, for bounded sizes.

A rule tells the shapes of an op's results, and raises an UnprovenError for what is not proven: an
operand, say, whose bounded dimension is another one. It need not look at what cannot be compiled
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
    """An op in a program.

    Attributes:
      node: its NodeDef.
      path: the way to it, a name that no other op of the program has.
      shapes: what TensorFlow knows of the shapes of its results.
    """

    node: Any
    path: str
    shapes: Sequence[Shape | None]

    def symbol(self, dim: int, bound: int | None = None, result: int = 0) -> Symbol:
        """A new bounded size: that of a dimension of a result."""
        return Symbol((self.path, result, dim), bound)

    def fixed(self) -> list[Tensor]:
        """The results, where no size of them is bounded."""
        return [Tensor(shape) for shape in self.shapes]

    def flag(self, name: str) -> bool:
        """The value of an attribute; False where the op has none."""
        # To ask for what is not there would add it.
        return name in self.node.attr and bool(self.node.attr[name].b)

    def number(self, name: str) -> int:
        """The value of an attribute; 0 where it is left out, or the op has none."""
        return int(self.node.attr[name].i) if name in self.node.attr else 0

    def numbers(self, name: str) -> list[int]:
        """The value of an attribute; none where it is left out."""
        return [*self.node.attr[name].list.i] if name in self.node.attr else []


Rule: TypeAlias = Callable[[Site, Sequence[Tensor]], list[Tensor]]


def shape_of(tensor: Tensor) -> Shape:
    """The shape of an operand whose rank has to be known.

    Raises:
      UnprovenError: where it is not.
    """
    if tensor.shape is None:
        raise UnprovenError("the rank of what it takes is not known")
    return tensor.shape


def integers(tensor: Tensor) -> tuple[int, ...]:
    """The elements of an operand that have to be known, as axes.

    Raises:
      UnprovenError: where they are not.
    """
    if tensor.contents is None or not all(isinstance(n, int) for n in tensor.contents):
        raise UnprovenError("which dimensions it works on, or where, is not known")
    return tuple(n for n in tensor.contents if isinstance(n, int))


def sizes_in(tensor: Tensor) -> Shape:
    """The elements of an operand that are sizes.

    Raises:
      UnprovenError: where nothing is known of them.
    """
    if tensor.contents is None:
        raise UnprovenError("it takes a size that is worked out from a bounded one")
    return tensor.contents


def check_fixed(*sizes: Size) -> None:
    """Raises an UnprovenError where a size is bounded."""
    if any(isinstance(size, Symbol) for size in sizes):
        raise UnprovenError("it works along a dimension whose size is bounded")


def elementwise(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Shapes are broadcast."""
    if all(operand.shape is not None for operand in operands):
        return [Tensor(broadcast([shape_of(operand) for operand in operands]))]
    large = [operand for operand in operands if operand.shape != ()]
    return [Tensor(None if len(large) == 1 else shape_of(next(o for o in large if not o.shape)))]


def zeros_like(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """ZerosLike, also of a vector of sizes."""
    contents = operands[0].contents
    return [Tensor(operands[0].shape, None if contents is None else (0,) * len(contents))]


def kept(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Each result is what an operand is, with other elements at most in the dtype."""
    return [*operands]


def arithmetic(operate: Callable[..., int]) -> Rule:
    """Element-wise, also of numbers that tell dimensions."""

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
    """FloorDiv, whatever the divisor."""
    return number // divisor if divisor else 0


def remainder(number: int, divisor: int) -> int:
    """FloorMod, whatever the divisor."""
    return number % divisor if divisor else 0


def alike(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """All operands have one shape, and so has the result."""
    shapes = [shape_of(operand) for operand in operands]
    if len({len(shape) for shape in shapes}) > 1:
        raise UnprovenError("it takes sizes that may differ")
    return [Tensor(tuple(same(sizes) for sizes in zip(*shapes, strict=True)))]


def like_first(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """The result has the shape of the first operand; the others have fixed sizes."""
    for operand in operands[1:]:
        check_fixed(*shape_of(operand))
    return [Tensor(operands[0].shape)]


def select(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Select: a condition of the shape of what it chooses from, or a scalar."""
    return alike(site, operands[1:] if operands[0].shape == () else operands)


def ensure_shape(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """EnsureShape: it leaves bounded sizes open."""
    wanted, shape = site.node.attr["shape"].shape, operands[0].shape
    if not wanted.unknown_rank:
        pairs = zip(shape_of(operands[0]), wanted.dim, strict=True)
        check_fixed(*(size for size, dim in pairs if dim.size >= 0))
    return [Tensor(shape)]


def shapes(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Shape and ShapeN."""
    return [Tensor((len(shape_of(operand)),), operand.shape) for operand in operands]


def size(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Size."""
    return [Tensor((), (product(shape_of(operands[0])),))]


def rank(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Rank."""
    return [Tensor((), (len(shape_of(operands[0])),))]


def reduction(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Along any dimensions."""
    shape = shape_of(operands[0])
    axes = {axis % max(len(shape), 1) for axis in integers(operands[1])}
    if site.flag("keep_dims"):
        return [Tensor(tuple(1 if d in axes else n for d, n in enumerate(shape)))]
    return [Tensor(tuple(n for d, n in enumerate(shape) if d not in axes))]


def product_reduction(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Prod, also of a vector of sizes."""
    (result,) = reduction(site, operands)
    contents = operands[0].contents
    if contents is None or result.shape != ():
        return [result]
    return [dataclasses.replace(result, contents=(product(contents),))]


def to_scalar(_: Site, __: Sequence[Tensor]) -> list[Tensor]:
    """Of all elements."""
    return [Tensor(())]


def arg_reduction(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """ArgMax and ArgMin, which plain TensorFlow refuses where there are no elements."""
    shape = shape_of(operands[0])
    (axis,) = integers(operands[1])
    axis %= len(shape)
    check_fixed(shape[axis])
    return [Tensor(shape[:axis] + shape[axis + 1 :])]


def along_axis(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Along a dimension of fixed size, which the second operand names."""
    shape = shape_of(operands[0])
    check_fixed(*(shape[axis] for axis in integers(operands[1])))
    return [Tensor(shape)]


def along_any_axis(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Along any dimensions, which the second operand names."""
    integers(operands[1])
    return [Tensor(shape_of(operands[0]))]


def matmul(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """MatMul and BatchMatMulV2."""
    first = _matrix(operands[0], site.flag("transpose_a") or site.flag("adj_x"))
    second = _matrix(operands[1], site.flag("transpose_b") or site.flag("adj_y"))
    same([first[-1], second[-2]])
    return [Tensor((*broadcast([first[:-2], second[:-2]]), first[-2], second[-1]))]


def _matrix(operand: Tensor, transposed: bool) -> Shape:
    shape = shape_of(operand)
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def bias_add(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """BiasAdd to the last dimension."""
    shape = shape_of(operands[0])
    same([shape[-1], shape_of(operands[1])[0]])
    return [Tensor(shape)]


def bias_add_grad(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """BiasAddGrad of the last dimension."""
    return [Tensor(shape_of(operands[0])[-1:])]


def cross_entropy(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """SoftmaxCrossEntropyWithLogits: a loss for each row, and gradients."""
    shape = shape_of(alike(site, operands)[0])
    return [Tensor(shape[:1]), Tensor(shape)]


def sparse_cross_entropy(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """SparseSoftmaxCrossEntropyWithLogits."""
    shape = shape_of(operands[0])
    check_fixed(shape[1])
    return [Tensor((same([shape[0], shape_of(operands[1])[0]]),)), Tensor(shape)]


def top(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """TopKV2: along a dimension of fixed size, or all of it, as in sorting."""
    shape = shape_of(operands[0])
    (count,) = sizes_in(operands[1])
    if count != shape[-1]:
        check_fixed(shape[-1], count)
    return [Tensor((*shape[:-1], count))] * 2


def where(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Where: of one dimension, or of several whose sizes are fixed."""
    shape = shape_of(operands[0])
    if len(shape) != 1 and has_symbol(shape):
        raise UnprovenError("it looks for elements in several dimensions")
    return [Tensor((site.symbol(0), len(shape)))]


def unique(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Unique and UniqueV2 of a vector of fixed size."""
    shape = shape_of(operands[0])
    check_fixed(*shape)
    if len(shape) != 1:
        raise UnprovenError("it compares elements in several dimensions")
    return [Tensor((site.symbol(0),)), Tensor(shape)]


def partition(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """DynamicPartition of fixed sizes."""
    data, partitions = shape_of(operands[0]), shape_of(operands[1])
    check_fixed(*data, *partitions)
    rest = data[len(partitions) :]
    count = site.number("num_partitions")
    return [Tensor((site.symbol(0, result=i), *rest)) for i in range(count)]


def suppression(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """NonMaxSuppressionV3 of a known number of boxes: without any, XLA ends the process."""
    count, _ = shape_of(operands[0])
    if not isinstance(count, int) or count == 0:
        raise UnprovenError("there may be no boxes")
    integers(operands[2])
    return [Tensor((site.symbol(0),))]


def one_hot(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """OneHot of a depth that is known."""
    shape = shape_of(operands[0])
    axis = site.number("axis") % (len(shape) + 1)
    return [Tensor((*shape[:axis], *integers(operands[1]), *shape[axis:]))]


def gather(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """GatherV2, also from a vector of sizes."""
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
    """GatherNd."""
    values, indices = shape_of(operands[0]), shape_of(operands[1])
    return [Tensor((*indices[:-1], *values[_depth(indices) :]))]


def _depth(indices: Shape) -> int:
    """How many dimensions each index names."""
    if not isinstance(indices[-1], int):
        raise UnprovenError("which dimensions it works on, or where, is not known")
    return indices[-1]


def scatter_nd(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """ScatterNd into a shape of fixed sizes."""
    indices, updates, shape = shape_of(operands[0]), shape_of(operands[1]), sizes_in(operands[2])
    check_fixed(*shape)
    _check_updates(indices, updates, shape)
    return [Tensor(shape)]


def scatter(_: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """TensorScatterUpdate and its kin."""
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
    """UnsortedSegmentSum and its kin."""
    values, ids = shape_of(operands[0]), shape_of(operands[1])
    for pair in zip(values, ids, strict=False):
        same(pair)
    return [Tensor((*sizes_in(operands[2]), *values[len(ids) :]))]


def split(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Split along a dimension of fixed size."""
    (axis,) = integers(operands[0])
    return _parts(site, shape_of(operands[1]), axis)


def split_by_sizes(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """SplitV along a dimension of fixed size."""
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
