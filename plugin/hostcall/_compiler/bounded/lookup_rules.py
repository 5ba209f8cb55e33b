"""What becomes of sizes, known and bounded, in products of matrices, look-ups and the like."""

from __future__ import annotations

from collections.abc import Sequence

from hostcall._compiler.bounded.elementwise_rules import (
    Site,
    alike,
    check_fixed,
    integers,
    shape_of,
    sizes_in,
)
from hostcall._compiler.bounded.sizes import (
    Shape,
    Size,
    Tensor,
    UnprovenError,
    broadcast,
    has_symbol,
    same,
)


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
