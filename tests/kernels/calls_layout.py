"""Calls of kernels that move, count and reduce elements."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call, apply
from tests.kernels.data import Data, ints, special, words
from tests.kernels.registry import dtypes
from tests.kernels.rows import Each, every, floating, row, rows

_FLAGS = (False, True)
move, moves = (functools.partial(make, ulps=0) for make in (row, rows))

_AXES: list[tuple[tuple[int, ...], Any]] = [
    ((3, 5), ints(0)), ((3, 5), ints([1])), ((2, 3, 4), ints([0, 2])), ((2, 3, 4), ints([-1])),
    ((2, 3, 4), ints([])), ((0, 3), ints([0])), ((3, 0), ints([0, 1])), ((), ints([])),
    ((70,), ints(0)), ((3, 67), ints([0, 1])), ((2, 1, 3), np.array([1], np.int64)),
]  # fmt: skip


def _reductions(data: Data) -> Iterator[Call]:
    for op in words("Sum Prod Mean Max Min All Any"):
        for dtype in [tf.bool] if op in ("All", "Any") else dtypes(op):
            for (shape, axes), keep in itertools.product(_AXES, _FLAGS):
                if keep and shape not in ((3, 5), (2, 3, 4), (0, 3)):
                    continue
                x = data.unit(dtype, *shape) if op == "Prod" else data.normal(dtype, *shape)
                ulps = max(2, x.size) if op in ("Sum", "Prod", "Mean") else 0
                kind = "mean of nothing" if op == "Mean" and not x.size else ""
                yield Call(op, (x, axes), {"keep_dims": keep}, ulps=ulps, scale=ARRAY, kind=kind)
            if not dtype.is_bool:
                inputs = (_rows(dtype), ints(1))
                yield Call(op, inputs, note="special values", ulps=8, scale=ARRAY)
            if dtype.is_integer:
                yield Call(op, (data.wide(dtype, 5, 9), ints(1)), note="wide", ulps=0)


def _rows(dtype: tf.DType) -> Any:
    """Return rows of three special values each."""
    values = special(dtype)
    if values.dtype.kind in "ciu":
        return values[: 3 * (len(values) // 3)].reshape(-1, 3)
    nan, inf = np.nan, np.inf
    found = [[1, nan, inf], [nan, 1, -1], [1, 1, nan], [nan, nan, nan]]
    found += [[0.0, -0.0, 0.0], [-0.0, 0.0, -0.0], [-0.0, -0.0, -0.0]]
    found += [[inf, -inf, 1], [-inf, -inf, -inf], [1, 1, 1], [inf, inf, 1]]
    return np.array(found, values.dtype)


def _arg_reductions(data: Data) -> Iterator[Call]:
    for op, attrs in itertools.product(
        ("ArgMax", "ArgMin"), ({}, {"T": tf.float32, "output_type": every})
    ):
        for x, axis, note in (
            ((4, 9), Each(1, -2), ""), (np.ones((3, 4)), 0, "ties"), ((0, 3), 1, "empty"),
        ):  # fmt: skip
            yield from row(op, x, axis, note=note, **{"T": every, **attrs})(data)
        yield from row(op, (70,), 0, Tidx=tf.int64, **attrs)(data)
        for dtype in dtypes(op):
            if not dtype.is_bool and not attrs:
                yield Call(op, (_rows(dtype), ints(1)), note="special")


def _scans(data: Data) -> Iterator[Call]:
    for op in words("Cumsum Cumprod CumulativeLogsumexp"):
        for dtype, exclusive, reverse in itertools.product(dtypes(op), _FLAGS, _FLAGS):
            attrs = {"exclusive": exclusive, "reverse": reverse}
            for shape, axis in (((3, 5), 1), ((3, 5), -2), ((67,), 0), ((0, 2), 0), ((1,), 0)):
                x = data.unit(dtype, *shape) if op != "Cumsum" else data.normal(dtype, *shape)
                yield Call(op, (x, ints(axis)), attrs, ulps=max(8, x.size), scale=ARRAY)
            if dtype.is_floating:
                yield Call(op, (_rows(dtype), ints(1)), attrs, ulps=16, note="special values")


def _permutations(data: Data) -> Iterator[Call]:
    for kind, count in itertools.product((np.int32, np.int64), (7, 0)):
        yield Call("InvertPermutation", (data.permutation(count, kind),))


_DIMS = Each([7, 4, 9, 3], np.arange(8).reshape(4, 2))
_INDICES = Each(tf.int32, tf.int64)
_SHAPES = (
    row("Shape Size", (2, 0, 3), out_type=_INDICES),
    row("ShapeN", [(2, 0, 3), (0, 3)], out_type=_INDICES),
    row("Rank", (2, 0, 3)),
    rows("BroadcastArgs BroadcastGradientArgs",
         ([2, 3], [3]), ([4, 1, 3], [2, 1]), ([], [5]), ([1], [0]), T=every),
    row("ConcatOffset", Each(1, -2), [[2, 3, 4], [2, 5, 4]], shape_type=every),
    *(
        row(op, x, T=every, src_format=source, dst_format=target)
        for source, target in (("NHWC", "NCHW"), ("NCHW", "NHWC"))
        for op, x in (("DataFormatDimMap", np.arange(-4, 4)), ("DataFormatVecPermute", _DIMS))
    ),
)  # fmt: skip

_ORDERS = itertools.permutations(range(3))
_RESHAPES = (
    moves("Reshape", ((2, 6), Each([3, 4], [-1], [3, -1, 2], [1, 12, 1])), ((0, 3), [3, 0])),
    move("ExpandDims", (2, 6), Each(0, -1, 1, -3)),
    move("Squeeze", (1, 3, 1), squeeze_dims=Each([], [0], [-1], [0, 2])),
    move("Transpose ConjugateTranspose", (2, 3, 4), Each(*map(list, _ORDERS))),
    move("Transpose", (17, 35), [1, 0], Tperm=tf.int64),
    moves("BroadcastTo", ((2, 6), Each([4, 2, 6], [2, 6], [0, 2, 6])), ((), [2, 3]),
          ((3, 1), [3, 0])),
    move("Tile", (2, 6), Each([2, 3], [1, 1], [0, 2])),
)  # fmt: skip

_JOINS = (
    move("ConcatV2", [(2, 1, 3), (2, 0, 3), (2, 4, 3)], Each(1, -2)),
    move("Concat", 1, [(2, 1, 3), (2, 0, 3), (2, 4, 3)]),
    move("Pack", [(2, 3)] * 3, axis=Each(0, 1, -1, -3)),
    move("Unpack", (2, 3), num=2, axis=0),
    move("Unpack", (2, 3), num=3, axis=-1),
    row("DynamicStitch ParallelDynamicStitch", [[0, 3, 1], [[2], [4]]], [(3, 2), (2, 1, 2)]),
    row("DynamicStitch", [[0, 1, 1], [1, 2]], [(3, 2), (2, 2)], note="an index twice"),
    move("DynamicPartition", (6, 2), [0, 2, 0, 1, 2, 2], num_partitions=Each(3, 4)),
    move("DynamicPartition", (2, 3), [[0, 2, 0], [1, 2, 2]], num_partitions=3),
    move("DynamicPartition", (0, 3), [], num_partitions=2),
    move("Split", 0, (6, 4), num_split=Each(3, 1)),
    move("Split", -1, (6, 4), num_split=2),
    move("Split", 1, (6, 4), num_split=4),
    move("SplitV", (6, 4), [1, 2, 3], 0, Tlen=every, num_split=3),
    moves("SplitV", ((6, 4), [1, -1], 1), ((6, 4), [0, 4], -1), Tlen=every, num_split=2),
    move("SplitV", (6, 4), [6], 0, Tlen=every, num_split=1),
)

_STRIDED: list[tuple[list[int], list[int], list[int], dict[str, int]]] = [
    ([0, 1], [4, 5], [1, 2], {}),
    ([-1, -2], [-5, -7], [-1, -2], {}),
    ([3, 0], [0, 9], [-2, 3], {}),
    ([0, 0], [100, 100], [1, 1], {}),
    ([3, 3], [1, 2], [1, 1], {}),
    ([1, 2], [0, 0], [1, 1], {"shrink_axis_mask": 1, "end_mask": 2}),
    ([-2, 2], [0, 3], [1, 1], {"shrink_axis_mask": 1}),
    ([2, -3], [0, 0], [1, 1], {"shrink_axis_mask": 3}),
    ([0, 0], [0, 0], [2, 3], {"begin_mask": 3, "end_mask": 3}),
    ([0, 0], [0, 0], [-1, -2], {"begin_mask": 3, "end_mask": 3}),
    ([0, 1], [0, 4], [1, 1], {"ellipsis_mask": 1}),
    ([0, 0, 1], [0, 2, 4], [1, 1, 1], {"new_axis_mask": 1}),
    ([0, 0, 1], [0, 0, 4], [1, 1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}),
]


def _strided(data: Data) -> Iterator[Call]:
    for dtype, (*limits, attrs) in itertools.product(dtypes("StridedSlice"), _STRIDED):
        x, parts = data.normal(dtype, 4, 7), tuple(map(ints, limits))
        yield Call("StridedSlice", (x, *parts), attrs, ulps=0)
        part = data.normal(dtype, *apply("StridedSlice", (x, *parts), attrs).shape)
        yield Call("StridedSliceGrad", (ints([4, 7]), *parts, part), attrs, ulps=0)
        if dtype in dtypes("TensorStridedSliceUpdate"):
            yield Call("TensorStridedSliceUpdate", (x, *parts, part), attrs, ulps=0)


_PADS = Each([[1, 2], [0, 3]], [[0, 0], [0, 0]], [[2, 0], [1, 1]])
_MODES = Each("REFLECT", "SYMMETRIC")
_SLICES = (
    moves("Slice", ((4, 7), [1, 2], [2, 3]), ((4, 7), [0, 6], [-1, -1]), ((4, 7), [4, 0], [0, 7]),
          Index=_INDICES),
    move("StridedSlice", (4, 7), [1], [3], [1], Index=every),
    move("Pad", (3, 4), _PADS, Tpaddings=_INDICES),
    move("PadV2", (3, 4), _PADS, ()),
    move("Pad", (0, 2), [[1, 1], [0, 0]]),
    move("MirrorPad", (3, 4), Each([[1, 2], [3, 0]], [[0, 0], [1, 1]], [[2, 2], [0, 3]]),
         mode=_MODES),
    rows("MirrorPadGrad", ((6, 7), [[1, 2], [3, 0]]), ((3, 6), [[0, 0], [1, 1]]),
         ((7, 7), [[2, 2], [0, 3]]), mode=_MODES, ulps=8, scale=ARRAY),
)  # fmt: skip

_REVERSALS = (
    move("ReverseV2", (3, 4, 5), Each([0], [-1], [0, 2], [])),
    move("Reverse", (3, 4, 5), [True, False, True]),
    move("ReverseSequence", (3, 4, 5), [0, 2, 4], Tlen=_INDICES, seq_dim=1, batch_dim=0),
    move("ReverseSequence", (3, 4, 5), [1, 5, 3], Tlen=_INDICES, seq_dim=2, batch_dim=0),
    move("ReverseSequence", (3, 4, 5), [3, 1, 2, 3], Tlen=_INDICES, seq_dim=0, batch_dim=1),
    moves("Roll", ((3, 4, 5), 2, 0), ((3, 4, 5), -1, 2), ((3, 4, 5), 7, 1),
          ((3, 4, 5), [1, -2], [0, 1]), ((3, 4, 5), [1, 1], [2, 2]), ((0, 2), 1, 0)),
)  # fmt: skip

_BLOCKS = (
    move("DepthToSpace", (2, 2, 3, 8), block_size=2, data_format="NHWC"),
    move("DepthToSpace", (2, 8, 2, 3), block_size=2, data_format="NCHW"),
    move("SpaceToDepth", (2, 4, 6, 3), block_size=2, data_format="NHWC"),
    move("SpaceToDepth", (2, 3, 4, 6), block_size=2, data_format="NCHW"),
    *(
        moves(op, (shape, [2, 3], [[0, 0], [1, 0]]), (shape, [2], [[1, 1]]),
              (shape, [1, 1], [[0, 1], [2, 0]]))
        for op, shape in (("SpaceToBatchND", (2, 4, 5, 1)), ("BatchToSpaceND", (12, 3, 4, 2)))
    ),
    move("SpaceToBatch", (2, 4, 5, 1), [[0, 0], [1, 0]], block_size=2),
    move("BatchToSpace", (8, 3, 4, 2), [[0, 0], [1, 0]], block_size=2),
)  # fmt: skip

_DIAGONALS = (
    move("MatrixDiag", (2, 3)),
    move("MatrixDiagPart", (2, 3, 5)),
    move("MatrixSetDiag", (2, 3, 5), (2, 3)),
    moves("MatrixBandPart", ((2, 3, 5), 0, Each(0, 5)), ((2, 3, 5), Each(1, -1), -1),
          ((2, 3, 5), Each(-1, 2), 1), Tindex=_INDICES),
    move("Diag", Each((4,), (2, 3))),
    move("DiagPart", Each((4, 4), (2, 3, 2, 3))),
)  # fmt: skip
_BANDS = ((0, 0), (-1, 1), (2, 2), (-2, -2), (-2, 4), (0, 3), (1, 2), (-2, 0))
_ALIGNS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")


def _bands(data: Data) -> Iterator[Call]:
    versions = [("V2", {}), *(("V3", {"align": align}) for align in _ALIGNS)]
    for dtype, (low, high) in itertools.product(dtypes("MatrixDiag"), _BANDS):
        x, padding = data.normal(dtype, 2, 3, 5), data.normal(dtype)
        k = ints([low, high]) if low != high else ints(low)
        for version, attrs in versions:
            op = f"MatrixDiagPart{version}"
            yield Call(op, (x, k, padding), attrs, ulps=0)
            band = data.normal(dtype, *apply(op, (x, k, padding), attrs).shape)
            yield Call(f"MatrixSetDiag{version}", (x, band, k), attrs, ulps=0)
            for sizes in ((3, 5), (-1, -1)):
                inputs = (band, k, *map(ints, sizes), padding)
                yield Call(f"MatrixDiag{version}", inputs, attrs, ulps=0)


def _constants(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Fill"):
        tensor = data.normal(dtype, 2, 3)
        yield Call("Const", (), function=functools.partial(tf.constant, tensor), ulps=0)


_MAKERS = (
    move("Fill", Each([], [2, 3], [0, 2]), ()),
    move("Empty", [2, 3], dtype=every, init=True),
    move("PlaceholderWithDefault", (2, 3), shape=tf.TensorShape([2, 3])),
    rows("Range", (0, 5, 1), (5, 0, -2), (3, 3, 1), (1, 10, 4), Tidx=every, ulps=16, scale=ARRAY),
    row("Range", 0.5, 3.2, 0.4, Tidx=floating, ulps=16, scale=ARRAY),
    rows("LinSpace", (0, 1, 5), (3, -2, 7), (1, 9, 1), (2, 2, 3), (0.1, 0.7, 50), T=every, ulps=4,
         scale=ARRAY),
    move("OneHot", [[0, 2], [3, 5]], 4, 1, 0, T=every, TI=every, axis=Each(-1, 0, 1)),
    move("OneHot", [-1, 1], 3, 1, 0, T=every, note="an index below zero"),
    move("OneHot", 1, 0, 1, 0, T=every),
)  # fmt: skip

PARTS = (
    _reductions, _arg_reductions, _scans, _permutations, _strided, _bands, _constants, *_SHAPES,
    *_RESHAPES, *_JOINS, *_SLICES, *_REVERSALS, *_BLOCKS, *_DIAGONALS, *_MAKERS,
)  # fmt: skip
