"""Calls of kernels that look up, scatter, search, sort and select."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call
from tests.kernels.data import Data, ints, special
from tests.kernels.registry import dtypes
from tests.kernels.rows import Each, below, every, floating, integer, row, rows, specials, unit

OUT_OF_RANGE = "indices out of range"

look, looks = (functools.partial(make, ulps=0) for make in (row, rows))
add = functools.partial(row, ulps=8, scale=ARRAY)

_GATHERS = (
    look("GatherV2", (3, 4, 5), below(3, 2, 3), Each(0, 1, -1)),
    look("GatherV2", (3, 4, 5), below(4, 3, 2), Each(1, -1), batch_dims=1),
    looks("GatherV2", ((3, 4, 5), [], 1), ((3, 4, 5), 1, 2), note="few indices"),
    look("Gather", (3, 4, 5), below(3, 2, 3)),
    look("GatherNd", (3, 4, 5), Each(below(3, 4, 1), below(3, 4, 2), below(3, 4, 3))),
    look("GatherNd", (3, 4, 5), np.zeros((2, 0)), Tindices=every),
)


def _out_of_range(data: Data) -> Iterator[Call]:
    x, updates = data.normal(np.float32, 3, 4), data.normal(np.float32, 2, 4)
    policy = {"bad_indices_policy": "IGNORE"}
    for index in (3, -1, 100):
        places = ints([[0], [index]])
        inputs: dict[str, Any] = {
            "GatherV2": (x, ints([0, index]), ints(0)),
            "GatherNd": (x, places),
            "ScatterNd": (places, updates, ints([3, 4])),
            "TensorScatterUpdate": (x, places, updates),
            "SparseSoftmaxCrossEntropyWithLogits": (x, ints([0, 1, index])),
            "UnsortedSegmentSum": (updates, ints([0, index]), ints(3)),
            "InTopKV2": (x, ints([0, index, 1]), ints(2)),
        }
        for op, taken in inputs.items():
            yield Call(op, taken, kind=OUT_OF_RANGE)
        yield Call("GatherNd", inputs["GatherNd"], policy, note="bad indices ignored")
        yield Call("ScatterNd", inputs["ScatterNd"], policy)
        yield Call("TensorScatterAdd", inputs["TensorScatterUpdate"], policy)


_SCATTERS = (
    *(
        row(f"TensorScatter{name}", (4, 3), places, shape, Tindices=every, scale=ARRAY, **options)
        for name in ("Add", "Sub", "Update", "Max", "Min")
        for places, shape, options in (
            ([[0], [2]], (2, 3), {"ulps": 4}),
            ([[0, 1], [3, 2]], (2,), {"ulps": 4}),
            ([[1], [1], [3]], (3, 3), {"ulps": 8, "note": "an index twice"}),
            (np.zeros((0, 1)), (0, 3), {"ulps": 0}),
        )
    ),
    add("ScatterNd", [[0], [2]], (2, 3), [4, 3], Tindices=every),
    add("ScatterNd", [[1], [1]], (2, 3), [4, 3], Tindices=every, note="an index twice"),
    look("ScatterNd", [[0, 1], [3, 2]], (2,), [4, 3], Tindices=every),
    looks("SparseToDense", ([[0, 1], [1, 0], [2, 2]], [3, 4], (3,), ()),
          ([[0, 0], [0, 3], [1, 1]], [3, 4], (3,), ()), ([1, 3], [5], 1, 0), (2, [5], 1, ()),
          T=every),
)  # fmt: skip


def _with_nan(data: Data, dtype: tf.DType) -> Any:
    x = data.normal(dtype, 5, 3)
    x[0, 0] = np.nan
    return x


_SUMS = "UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin"
_IDS = [0, 2, 0, 3, 2]
_SEGMENTS = (
    *(
        add(ops, numbers(5, *more), ids, count, Tindices=every, note=note)
        for ops, numbers in ((_SUMS, lambda *shape: shape), ("UnsortedSegmentProd", unit))
        for more, ids, count, note in (
            ([3], _IDS, 4, ""),
            ([3], _IDS, 6, "empty segments"),
            ([], _IDS, 4, ""),
            ([3], [0, -1, 0, -1, 2], 3, "an index below zero"),
            ([3], [[0, 1, 1]] * 5, 2, "segments of cells"),
        )
    ),
    add("UnsortedSegmentMax UnsortedSegmentMin", _with_nan, _IDS, 4, T=floating, Tindices=every,
        note="nan"),
)  # fmt: skip


def _finite(data: Data, dtype: tf.DType) -> Any:
    numbers = special(dtype)
    return numbers[np.isfinite(numbers.astype(np.float64))]


def _odd_scores(data: Data, dtype: tf.DType) -> Any:
    scores = data.normal(dtype, 4, 6)
    scores[0], scores[1, 0], scores[2, 3] = np.nan, np.inf, -np.inf
    return scores


_SORTS = (
    looks("TopKV2", ((2, 7), 3), ((4,), 0), ((3, 7), 7), ((67,), 1)),
    look("TopKV2", [1, 3, 3, 1, 3, 1], 4, T=every, note="ties"),
    look("TopKV2", _finite, 5, T=floating, note="special values"),
    look("TopKV2", specials, 5, T=integer, note="special values"),
    look("TopKV2", specials, 5, T=floating, note="nan", kind="sorts of nan"),
    look("TopKV2", [0.0, -0.0, 0.0, -0.0], 3, T=floating, note="zeros of both signs"),
    look("TopKV2", (2, 5), 2, index_type=every),
    look("TopKV2", (2, 5), 2, index_type=every, sorted=False, kind="in any order"),
    look("ApproxTopK", (2, 9), k=3, is_max_k=Each(True, False), recall_target=1.0),
    row("InTopKV2", (4, 6), below(6, 4), Each(1, 3, 6)),
    row("InTopKV2", np.ones((4, 6)), below(6, 4), 2, note="ties"),
    row("InTopKV2", _odd_scores, below(6, 4), 2, note="nan and inf"),
)  # fmt: skip


def _ordered(data: Data, dtype: tf.DType) -> Any:
    numbers = data.normal(dtype, 2, 9)
    return np.sort(numbers.astype(np.float64), axis=-1).astype(numbers.dtype)


_SEARCHES = (
    row("LowerBound UpperBound", _ordered, Each((2, 5), (2, 0)), out_type=every),
    row("LowerBound UpperBound", [[0, 1, 1, 3, 4, 4], [2, 2, 2, 5, 7, 9]], [[1, 3, 4], [2, 5, 9]],
        T=every, out_type=every, note="found"),
    row("Bucketize", [-3, 0, 1, 2, 2.5, 5, 100], T=every,
        boundaries=Each([0.0, 2.0, 5.0], [1.5], [], [0.0, 1.0, 1.0, 2.0])),
    row("Bucketize", [np.nan, np.inf, -np.inf], T=floating, boundaries=[0.0, 1.0],
        note="nan and inf"),
    row("ListDiff", [3, 1, 2, 1, 5], Each([1, 2], []), T=every, out_idx=every),
    row("Where", Each((5,), (3, 4), (), (0, 2), (2, 2, 3))),
    row("Where", specials, note="special values"),
)  # fmt: skip

_COUNTS = (
    add("Bincount", [0, 3, 1, 3, 9], Each(4, 12), (5,)),
    look("Bincount", [0, 3, 1, 3, 9], Each(4, 12), [], T=every),
    row("Bincount", [-1, 1], 3, [], T=every, kind=OUT_OF_RANGE),
    rows("DenseBincount", (below(6, 7), Each(4, 8), (7,)), (below(6, 3, 4), Each(4, 8), (3, 4)),
         binary_output=Each(False, True), ulps=8, scale=ARRAY),
    look("DenseBincount", Each(below(6, 7), below(6, 3, 4)), Each(4, 8), [], T=every,
         binary_output=Each(False, True)),
    look("Unique", Each((12,), (0,), [1, 1, 1]), out_idx=every),
    look("UniqueV2", Each((12,), (0,), [1, 1, 1]), Each([], [0]), Taxis=tf.int64, out_idx=every),
    look("UniqueV2", below(2, 5, 2), Each([0], [1]), Taxis=tf.int64, out_idx=every),
    look("Unique", [np.nan, 1, np.nan, 0.0, -0.0, np.inf, 1], T=floating, out_idx=every,
         note="nan and zeros"),
)  # fmt: skip


def _suppressions(data: Data) -> Iterator[Call]:
    for dtype in dtypes("NonMaxSuppressionV4"):
        corners = data.positive(np.float32, 9, 2, low=0.0, high=3.0)
        boxes = np.concatenate([corners, corners + 1], 1).astype(dtype.as_numpy_dtype)
        scores = data.positive(dtype, 9, high=1.0)
        for count, *limits in ((3, 0.5, 0.0), (9, 0.3, 0.4), (20, 0.1, 0.0), (0, 0.5, 0.0)):
            inputs = boxes, scores, ints(count), *(np.array(n, boxes.dtype) for n in limits)
            yield Call("NonMaxSuppressionV3", inputs)
            for pad in (False, True):
                kind = "indices after the last that counts" if pad else ""
                attrs = {"pad_to_max_output_size": pad}
                yield Call("NonMaxSuppressionV4", inputs, attrs, kind=kind)
        rest = ints(4), np.array(0.5, boxes.dtype), np.array(0, boxes.dtype)
        ties = np.full(9, 0.5, boxes.dtype)
        yield Call("NonMaxSuppressionV3", (boxes, ties, *rest), note="ties")
        flipped = np.ascontiguousarray(boxes[:, [2, 3, 0, 1]])
        yield Call("NonMaxSuppressionV3", (flipped, scores, *rest), note="corners exchanged")


PARTS = (
    _out_of_range, _suppressions, *_GATHERS, *_SCATTERS, *_SEGMENTS, *_SORTS, *_SEARCHES, *_COUNTS
)  # fmt: skip
