"""Ops of random programs whose results have sizes that only the run knows.

Plain graph mode must not refuse them, so that they take empty vectors, too. Multiplications
with one keep branches from gradients of different structures, which TensorFlow refuses.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import BOUND, op, tame
from tests.differential.program import Context

PARTS = 3


@op("b a", gives="i x!")
def where(context: Context, _: Any, x: Any) -> Any:
    return tf.cast(tf.where(x)[:, 0], tf.int32)


@op("f a", "b a", gives="f x!")
def boolean_mask(context: Context, _: Any, x: Any, mask: Any) -> Any:
    return tf.boolean_mask(x * 1.0, tf.ensure_shape(mask, [None]))


@op("f a b", "b a", gives="f x! b")
def mask_rows(context: Context, _: Any, x: Any, mask: Any) -> Any:
    return tf.boolean_mask(x * 1.0, tf.ensure_shape(mask, [None]))


@op("f a b", "b b", gives="f a x!")
def mask_columns(context: Context, _: Any, x: Any, mask: Any) -> Any:
    return tf.boolean_mask(x * 1.0, tf.ensure_shape(mask, [None]), axis=1)


@op("f a", gives="f x!", params=(0.0, 1.5))
def above(context: Context, least: float, x: Any) -> Any:
    x = tf.ensure_shape(x * 1.0, [None])
    return tf.boolean_mask(x, x > tf.constant(least, tf.float64))


@op("f a", gives=lambda _: ["f x1!", "i a"])
def distinct(context: Context, _: Any, x: Any) -> Any:
    values, which = tf.unique(x)
    return tf.stop_gradient(values), which  # TensorFlow has no gradient of it


@op("f a", gives=lambda _: ["f x1!", "i x1!"])
def counted(context: Context, _: Any, x: Any) -> Any:
    """Count the values by sums of segments, as many as there are values."""
    values, which = tf.unique(x)
    ones = tf.ones_like(which)
    return tf.stop_gradient(values), tf.math.unsorted_segment_sum(ones, which, tf.size(values))


@op("f a", "i a", gives=lambda _: ["f x!"] * PARTS)
def partition(context: Context, _: Any, x: Any, which: Any) -> Any:
    return tf.dynamic_partition(x, tf.math.floormod(which, PARTS), PARTS)


@op("f a b", "i a", gives=lambda _: ["f x! b"] * 2)
def partition_rows(context: Context, _: Any, x: Any, which: Any) -> Any:
    return tf.dynamic_partition(x, tf.math.floormod(which, 2), 2)


@op("f a", gives="i x!")
def suppressed(context: Context, _: Any, x: Any) -> Any:
    """Suppress boxes; no two of them have the same score."""
    # XLA wants as many boxes as there may be results; those of low scores are never one.
    x = tf.pad(tf.cast(x, tf.float32), [[0, BOUND]], constant_values=-4.0 * BOUND)
    places = tf.cast(tf.range(tf.shape(x)[0]), tf.float32)
    corners = (places + x)[:, None]
    boxes = tf.concat([corners, corners, corners + 2.0, corners + 2.0], 1)
    return tf.image.non_max_suppression(
        boxes, x * 4096.0 + places, BOUND, iou_threshold=0.3183, score_threshold=-2.0 * BOUND * 4096
    )


@op("f a", "i", gives="f x!")
def head(context: Context, _: Any, x: Any, count: Any) -> Any:
    return x[:count]


@op("f a", "i", gives="f x!")
def rest(context: Context, _: Any, x: Any, begin: Any) -> Any:
    return x[begin:]


@op("f a b", "i", gives="f x! b")
def head_rows(context: Context, _: Any, x: Any, count: Any) -> Any:
    return x[:count] * 1.0


def _number(count: Any, least: int = 0) -> Any:
    return tf.clip_by_value(count, least, BOUND)


@op("i", gives="i x!")
def numbers(context: Context, _: Any, count: Any) -> Any:
    return tf.range(_number(count))


@op("f", "i", gives="f x!")
def filled(context: Context, _: Any, x: Any, count: Any) -> Any:
    return tf.fill([_number(count)], x)


@op("f 3", "i", gives="f x!")
def tiled(context: Context, _: Any, x: Any, count: Any) -> Any:
    return tf.tile(x, [tf.clip_by_value(count, 0, 2)])


@op("f a", "i", gives="f x!")
def padded(context: Context, _: Any, x: Any, count: Any) -> Any:
    return tf.pad(x, [[0, tf.clip_by_value(count, 0, 3)]])


@op("f a", "i a", gives="f x!")
def repeated(context: Context, _: Any, x: Any, counts: Any) -> Any:
    return tf.repeat(x * 1.0, tf.clip_by_value(counts, 0, 2))


@op("f a", "i", gives=lambda _: ["f 2 x!", "f a"])
def ragged_rows(context: Context, _: Any, x: Any, length: Any) -> Any:
    size = tf.shape(x)[0]
    first = tf.clip_by_value(length, 0, size)
    made = tf.RaggedTensor.from_row_lengths(x, tf.stack([first, size - first]))
    return made.to_tensor(), made.flat_values * 1.0


@op("f a b", gives=lambda _: ["f a x!", "f x!"])
def ragged_mask(context: Context, _: Any, x: Any) -> Any:
    x = tf.ensure_shape(x * 1.0, [None, None])
    made = tf.ragged.boolean_mask(x, x > 0.0)
    return made.to_tensor(), made.flat_values


@op("f a", gives="f x!")
def sparse(context: Context, _: Any, x: Any) -> Any:
    return tf.sparse.from_dense(x * 1.0).values


@op("f a", gives="f a")
def sparse_and_back(context: Context, _: Any, x: Any) -> Any:
    return tf.sparse.to_dense(tf.sparse.from_dense(x * 1.0))


@op("f a", "i", gives="f x!")
def array_concat(context: Context, _: Any, x: Any, length: Any) -> Any:
    """Write rows of different lengths into a list."""
    lengths = tf.stack([1, _number(length), 2])
    rows = tf.TensorArray(tf.float64, 3, infer_shape=False, element_shape=[None])
    write = lambda i, rows: (i + 1, rows.write(i, x[: lengths[i]]))  # noqa: E731
    loop = tf.while_loop(lambda i, _: i < 3, write, (0, rows), maximum_iterations=3)
    return loop[1].concat()


@op("f a", "i", gives="f x! a")
def array_stack(context: Context, _: Any, x: Any, count: Any) -> Any:
    """Write as many rows as the run says, and one at least, into a list that grows."""
    rows = tf.TensorArray(tf.float64, 0, dynamic_size=True, element_shape=x.shape)
    write = lambda i, rows: (i + 1, rows.write(i, tame(x * tf.cast(i, tf.float64))))  # noqa: E731
    most = tf.clip_by_value(count, 1, 3)
    loop = tf.while_loop(lambda i, _: i < most, write, (0, rows), maximum_iterations=3)
    return loop[1].stack()
