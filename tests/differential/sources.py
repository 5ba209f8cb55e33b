"""Ops of random programs whose results have sizes that only the run knows.

Plain graph mode must not refuse them, so that they take empty vectors, too. Multiplications
with one keep branches from gradients of different structures, which TensorFlow refuses.
"""

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import BOUND, register_all, tame

PARTS = 3


def _masked(x: Any, mask: Any, axis: int = 0) -> Any:
    return tf.boolean_mask(x * 1.0, tf.ensure_shape(mask, [None]), axis=axis)


def _above(least: float, x: Any) -> Any:
    x = tf.ensure_shape(x * 1.0, [None])
    return tf.boolean_mask(x, x > tf.constant(least, tf.float64))


def _distinct(x: Any) -> Any:
    values, which = tf.unique(x)
    return tf.stop_gradient(values), which  # TensorFlow has no gradient of it


def _counted(x: Any) -> Any:
    """Count the values by sums of segments, as many as there are values."""
    values, which = tf.unique(x)
    ones = tf.ones_like(which)
    return tf.stop_gradient(values), tf.math.unsorted_segment_sum(ones, which, tf.size(values))


def _partition(x: Any, which: Any, parts: int = PARTS) -> Any:
    return tf.dynamic_partition(x, tf.math.floormod(which, parts), parts)


def _suppressed(x: Any) -> Any:
    """Suppress boxes; no two of them have the same score."""
    # XLA wants as many boxes as there may be results; those of low scores are never one.
    x = tf.pad(tf.cast(x, tf.float32), [[0, BOUND]], constant_values=-4.0 * BOUND)
    places = tf.cast(tf.range(tf.shape(x)[0]), tf.float32)
    corners = (places + x)[:, None]
    boxes = tf.concat([corners, corners, corners + 2.0, corners + 2.0], 1)
    return tf.image.non_max_suppression(
        boxes, x * 4096.0 + places, BOUND, iou_threshold=0.3183, score_threshold=-2.0 * BOUND * 4096
    )


def _number(count: Any, most: int = BOUND) -> Any:
    return tf.clip_by_value(count, 0, most)


def _ragged_rows(x: Any, length: Any) -> Any:
    size = tf.shape(x)[0]
    first = tf.clip_by_value(length, 0, size)
    made = tf.RaggedTensor.from_row_lengths(x, tf.stack([first, size - first]))
    return made.to_tensor(), made.flat_values * 1.0


def _ragged_mask(x: Any) -> Any:
    x = tf.ensure_shape(x * 1.0, [None, None])
    made = tf.ragged.boolean_mask(x, x > 0.0)
    return made.to_tensor(), made.flat_values


def _array_concat(x: Any, length: Any) -> Any:
    lengths = tf.stack([1, _number(length), 2])
    rows = tf.TensorArray(tf.float64, 3, infer_shape=False, element_shape=[None])
    write = lambda i, rows: (i + 1, rows.write(i, x[: lengths[i]]))  # noqa: E731
    loop = tf.while_loop(lambda i, _: i < 3, write, (0, rows), maximum_iterations=3)
    return loop[1].concat()


def _array_stack(x: Any, count: Any) -> Any:
    """Write as many rows as the run says, and one at least, into a list that grows."""
    rows = tf.TensorArray(tf.float64, 0, dynamic_size=True, element_shape=x.shape)
    write = lambda i, rows: (i + 1, rows.write(i, tame(x * tf.cast(i, tf.float64))))  # noqa: E731
    most = tf.clip_by_value(count, 1, 3)
    loop = tf.while_loop(lambda i, _: i < most, write, (0, rows), maximum_iterations=3)
    return loop[1].stack()


SOURCES: dict[str, tuple[Any, ...]] = {
    "where": ("b a -> i x!", lambda x: tf.cast(tf.where(x)[:, 0], tf.int32)),
    "boolean_mask": ("f a, b a -> f x!", _masked),
    "mask_rows": ("f a b, b a -> f x! b", _masked),
    "mask_columns": ("f a b, b b -> f a x!", lambda x, mask: _masked(x, mask, axis=1)),
    "above": ("f a -> f x!", _above, (0.0, 1.5)),
    "distinct": ("f a -> f x1!, i a", _distinct),
    "counted": ("f a -> f x1!, i x1!", _counted),
    "partition": ("f a, i a -> f x!, f x!, f x!", _partition),
    "partition_rows": ("f a b, i a -> f x! b, f x! b", lambda x, which: _partition(x, which, 2)),
    "suppressed": ("f a -> i x!", _suppressed),
    "head": ("f a, i -> f x!", lambda x, count: x[:count]),
    "rest": ("f a, i -> f x!", lambda x, begin: x[begin:]),
    "head_rows": ("f a b, i -> f x! b", lambda x, count: x[:count] * 1.0),
    "numbers": ("i -> i x!", lambda count: tf.range(_number(count))),
    "filled": ("f, i -> f x!", lambda x, count: tf.fill([_number(count)], x)),
    "tiled": ("f 3, i -> f x!", lambda x, count: tf.tile(x, [_number(count, 2)])),
    "padded": ("f a, i -> f x!", lambda x, count: tf.pad(x, [[0, _number(count, 3)]])),
    "repeated": ("f a, i a -> f x!", lambda x, counts: tf.repeat(x * 1.0, _number(counts, 2))),
    "ragged_rows": ("f a, i -> f 2 x!, f a", _ragged_rows),
    "ragged_mask": ("f a b -> f a x!, f x!", _ragged_mask),
    "sparse": ("f a -> f x!", lambda x: tf.sparse.from_dense(x * 1.0).values),
    "sparse_and_back": ("f a -> f a", lambda x: tf.sparse.to_dense(tf.sparse.from_dense(x * 1.0))),
    "array_concat": ("f a, i -> f x!", _array_concat),
    "array_stack": ("f a, i -> f x! a", _array_stack),
}  # fmt: skip
register_all(SOURCES)
