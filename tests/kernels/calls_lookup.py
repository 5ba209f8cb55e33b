"""Calls of kernels that look up, scatter, search, sort and select."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.kernels.call import ARRAY, Call
from tests.kernels.data import Data, ints, special, words
from tests.kernels.registry import dtypes

OUT_OF_RANGE = "indices out of range"


def _gathers(data: Data) -> Iterator[Call]:
    for dtype in dtypes("GatherV2", "Tparams"):
        x = data.normal(dtype, 3, 4, 5)
        for kind in dtypes("GatherV2", "Tindices"):
            indices = data.integers(0, 3, 2, 3, dtype=kind)
            for axis in (0, 1, -1):
                yield Call("GatherV2", (x, indices, ints(axis)), ulps=0)
            attrs = {"batch_dims": 1}
            batched = data.integers(0, 4, 3, 2, dtype=kind)
            yield Call("GatherV2", (x, batched, ints(1)), attrs, ulps=0)
            yield Call("GatherV2", (x, batched, ints(-1)), attrs, ulps=0)
            if kind in dtypes("Gather", "Tindices"):
                yield Call("Gather", (x, indices), ulps=0)
            for depth in (1, 2, 3):
                nested = data.integers(0, 3, 4, depth, dtype=kind)
                yield Call("GatherNd", (x, nested), ulps=0)
            yield Call("GatherNd", (x, np.zeros((2, 0), indices.dtype)), ulps=0)
        yield Call("GatherV2", (x, np.zeros((0,), np.int32), ints(1)), ulps=0)
        yield Call("GatherV2", (x, ints(1), ints(2)), ulps=0, note="a scalar index")


def _gathers_out_of_range(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 3, 4)
    for index in (3, -1, 100):
        attrs: dict[str, Any] = {"kind": OUT_OF_RANGE}
        yield Call("GatherV2", (x, ints([0, index]), ints(0)), **attrs)
        yield Call("GatherNd", (x, ints([[0], [index]])), **attrs)
        policy = {"bad_indices_policy": "IGNORE"}
        yield Call("GatherNd", (x, ints([[0], [index]])), policy, note="bad indices ignored")
        updates = data.normal(np.float32, 2, 4)
        yield Call("ScatterNd", (ints([[0], [index]]), updates, ints([3, 4])), **attrs)
        yield Call("TensorScatterUpdate", (x, ints([[0], [index]]), updates), **attrs)
        yield Call("TensorScatterAdd", (x, ints([[0], [index]]), updates), policy)
        yield Call("ScatterNd", (ints([[0], [index]]), updates, ints([3, 4])), policy)
        op = "SparseSoftmaxCrossEntropyWithLogits"
        yield Call(op, (x, ints([0, 1, index])), **attrs)
        yield Call("UnsortedSegmentSum", (updates, ints([0, index]), ints(3)), **attrs)
        yield Call("InTopKV2", (x, ints([0, index, 1]), ints(2)), **attrs)


_SCATTERS = (
    "TensorScatterAdd TensorScatterSub TensorScatterUpdate TensorScatterMax TensorScatterMin"
)


def _scatters(data: Data) -> Iterator[Call]:
    for op in words(_SCATTERS):
        for dtype, kind in itertools.product(dtypes(op), dtypes(op, "Tindices")):
            x = data.normal(dtype, 4, 3)
            few = np.array([[0], [2]]).astype(kind.as_numpy_dtype)
            yield Call(op, (x, few, data.normal(dtype, 2, 3)), ulps=4, scale=ARRAY)
            pairs = np.array([[0, 1], [3, 2]]).astype(kind.as_numpy_dtype)
            yield Call(op, (x, pairs, data.normal(dtype, 2)), ulps=4, scale=ARRAY)
            twice = np.array([[1], [1], [3]]).astype(kind.as_numpy_dtype)
            inputs = x, twice, data.normal(dtype, 3, 3)
            yield Call(op, inputs, ulps=8, scale=ARRAY, note="an index twice")
            none = np.zeros((0, 1), kind.as_numpy_dtype)
            yield Call(op, (x, none, data.normal(dtype, 0, 3)), ulps=0)
    for dtype, kind in itertools.product(dtypes("ScatterNd"), dtypes("ScatterNd", "Tindices")):
        shape = np.array([4, 3], kind.as_numpy_dtype)
        for rows in ([[0], [2]], [[1], [1]]):
            indices = np.array(rows, kind.as_numpy_dtype)
            inputs = indices, data.normal(dtype, 2, 3), shape
            yield Call("ScatterNd", inputs, ulps=8, scale=ARRAY, note=str(rows))
        indices = np.array([[0, 1], [3, 2]], kind.as_numpy_dtype)
        yield Call("ScatterNd", (indices, data.normal(dtype, 2), shape), ulps=0)


def _dense(data: Data) -> Iterator[Call]:
    for dtype in dtypes("SparseToDense"):
        one, kind = data.normal(dtype), data.normal(dtype, 3).dtype
        for rows in ([[0, 1], [1, 0], [2, 2]], [[0, 0], [0, 3], [1, 1]]):
            inputs = ints(rows), ints([3, 4]), data.normal(dtype, 3), one
            yield Call("SparseToDense", inputs, ulps=0)
        inputs = ints([1, 3]), ints([5]), np.array(1, kind), np.array(0, kind)
        yield Call("SparseToDense", inputs, ulps=0)
        yield Call("SparseToDense", (ints(2), ints([5]), np.array(1, kind), one), ulps=0)


def _segments(data: Data) -> Iterator[Call]:
    for name in words("Sum Prod Max Min"):
        op = f"UnsortedSegment{name}"
        for dtype, kind in itertools.product(dtypes(op), dtypes(op, "Tindices")):
            segments = np.array([0, 2, 0, 3, 2], kind.as_numpy_dtype)
            x = data.unit(dtype, 5, 3) if name == "Prod" else data.normal(dtype, 5, 3)
            rounding: dict[str, Any] = {"ulps": 8, "scale": ARRAY}
            yield Call(op, (x, segments, ints(4)), **rounding)
            yield Call(op, (x, segments, ints(6)), **rounding, note="empty segments")
            yield Call(op, (x[:, 0].copy(), segments, ints(4)), **rounding)
            dropped = np.array([0, -1, 0, -1, 2], kind.as_numpy_dtype)
            yield Call(op, (x, dropped, ints(3)), **rounding, note="an index below zero")
            cells = np.array([[0, 1, 1]] * 5, kind.as_numpy_dtype)
            yield Call(op, (x, cells, ints(2)), **rounding, note="segments of cells")
            if dtype.is_floating and name in ("Max", "Min"):
                odd = x.copy()
                odd[0, 0] = np.nan
                yield Call(op, (odd, segments, ints(4)), **rounding, note="nan")


def _sorts(data: Data) -> Iterator[Call]:
    for dtype in dtypes("TopKV2"):
        for k, shape in ((3, (2, 7)), (0, (4,)), (7, (3, 7)), (1, (67,))):
            yield Call("TopKV2", (data.normal(dtype, *shape), ints(k)), ulps=0)
        ties = np.array([1, 3, 3, 1, 3, 1], dtype.as_numpy_dtype)
        yield Call("TopKV2", (ties, ints(4)), ulps=0, note="ties")
        numbers = special(dtype)
        finite = numbers if dtype.is_integer else numbers[np.isfinite(numbers.astype(np.float64))]
        yield Call("TopKV2", (finite, ints(5)), ulps=0, note="special values")
        if dtype.is_floating:
            yield Call("TopKV2", (numbers, ints(5)), ulps=0, note="nan", kind="sorts of nan")
            zeros = np.array([0.0, -0.0, 0.0, -0.0], numbers.dtype)
            yield Call("TopKV2", (zeros, ints(3)), ulps=0, note="zeros of both signs")
        for kind in dtypes("TopKV2", "index_type"):
            x = data.normal(dtype, 2, 5)
            yield Call("TopKV2", (x, ints(2)), {"index_type": kind}, ulps=0)
            attrs = {"index_type": kind, "sorted": False}
            yield Call("TopKV2", (x, ints(2)), attrs, ulps=0, kind="in any order")
    for dtype in dtypes("ApproxTopK"):
        for largest in (True, False):
            attrs = {"k": 3, "is_max_k": largest, "recall_target": 1.0}
            yield Call("ApproxTopK", (data.normal(dtype, 2, 9),), attrs, ulps=0)
    for kind in dtypes("InTopKV2"):
        scores = data.normal(np.float32, 4, 6)
        targets = data.integers(0, 6, 4, dtype=kind)
        for k in (1, 3, 6):
            yield Call("InTopKV2", (scores, targets, np.array(k, targets.dtype)))
        ties = np.ones((4, 6), np.float32)
        yield Call("InTopKV2", (ties, targets, np.array(2, targets.dtype)), note="ties")
        odd = scores.copy()
        odd[0], odd[1, 0], odd[2, 3] = np.nan, np.inf, -np.inf
        yield Call("InTopKV2", (odd, targets, np.array(2, targets.dtype)), note="nan and inf")


def _searches(data: Data) -> Iterator[Call]:
    for op in ("LowerBound", "UpperBound"):
        for dtype, out in itertools.product(dtypes(op), dtypes(op, "out_type")):
            rows = np.sort(data.normal(dtype, 2, 9).astype(np.float64), axis=-1)
            rows = rows.astype(dtype.as_numpy_dtype)
            attrs = {"out_type": out}
            yield Call(op, (rows, data.normal(dtype, 2, 5)), attrs)
            yield Call(op, (rows, np.ascontiguousarray(rows[:, 2:6])), attrs, note="found")
            yield Call(op, (rows, data.normal(dtype, 2, 0)), attrs)
    for dtype in dtypes("Bucketize"):
        x = np.array([-3, 0, 1, 2, 2.5, 5, 100], dtype.as_numpy_dtype)
        for bounds in ([0.0, 2.0, 5.0], [1.5], [], [0.0, 1.0, 1.0, 2.0]):
            yield Call("Bucketize", (x,), {"boundaries": bounds})
        if dtype.is_floating:
            odd = np.array([np.nan, np.inf, -np.inf], dtype.as_numpy_dtype)
            yield Call("Bucketize", (odd,), {"boundaries": [0.0, 1.0]}, note="nan and inf")
    for dtype, out in itertools.product(dtypes("ListDiff"), dtypes("ListDiff", "out_idx")):
        x = np.array([3, 1, 2, 1, 5], dtype.as_numpy_dtype)
        yield Call("ListDiff", (x, x[1:3].copy()), {"out_idx": out})
        yield Call("ListDiff", (x, x[:0].copy()), {"out_idx": out})
    for dtype in dtypes("Where"):
        for shape in ((5,), (3, 4), (), (0, 2), (2, 2, 3)):
            yield Call("Where", (data.normal(dtype, *shape),))
        yield Call("Where", (special(dtype),), note="special values")


def _counts(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Bincount"):
        values = ints([0, 3, 1, 3, 9])
        weights = data.normal(dtype, 5)
        for size in (4, 12):
            yield Call("Bincount", (values, ints(size), weights), ulps=8, scale=ARRAY)
            yield Call("Bincount", (values, ints(size), weights[:0].copy()), ulps=0)
        yield Call("Bincount", (ints([-1, 1]), ints(3), weights[:0]), kind=OUT_OF_RANGE)
    for dtype, kind in itertools.product(dtypes("DenseBincount"), dtypes("DenseBincount", "Tidx")):
        values = data.integers(0, 6, 7, dtype=kind)
        rows = data.integers(0, 6, 3, 4, dtype=kind)
        for binary, size in itertools.product((False, True), (4, 8)):
            attrs = {"binary_output": binary}
            limit = np.array(size, values.dtype)
            for array in (values, rows):
                weights = data.normal(dtype, *array.shape)
                rounding: dict[str, Any] = {"ulps": 8, "scale": ARRAY}
                yield Call("DenseBincount", (array, limit, weights), attrs, **rounding)
                empty = np.zeros((0,), weights.dtype)
                yield Call("DenseBincount", (array, limit, empty), attrs, ulps=0)


def _uniques(data: Data) -> Iterator[Call]:
    for dtype, out in itertools.product(dtypes("Unique"), dtypes("Unique", "out_idx")):
        attrs = {"out_idx": out}
        for x in (data.normal(dtype, 12), data.normal(dtype, 0), np.ones(3, dtype.as_numpy_dtype)):
            yield Call("Unique", (x,), attrs, ulps=0)
            yield Call("UniqueV2", (x, np.zeros((0,), np.int64)), attrs, ulps=0)
            yield Call("UniqueV2", (x, np.array([0])), attrs, ulps=0)
        rows = data.integers(0, 2, 5, 2, dtype=dtype)
        for axis in (0, 1):
            yield Call("UniqueV2", (rows, np.array([axis])), attrs, ulps=0)
        if dtype.is_floating:
            odd = np.array([np.nan, 1, np.nan, 0.0, -0.0, np.inf, 1], dtype.as_numpy_dtype)
            yield Call("Unique", (odd,), attrs, ulps=0, note="nan and zeros")


def _suppressions(data: Data) -> Iterator[Call]:
    for dtype in dtypes("NonMaxSuppressionV4"):
        kind: Any = dtype.as_numpy_dtype
        corners = data.positive(np.float32, 9, 2, low=0.0, high=3.0)
        boxes = np.concatenate([corners, corners + 1], 1).astype(kind)
        scores = data.positive(dtype, 9, high=1.0)
        for count, overlap, least in ((3, 0.5, 0.0), (9, 0.3, 0.4), (20, 0.1, 0.0), (0, 0.5, 0.0)):
            inputs = boxes, scores, ints(count), np.array(overlap, kind), np.array(least, kind)
            yield Call("NonMaxSuppressionV3", inputs)
            for pad in (False, True):
                attrs = {"pad_to_max_output_size": pad}
                rest = "indices after the last that counts" if pad else ""
                yield Call("NonMaxSuppressionV4", inputs, attrs, kind=rest)
        ties = boxes, np.full(9, 0.5, kind), ints(4), np.array(0.5, kind), np.array(0, kind)
        yield Call("NonMaxSuppressionV3", ties, note="ties")
        flipped = np.ascontiguousarray(boxes[:, [2, 3, 0, 1]])
        inputs = flipped, scores, ints(4), np.array(0.5, kind), np.array(0, kind)
        yield Call("NonMaxSuppressionV3", inputs, note="corners exchanged")


PARTS = (
    _gathers,
    _gathers_out_of_range,
    _scatters,
    _dense,
    _segments,
    _sorts,
    _searches,
    _counts,
    _uniques,
    _suppressions,
)
