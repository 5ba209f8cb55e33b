"""Calls of kernels that move, count and reduce elements."""
# ruff: noqa: E731 - each call has a short function of its own

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call, apply
from tests.kernels.data import Data, ints, special, words
from tests.kernels.registry import dtypes


def _long(*values: Any) -> Any:
    return ints(*values).astype(np.int64)


_AXES: list[tuple[tuple[int, ...], Any]] = [
    ((3, 5), ints(0)),
    ((3, 5), ints([1])),
    ((2, 3, 4), ints([0, 2])),
    ((2, 3, 4), ints([-1])),
    ((2, 3, 4), np.zeros((0,), np.int32)),
    ((0, 3), ints([0])),
    ((3, 0), ints([0, 1])),
    ((), np.zeros((0,), np.int32)),
    ((70,), ints(0)),
    ((3, 67), ints([0, 1])),
    ((2, 1, 3), _long([1])),
]


def _reductions(data: Data) -> Iterator[Call]:
    for op in words("Sum Prod Mean Max Min All Any"):
        kinds = [tf.bool] if op in ("All", "Any") else dtypes(op)
        for dtype in kinds:
            for (shape, axes), keep in itertools.product(_AXES, (False, True)):
                if keep and shape not in ((3, 5), (2, 3, 4), (0, 3)):
                    continue
                x = data.unit(dtype, *shape) if op == "Prod" else data.normal(dtype, *shape)
                ulps = max(2, x.size) if op in ("Sum", "Prod", "Mean") else 0
                attrs = {"keep_dims": keep}
                kind = "mean of nothing" if op == "Mean" and not x.size else ""
                yield Call(op, (x, axes), attrs, ulps=ulps, scale=ARRAY, kind=kind)
            if not dtype.is_bool:
                rows = _rows(dtype)
                yield Call(op, (rows, ints(1)), note="special values", ulps=8, scale=ARRAY)
            if dtype.is_integer:
                yield Call(op, (data.wide(dtype, 5, 9), ints(1)), note="wide", ulps=0)


def _rows(dtype: tf.DType) -> Any:
    """Return rows of three special values each."""
    values = special(dtype)
    if values.dtype.kind == "c" or values.dtype.kind in "iu":
        return values[: 3 * (len(values) // 3)].reshape(-1, 3)
    one, nan = np.array([1, np.nan], values.dtype)
    zero, minus = np.array([0.0, -0.0], values.dtype)
    inf = np.array(np.inf, values.dtype)
    rows = [[one, nan, inf], [nan, one, -one], [one, one, nan], [nan, nan, nan]]
    rows += [[zero, minus, zero], [minus, zero, minus], [minus, minus, minus]]
    rows += [[inf, -inf, one], [-inf, -inf, -inf], [one, one, one], [inf, inf, one]]
    return np.array(rows, values.dtype)


def _arg_reductions(data: Data) -> Iterator[Call]:
    for op in ("ArgMax", "ArgMin"):
        for dtype in dtypes(op):
            outputs = dtypes(op, "output_type") if dtype == tf.float32 else [tf.int64]
            for output in outputs:
                attrs = {"output_type": output}
                yield Call(op, (data.normal(dtype, 4, 9), ints(1)), attrs)
                yield Call(op, (data.normal(dtype, 4, 9), ints(-2)), attrs)
                yield Call(op, (data.normal(dtype, 70), _long(0)), attrs)
                yield Call(op, (np.ones((3, 4), dtype.as_numpy_dtype), ints(0)), attrs, note="ties")
                yield Call(op, (data.normal(dtype, 0, 3), ints(1)), attrs, note="empty")
            if not dtype.is_bool:
                yield Call(op, (_rows(dtype), ints(1)), {"output_type": tf.int64}, note="special")


def _scans(data: Data) -> Iterator[Call]:
    flags = list(itertools.product((False, True), (False, True)))
    for op in words("Cumsum Cumprod CumulativeLogsumexp"):
        for dtype in dtypes(op):
            for exclusive, reverse in flags:
                attrs = {"exclusive": exclusive, "reverse": reverse}
                for shape, axis in (((3, 5), 1), ((3, 5), -2), ((67,), 0), ((0, 2), 0), ((1,), 0)):
                    x = data.unit(dtype, *shape) if op != "Cumsum" else data.normal(dtype, *shape)
                    ulps = max(8, x.size)
                    yield Call(op, (x, ints(axis)), attrs, ulps=ulps, scale=ARRAY)
                if dtype.is_floating:
                    rows = _rows(dtype)
                    yield Call(op, (rows, ints(1)), attrs, ulps=16, note="special values")


def _shapes(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Shape"):
        x = data.normal(dtype, 2, 0, 3)
        for out in (tf.int32, tf.int64):
            yield Call("Shape", (x,), {"out_type": out})
            yield Call("Size", (x,), {"out_type": out})
            yield Call("ShapeN", ([x, x[0]],), {"out_type": out})
        yield Call("Rank", (x,))
    for kind in (np.int32, np.int64):
        for first, second in (([2, 3], [3]), ([4, 1, 3], [2, 1]), ([], [5]), ([1], [0])):
            shapes = np.array(first, kind), np.array(second, kind)
            yield Call("BroadcastArgs", shapes)
            yield Call("BroadcastGradientArgs", shapes)
        axis = ints(1)
        offsets = [np.array([2, 3, 4], kind), np.array([2, 5, 4], kind)]
        yield Call("ConcatOffset", (axis, offsets))
        yield Call("ConcatOffset", (ints(-2), offsets))
        for source, target in (("NHWC", "NCHW"), ("NCHW", "NHWC")):
            attrs = {"src_format": source, "dst_format": target}
            yield Call("DataFormatDimMap", (np.arange(-4, 4).astype(kind),), attrs)
            yield Call("DataFormatVecPermute", (np.array([7, 4, 9, 3], kind),), attrs)
            pairs = np.arange(8).reshape(4, 2).astype(kind)
            yield Call("DataFormatVecPermute", (pairs,), attrs)
        yield Call("InvertPermutation", (data.permutation(7, kind),))
        yield Call("InvertPermutation", (data.permutation(0, kind),))


def _reshapes(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Reshape"):
        x = data.normal(dtype, 2, 6)
        for shape in ([3, 4], [-1], [3, -1, 2], [1, 12, 1]):
            yield Call("Reshape", (x, ints(shape)), ulps=0)
        yield Call("Reshape", (data.normal(dtype, 0, 3), ints([3, 0])), ulps=0)
        for axis in (0, -1, 1, -3):
            yield Call("ExpandDims", (x, ints(axis)), ulps=0)
        thin = data.normal(dtype, 1, 3, 1)
        for dims in ([], [0], [-1], [0, 2]):
            yield Call("Squeeze", (thin,), {"squeeze_dims": dims}, ulps=0)
        cube = data.normal(dtype, 2, 3, 4)
        for perm in itertools.permutations(range(3)):
            yield Call("Transpose", (cube, ints(perm)), ulps=0)
            yield Call("ConjugateTranspose", (cube, ints(perm)), ulps=0)
        yield Call("Transpose", (data.normal(dtype, 17, 35), _long([1, 0])), ulps=0)
        for shape in ([4, 2, 6], [2, 6], [0, 2, 6]):
            yield Call("BroadcastTo", (x, ints(shape)), ulps=0)
        yield Call("BroadcastTo", (data.normal(dtype), ints([2, 3])), ulps=0)
        yield Call("BroadcastTo", (data.normal(dtype, 3, 1), ints([3, 0])), ulps=0)
        for multiples in ([2, 3], [1, 1], [0, 2]):
            yield Call("Tile", (x, ints(multiples)), ulps=0)


def _joins(data: Data) -> Iterator[Call]:
    for dtype in dtypes("ConcatV2"):
        parts = [data.normal(dtype, 2, n, 3) for n in (1, 0, 4)]
        for axis in (1, -2):
            yield Call("ConcatV2", (parts, ints(axis)), ulps=0)
        yield Call("Concat", (ints(1), parts), ulps=0)
        same = [data.normal(dtype, 2, 3) for _ in range(3)]
        for axis in (0, 1, -1, -3):
            yield Call("Pack", (same,), {"axis": axis}, ulps=0)
        for axis in (0, -1):
            yield Call("Unpack", (same[0],), {"num": 2 if axis == 0 else 3, "axis": axis}, ulps=0)
        for op in ("DynamicStitch", "ParallelDynamicStitch"):
            indices = [ints([0, 3, 1]), ints([[2], [4]])]
            yield Call(op, (indices, [data.normal(dtype, 3, 2), data.normal(dtype, 2, 1, 2)]))
            if op == "DynamicStitch":
                twice = [ints([0, 1, 1]), ints([1, 2])]
                parts = [data.normal(dtype, 3, 2), data.normal(dtype, 2, 2)]
                yield Call(op, (twice, parts), note="an index twice")
        partitions = ints([0, 2, 0, 1, 2, 2])
        for count in (3, 4):
            inputs = (data.normal(dtype, 6, 2), partitions)
            yield Call("DynamicPartition", inputs, {"num_partitions": count}, ulps=0)
        inputs = (data.normal(dtype, 2, 3), partitions.reshape(2, 3))
        yield Call("DynamicPartition", inputs, {"num_partitions": 3}, ulps=0)
        inputs = (data.normal(dtype, 0, 3), np.zeros((0,), np.int32))
        yield Call("DynamicPartition", inputs, {"num_partitions": 2}, ulps=0)


def _splits(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Split"):
        x = data.normal(dtype, 6, 4)
        for axis, count in ((0, 3), (-1, 2), (1, 4), (0, 1)):
            yield Call("Split", (ints(axis), x), {"num_split": count}, ulps=0)
        for sizes, axis in (([1, 2, 3], 0), ([1, -1], 1), ([0, 4], -1), ([6], 0)):
            attrs = {"num_split": len(sizes)}
            for kind in dtypes("SplitV", "Tlen"):
                lengths = np.array(sizes, kind.as_numpy_dtype)
                yield Call("SplitV", (x, lengths, ints(axis)), attrs, ulps=0)


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


def _slices(data: Data) -> Iterator[Call]:
    inputs: tuple[Any, ...]
    for dtype in dtypes("StridedSlice"):
        x = data.normal(dtype, 4, 7)
        for begin, end, strides, attrs in _STRIDED:
            inputs = (x, ints(begin), ints(end), ints(strides))
            yield Call("StridedSlice", inputs, attrs, ulps=0)
            shape = ints(list(x.shape))
            result = apply("StridedSlice", inputs, attrs)
            inputs = (shape, *inputs[1:], data.normal(dtype, *result.shape))
            yield Call("StridedSliceGrad", inputs, attrs, ulps=0)
        for begin, size in (([1, 2], [2, 3]), ([0, 6], [-1, -1]), ([4, 0], [0, 7])):
            for kind in (np.int32, np.int64):
                inputs = (x, np.array(begin, kind), np.array(size, kind))
                yield Call("Slice", inputs, ulps=0)
        for kind in dtypes("StridedSlice", "Index"):
            parts = [np.array(part, kind.as_numpy_dtype) for part in ([1], [3], [1])]
            yield Call("StridedSlice", (x, *parts), ulps=0)


def _slice_updates(data: Data) -> Iterator[Call]:
    for dtype in dtypes("TensorStridedSliceUpdate"):
        x = data.normal(dtype, 4, 7)
        for begin, end, strides, attrs in _STRIDED:
            parts = ints(begin), ints(end), ints(strides)
            result = apply("StridedSlice", (x, *parts), attrs)
            value = data.normal(dtype, *result.shape)
            yield Call("TensorStridedSliceUpdate", (x, *parts, value), attrs, ulps=0)


def _pads(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Pad"):
        x = data.normal(dtype, 3, 4)
        for paddings in ([[1, 2], [0, 3]], [[0, 0], [0, 0]], [[2, 0], [1, 1]]):
            for kind in (np.int32, np.int64):
                yield Call("Pad", (x, np.array(paddings, kind)), ulps=0)
            yield Call("PadV2", (x, ints(paddings), data.normal(dtype)), ulps=0)
        yield Call("Pad", (data.normal(dtype, 0, 2), ints([[1, 1], [0, 0]])), ulps=0)
        for mode in ("REFLECT", "SYMMETRIC"):
            for paddings in ([[1, 2], [3, 0]], [[0, 0], [1, 1]], [[2, 2], [0, 3]]):
                attrs = {"mode": mode}
                yield Call("MirrorPad", (x, ints(paddings)), attrs, ulps=0)
                if dtype in dtypes("MirrorPadGrad"):
                    shape = [n + sum(pad) for n, pad in zip((3, 4), paddings, strict=True)]
                    inputs = (data.normal(dtype, *shape), ints(paddings))
                    yield Call("MirrorPadGrad", inputs, attrs, ulps=8, scale=ARRAY)


def _reversals(data: Data) -> Iterator[Call]:
    for dtype in dtypes("ReverseV2"):
        x = data.normal(dtype, 3, 4, 5)
        for axes in ([0], [-1], [0, 2], []):
            yield Call("ReverseV2", (x, ints(axes)), ulps=0)
        yield Call("Reverse", (x, np.array([True, False, True])), ulps=0)
        for lengths, seq, batch in (([0, 2, 4], 1, 0), ([1, 5, 3], 2, 0), ([3, 1, 2, 3], 0, 1)):
            attrs = {"seq_dim": seq, "batch_dim": batch}
            for kind in (np.int32, np.int64):
                yield Call("ReverseSequence", (x, np.array(lengths, kind)), attrs, ulps=0)
        for shift, axis in ((2, 0), (-1, 2), (7, 1), ([1, -2], [0, 1]), ([1, 1], [2, 2])):
            yield Call("Roll", (x, ints(shift), ints(axis)), ulps=0)
        yield Call("Roll", (data.normal(dtype, 0, 2), ints(1), ints(0)), ulps=0)


def _blocks(data: Data) -> Iterator[Call]:
    for dtype in dtypes("DepthToSpace"):
        for layout, shape in (("NHWC", (2, 2, 3, 8)), ("NCHW", (2, 8, 2, 3))):
            attrs = {"block_size": 2, "data_format": layout}
            yield Call("DepthToSpace", (data.normal(dtype, *shape),), attrs, ulps=0)
        for layout, shape in (("NHWC", (2, 4, 6, 3)), ("NCHW", (2, 3, 4, 6))):
            attrs = {"block_size": 2, "data_format": layout}
            yield Call("SpaceToDepth", (data.normal(dtype, *shape),), attrs, ulps=0)
    for dtype in dtypes("SpaceToBatchND"):
        x = data.normal(dtype, 2, 4, 5, 1)
        for block, pads in (
            ([2, 3], [[0, 0], [1, 0]]),
            ([2], [[1, 1]]),
            ([1, 1], [[0, 1], [2, 0]]),
        ):
            yield Call("SpaceToBatchND", (x, ints(block), ints(pads)), ulps=0)
            back = data.normal(dtype, 12, 3, 4, 2)
            yield Call("BatchToSpaceND", (back, ints(block), ints(pads)), ulps=0)
        pads = ints([[0, 0], [1, 0]])
        yield Call("SpaceToBatch", (x, pads), {"block_size": 2}, ulps=0)
        back = data.normal(dtype, 8, 3, 4, 2)
        yield Call("BatchToSpace", (back, pads), {"block_size": 2}, ulps=0)


_ALIGNS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")


def _diagonals(data: Data) -> Iterator[Call]:
    for dtype in dtypes("MatrixDiag"):
        x = data.normal(dtype, 2, 3, 5)
        yield Call("MatrixDiag", (data.normal(dtype, 2, 3),), ulps=0)
        yield Call("MatrixDiagPart", (x,), ulps=0)
        yield Call("MatrixSetDiag", (x, data.normal(dtype, 2, 3)), ulps=0)
        for low, high in ((0, 0), (-1, 1), (2, 2), (-2, -2), (-2, 4), (0, 3), (1, 2), (-2, 0)):
            yield from _bands(data, x, dtype, low, high)
        for lower, upper in ((0, 0), (1, -1), (-1, 1), (-1, -1), (2, 1), (0, 5)):
            for kind in (np.int32, np.int64):
                limits = np.array(lower, kind), np.array(upper, kind)
                if max(lower, 0) <= 3:
                    yield Call("MatrixBandPart", (x, *limits), ulps=0)
    for dtype in dtypes("Diag"):
        yield Call("Diag", (data.normal(dtype, 4),), ulps=0)
        yield Call("Diag", (data.normal(dtype, 2, 3),), ulps=0)
        yield Call("DiagPart", (data.normal(dtype, 4, 4),), ulps=0)
        yield Call("DiagPart", (data.normal(dtype, 2, 3, 2, 3),), ulps=0)


def _bands(data: Data, x: Any, dtype: tf.DType, low: int, high: int) -> Iterator[Call]:
    k = ints([low, high]) if low != high else ints(low)
    padding = data.normal(dtype)
    for align in _ALIGNS:
        attrs = {"align": align}
        taken = tf.raw_ops.MatrixDiagPartV3(input=x, k=k, padding_value=padding, **attrs)
        band = data.normal(dtype, *taken.shape)
        yield Call("MatrixDiagPartV3", (x, k, padding), attrs, ulps=0)
        yield Call("MatrixSetDiagV3", (x, band, k), attrs, ulps=0)
        sizes = ints(3), ints(5)
        yield Call("MatrixDiagV3", (band, k, *sizes, padding), attrs, ulps=0)
        yield Call("MatrixDiagV3", (band, k, ints(-1), ints(-1), padding), attrs, ulps=0)
    yield Call("MatrixDiagPartV2", (x, k, padding), ulps=0)
    left = tf.raw_ops.MatrixDiagPartV2(input=x, k=k, padding_value=padding)
    band = data.normal(dtype, *left.shape)
    yield Call("MatrixSetDiagV2", (x, band, k), ulps=0)
    yield Call("MatrixDiagV2", (band, k, *sizes, padding), ulps=0)


def _makers(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Fill"):
        for shape in ([], [2, 3], [0, 2]):
            dims = np.array(shape, np.int32)
            yield Call("Fill", (dims, data.normal(dtype)), ulps=0)
        yield Call("Empty", (ints([2, 3]),), {"dtype": dtype, "init": True}, ulps=0)
        tensor = data.normal(dtype, 2, 3)
        function = lambda tensor=tensor: tf.constant(tensor)
        yield Call("Const", (), function=function, ulps=0)
        shape = tf.TensorShape([2, 3])
        yield Call("PlaceholderWithDefault", (tensor,), {"shape": shape}, ulps=0)
    for dtype in dtypes("Range", "Tidx"):
        ranges: list[tuple[float, ...]] = [(0, 5, 1), (5, 0, -2), (3, 3, 1), (1, 10, 4)]
        ranges += [(0.5, 3.2, 0.4)] if dtype.is_floating else []
        for limits in ranges:
            inputs = tuple(np.array(value, dtype.as_numpy_dtype) for value in limits)
            yield Call("Range", inputs, ulps=16, scale=ARRAY)
    for dtype in dtypes("LinSpace"):
        for start, stop, count in ((0, 1, 5), (3, -2, 7), (1, 9, 1), (2, 2, 3), (0.1, 0.7, 50)):
            ends = np.array(start, dtype.as_numpy_dtype), np.array(stop, dtype.as_numpy_dtype)
            yield Call("LinSpace", (*ends, ints(count)), ulps=4, scale=ARRAY)
    for dtype in dtypes("OneHot"):
        values = np.array(1, dtype.as_numpy_dtype), np.array(0, dtype.as_numpy_dtype)
        for kind in dtypes("OneHot", "TI"):
            for axis in (-1, 0, 1):
                indices = np.array([[0, 2], [3, 5]], kind.as_numpy_dtype)
                attrs = {"axis": axis}
                yield Call("OneHot", (indices, ints(4), *values), attrs, ulps=0)
        negative = np.array([-1, 1], np.int32)
        yield Call("OneHot", (negative, ints(3), *values), ulps=0, note="an index below zero")
        yield Call("OneHot", (np.array(1, np.int32), ints(0), *values), ulps=0)


PARTS = (
    _reductions,
    _arg_reductions,
    _scans,
    _shapes,
    _reshapes,
    _joins,
    _splits,
    _slices,
    _slice_updates,
    _pads,
    _reversals,
    _blocks,
    _diagonals,
    _makers,
)
