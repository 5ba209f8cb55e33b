"""Values whose sizes only the run knows: what makes them, in the ways in which programs do.

A source is a function of a float vector `x` of 6 elements and a matrix `m` of 6 rows. How many
elements of `x` are positive decides the size of what it returns, for most sources. That is a vector
or a matrix of floats, or a vector of integers; `uses.py` turns it into what a use takes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall

SIZE = 6

# The use of a value inside a source: it takes the value and returns one number.
Use = Callable[[Any], Any]


def positives(x: Any) -> Any:
    return tf.reduce_sum(tf.cast(x > 0.0, tf.int32))


def _masked(x: Any) -> Any:
    return tf.boolean_mask(x, x > 0.0)


def _scaled(v: Any, x: Any) -> Any:
    """Let a gradient flow where the values themselves have none."""
    return tf.cast(v, tf.float32) * (x[0] + 2.0)


def _which(x: Any) -> Any:
    return tf.cast(x > 0.0, tf.int32) + tf.cast(x > 0.25, tf.int32)


def _partition(values: Any, x: Any, part: int) -> Any:
    return tf.dynamic_partition(values, _which(x), 3)[part]


def _suppressed(x: Any, m: Any) -> Any:
    corners = tf.range(float(SIZE))[:, None] + tf.stack([x, x], 1)
    boxes = tf.concat([corners, corners + 1.0], 1)
    kept = tf.image.non_max_suppression(boxes, x, SIZE, iou_threshold=0.3, score_threshold=0.0)
    return tf.gather(x, kept)


def _cond_operand(x: Any, m: Any) -> Any:
    v = _masked(x)
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: v * 2.0, lambda: v + 1.0)


def _switch_sizes(x: Any, m: Any) -> Any:
    branches = [lambda: x[:1] * 2.0, lambda: x[1:4], lambda: tf.concat([x, x], 0)]
    return tf.switch_case(positives(x) % 3, branches)


def _cond_arguments(x: Any, m: Any) -> Any:
    longer = tf.concat([x, m[:, 0]], 0)
    return tf.cond(positives(x) > 2, lambda: x, lambda: longer)


def _bounded(x: Any, m: Any) -> Any:
    spec = hostcall.BoundedSpec([SIZE], tf.float32)
    return tf.numpy_function(lambda v: v[v > 0.0], [x], spec) * (x[0] + 2.0)


def _bounded_rows(x: Any, m: Any) -> Any:
    spec = hostcall.BoundedSpec([SIZE, 3], tf.float32)
    return tf.py_function(lambda u, v: tf.boolean_mask(v, u > 0.0), [x, m], spec)


def _unknown(x: Any, m: Any) -> Any:
    v = tf.numpy_function(lambda v: v[v > 0.0], [x], tf.float32)
    v.set_shape([None])
    return v * (x[0] + 2.0)


def _grown(x: Any, m: Any) -> Any:
    """Carry a vector that each turn of a loop makes longer."""
    return tf.while_loop(
        lambda i, v: i < positives(x),
        lambda i, v: (i + 1, tf.concat([v, x[i, None] + v[-1:]], 0)),
        (0, x[:1]),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )[1]


def _rows(x: Any) -> Any:
    """Write rows of different lengths into an array."""
    rows = tf.TensorArray(tf.float32, 4, infer_shape=False, element_shape=[None])
    lengths = tf.stack([1, positives(x) // 2, 2, positives(x) % 3])
    write = lambda i, rows: (i + 1, rows.write(i, x[: lengths[i]] * 2.0))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 4, write, (0, rows))[1]


def _stacked(x: Any, m: Any) -> Any:
    """Write as many rows as the run says into an array that grows."""
    rows = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3])
    write = lambda i, rows: (i + 1, rows.write(i, m[i] * 2.0))  # noqa: E731
    return tf.while_loop(lambda i, _: i < positives(x), write, (0, rows))[1].stack()


def _ragged_lengths(x: Any, m: Any) -> Any:
    n = positives(x)
    lengths = tf.stack([n, SIZE - n])
    return tf.RaggedTensor.from_row_lengths(x, lengths).to_tensor()


def _words(x: Any, m: Any) -> Any:
    # No larger than other sources: the gradients of cases hold the sine of products.
    words = tf.where(x > 0.0, tf.constant(["1", ".20", ".3", ".45", "5e-1", ".6"]), "")
    return tf.strings.to_number(tf.strings.split(tf.strings.reduce_join(words, separator=" ")))


def _segments(x: Any, m: Any) -> Any:
    values, which = tf.unique(tf.round(x * 4.0))
    return tf.math.unsorted_segment_sum(x, which, tf.size(values))


def _sliced_in_loop(x: Any, m: Any, use: Use) -> Any:
    return tf.while_loop(
        lambda i, _: i <= positives(x), lambda i, total: (i + 1, total + use(x[:i])), (1, 0.0)
    )[1]


def _masked_in_loop(x: Any, m: Any, use: Use) -> Any:
    def turn(i: Any, sum_so_far: Any) -> Any:
        kept = tf.boolean_mask(x, x > tf.cast(i, tf.float32) * 0.25 - 0.25)
        return i + 1, sum_so_far + use(kept)

    return tf.while_loop(lambda i, _: i < 3, turn, (0, 0.0))[1]


def _masked_in_branch(x: Any, m: Any, use: Use) -> Any:
    v = _masked(x)
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: use(v), lambda: use(v * 2.0) + 1.0)


def _masked_in_switch(x: Any, m: Any, use: Use) -> Any:
    """Use another part of the value in each branch."""
    v = _masked(m[:, 0])
    parts = [lambda: use(v), lambda: use(v * x[0]), lambda: use(tf.boolean_mask(x, x < 0.0))]
    return tf.switch_case(positives(x) % 3, parts)


# Each of `x` and `m`; those that take a use as well have it in a loop or a branch.
SOURCES: dict[str, Callable[..., Any]] = {
    "mask": lambda x, m: _masked(x),
    "mask_rows": lambda x, m: tf.boolean_mask(m, x > 0.0),
    "mask_columns": lambda x, m: tf.boolean_mask(tf.transpose(m), x > 0.0, axis=1),
    "mask_twice": lambda x, m: tf.boolean_mask(_masked(x), _masked(x) < 0.5),
    "where_gather": lambda x, m: tf.gather(x, tf.where(x > 0.0)[:, 0]),
    "where_index": lambda x, m: tf.where(x > 0.0)[:, 0],
    "where_matrix": lambda x, m: tf.gather_nd(m, tf.where(m > 0.0)),
    "unique": lambda x, m: _scaled(tf.stop_gradient(tf.unique(tf.round(x * 4.0))[0]), x),
    "unique_segments": _segments,
    "unique_counts": lambda x, m: tf.unique_with_counts(tf.round(x * 4.0))[2],
    "partition_0": lambda x, m: _partition(x, x, 0),
    "partition_1": lambda x, m: _partition(x, x, 1),
    "partition_rows": lambda x, m: _partition(m, x, 2),
    "suppression": _suppressed,
    "cond_sizes": lambda x, m: tf.cond(positives(x) > 2, lambda: m[:5] * 2.0, lambda: m[:2] + 1.0),
    "cond_operand": _cond_operand,
    "cond_arguments": _cond_arguments,
    "switch_sizes": _switch_sizes,
    "turned": lambda x, m: tf.image.rot90(tf.reshape(x, [2, 3, 1]), positives(x))[:, :, 0],
    "transposed": lambda x, m: tf.cond(positives(x) > 2, lambda: m, lambda: tf.transpose(m)),
    "free_mask": lambda x, m: _masked(x),
    "slice": lambda x, m: x[: positives(x)],
    "bounded": _bounded,
    "bounded_rows": _bounded_rows,
    "unknown": _unknown,
    "grown": _grown,
    "array_concat": lambda x, m: _rows(x).concat(),
    "array_stack": _stacked,
    "ragged_mask": lambda x, m: tf.ragged.boolean_mask(m, m > 0.0).to_tensor(),
    "ragged_lengths": _ragged_lengths,
    "sparse": lambda x, m: tf.sparse.from_dense(tf.nn.relu(x)).values,
    "words": lambda x, m: _scaled(_words(x, m), x),
    "repeat": lambda x, m: tf.repeat(x, _which(x)),
    "range": lambda x, m: _scaled(tf.range(positives(x)), x),
    "fill": lambda x, m: tf.fill([positives(x)], x[0]),
    "tile": lambda x, m: tf.tile(x[:2], [positives(x)]),
    "pad": lambda x, m: tf.pad(x, [[0, positives(x)]]),
    "slice_in_loop": _sliced_in_loop,
    "mask_in_loop": _masked_in_loop,
    "mask_in_branch": _masked_in_branch,
    "mask_in_switch": _masked_in_switch,
}
# Those for which tracing knows no sizes of the arguments.
FREE = {"cond_arguments", "free_mask"}


def arguments(data: str) -> tuple[Any, Any]:
    """Return `x` and `m` for one of the names in `DATA`."""
    x = np.array(DATA[data], np.float32) / 8.0
    m = np.outer(x, [1.0, -0.5, 0.75]) + np.array([0.0, 0.0625, -0.03125])
    return tf.constant(x), tf.constant(m, tf.float32)


# Numbers in eighths, which are exact in binary; some are equal.
DATA: dict[str, list[int]] = {
    "some": [1, -2, 4, 1, -4, 3],
    "none": [-4, -1, -2, -1, -3, -5],
    "one": [-2, -4, 5, -1, -4, -3],
    "all": [4, 2, 1, 6, 2, 3],
}
