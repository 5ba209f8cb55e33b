"""Usual ops of random programs, many of which XLA gets wrong for sizes that only the run knows.

They change layouts, look something up, or put it somewhere. Plain graph mode must not refuse them,
so that they take empty vectors, too.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.differential.catalogue import like, op, register_all, tame, with_one
from tests.differential.program import Context

# Means in eighths are rounded after adding this, so that none is near a half.
OFFSET = 0.3183


def _places(x: Any) -> Any:
    return tf.range(tf.shape(x)[0])


# XLA refuses loops over nothing, where the compiler knows that.
SAME_SIZE: dict[str, Callable[[Any], Any]] = {
    "roll": lambda x: tf.roll(x, 1, 0),
    "cumsum_back": lambda x: tf.cumsum(x, exclusive=True, reverse=True),
    "cumprod": lambda x: tf.math.cumprod(tf.sign(x)),
    "gather_back": lambda x: tf.gather(x * 1.0, _places(x)[::-1]),
    "stitch_back": lambda x: tf.dynamic_stitch([_places(x)[::-1]], [x]),
    "scatter_back": lambda x: tf.scatter_nd(_places(x)[::-1, None], x, tf.shape(x)),
    "update": lambda x: tf.tensor_scatter_nd_update(x * 0.0, _places(x)[::-1, None], x),
    "segments_back": lambda x: tf.math.unsorted_segment_sum(x, _places(x)[::-1], tf.shape(x)[0]),
    "differences": lambda x: with_one(x)[1:] - with_one(x)[:-1],
    "times_size": lambda x: x * tf.cast(tf.size(x), tf.float64),
    "minus_total": lambda x: x - tf.reduce_sum(x, keepdims=True),
    "ones": lambda x: tf.ones_like(x) + tf.zeros_like(x),
    "diagonal": lambda x: tf.linalg.diag_part(x[:, None] * x[None, :]),
    "column_and_back": lambda x: tf.squeeze(tf.reshape(x, [tf.size(x), 1]), 1),
    "map": lambda x: tf.map_fn(lambda v: v * 2.0 + 1.0, with_one(x))[1:],
    "vectorized_map": lambda x: tf.vectorized_map(lambda v: v * 2.0 + 1.0, with_one(x))[1:],
    "scan": lambda x: tf.scan(lambda a, v: tame(a + v), with_one(x))[1:],
    "conditional": lambda x: tf.cond(tf.size(x) > 2, lambda: x * 2.0, lambda: x + 1.0),
}


def _halves(how: str, x: Any) -> Any:
    half = tf.size(x) // 2
    if how == "split":
        return tf.split(x, tf.stack([half, tf.size(x) - half]), num=2)
    return x[:half], x[half:]


def _every_other(x: Any) -> Any:
    # XLA has no gradient of nothing, taken in steps.
    x = with_one(with_one(x))
    return x[::2], x[1::2]


DOUBLED: dict[str, Callable[[Any], Any]] = {
    "concat": lambda x: tf.concat([x, -x], 0),
    "tile": lambda x: tf.tile(x, [2]),
    "pad": lambda x: tf.pad(x, [[tf.size(x), 0]]),
    "repeat": lambda x: tf.repeat(x * 1.0, 2),
    "flatten": lambda x: tf.reshape(tf.stack([x, -x], 1), [-1]),
    "stitch": lambda x: tf.dynamic_stitch([_places(x), _places(x) + tf.size(x)], [x, x]),
}
TWO_ROWS = {
    "stack": lambda x: tf.stack([x, -x]),
    "reshape": lambda x: tf.reshape(tf.concat([x, -x], 0), [2, -1]),
}
TWO_COLUMNS = {
    "stack": lambda x: tf.stack([x, -x], 1),
    "reshape": lambda x: tf.reshape(tf.repeat(x * 1.0, 2), [-1, 2]),
}
SQUARES = {
    "diag": tf.linalg.diag,
    "eye": lambda x: tf.eye(tf.size(x), dtype=tf.float64),
    "band_part": lambda x: tame(tf.linalg.band_part(x[:, None] * x[None, :], -1, 0)),
}
RANGES = {"down": lambda n: tf.range(n, 0, -1), "steps": lambda n: tf.range(1, 2 * n + 1, 2)}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "last": lambda x: with_one(x)[-1],
    "middle": lambda x: tf.sort(with_one(x) * 1.0)[tf.size(x) // 2],
    "gather_last": lambda x: tf.gather(with_one(x), tf.size(x)),
    "ones": lambda x: tf.reduce_sum(tf.ones_like(x)),
    "mean": lambda x: tf.round(tf.reduce_mean(with_one(x)) * 8.0 + OFFSET),
    "norm": lambda x: tf.round(tf.norm(x, ord=1)),
    "fold": lambda x: tf.foldl(lambda a, v: tame(v - a), with_one(x)),
    "product": lambda x: tf.tensordot(x, x[::-1], 1),
    "least": tf.reduce_min,
    "trace": lambda x: tf.linalg.trace(x[:, None] * x[None, :]),
}
MATRICES: dict[str, Callable[[Any], Any]] = {
    "cumsum_down": lambda x: tf.cumsum(x, 0),
    "cumsum_along": lambda x: tf.cumsum(x, 1),
    "reverse": lambda x: tf.reverse(x, [0, 1]),
    "roll": lambda x: tf.roll(x, [1, 2], [0, 1]),
    "sort_down": lambda x: tf.transpose(tf.sort(tf.transpose(tf.stop_gradient(x)))),
    "center": lambda x: x - tf.reduce_sum(x, 0, keepdims=True),
    # In plain graph mode, a loop over no rows of a size that tracing does not know is an error.
    "map_rows": lambda x: tf.map_fn(lambda row: row * 2.0 + 1.0, tf.pad(x, [[1, 0], [0, 0]]))[1:],
}


def _columns(name: str, x: Any) -> Any:
    y = getattr(tf, name)(x, axis=0)
    if name == "reduce_mean":
        y = tf.round(tf.where(tf.math.is_nan(y), tf.zeros_like(y), y) * 8.0 + OFFSET)
    return tame(y)


def _concat_columns(x: Any) -> Any:
    y = tf.transpose(x)
    return tf.concat([y, tf.ones([tf.shape(y)[0], 2], tf.float64)], 1)


register_all({
    "same_size": (
        "f a -> f a", lambda name, x: like(tame(SAME_SIZE[name](x)), x), SAME_SIZE
    ),
    "without": (
        "f a -> f a~", lambda end, x: x[1:] * 1.0 if end == "first" else x[:-1], ("first", "last")
    ),
    "every_other": ("f a -> f a/, f a%", _every_other),
    "halves_of": ("f a -> f a<, f a>", _halves, ("slices", "split")),
    "doubled": ("f a -> f a+a", lambda name, x: DOUBLED[name](x), DOUBLED),
    "pad": ("f a -> f a+3", lambda x: tf.pad(x, [[1, 2]], constant_values=1)),
    "update_first": ("f a -> f a+1",
        lambda x: tf.tensor_scatter_nd_update(with_one(x), [[0]], tf.constant([7.0], tf.float64))),
    "two_rows": ("f a -> f 2 a", lambda how, x: TWO_ROWS[how](x), TWO_ROWS),
    "two_columns": ("f a -> f a 2", lambda how, x: TWO_COLUMNS[how](x), TWO_COLUMNS),
    "square_matrix": ("f a -> f a a", lambda name, x: SQUARES[name](x), SQUARES),
    "diag_part": ("f a a -> f a", tf.linalg.diag_part),
    "range_by_size": ("* a -> i a", lambda how, x: RANGES[how](tf.size(x)), RANGES),
    "number": ("f a -> f", lambda name, x: tame(tf.ensure_shape(NUMBERS[name](x), [])), NUMBERS),
    "longer": ("* a -> b", lambda size, x: tf.size(x) > size, (0, 2)),
    "sequence_mask": ("* a -> b 3", lambda x: tf.sequence_mask(tf.size(x), 3)),
    "add_row": ("f a b, f b -> f a b", lambda x, y: tame(x + y)),
    "times_column": ("f a b, f a -> f a b", lambda x, y: tame(x * y[:, None])),
    "stitch": ("f a, f b -> f a+b",
        lambda x, y: tf.dynamic_stitch([_places(x), _places(y) + tf.size(x)], [x, y])),
    "same_sizes": (
        "f a b -> f a b", lambda name, x: like(tame(MATRICES[name](x)), x), MATRICES
    ),
    "columns": ("f a b -> f b", _columns, ("reduce_sum", "reduce_min", "reduce_mean")),
    "concat_columns": ("f a b -> f b a+2", _concat_columns),
    "last_column": ("f a b -> f a", lambda x: tf.pad(x, [[0, 0], [1, 0]])[:, -1]),
})  # fmt: skip


@op("f a, f b -> f b")
def times_one(context: Context, _: Any, x: Any, y: Any) -> Any:
    """Multiply with a vector that has one element, which only the run knows."""
    context.flags.add("dynamic")
    one = tf.boolean_mask(with_one(x), _places(with_one(x)) < 1)
    return tame(tf.ensure_shape(one * y, y.shape))


def _three(where: Any) -> Any:
    return tf.math.floormod(where, 3)


def _gather(how: str, x: Any, where: Any) -> Any:
    among = with_one(x)
    where = tf.math.floormod(where, tf.size(among))
    if how == "gather":
        return tf.gather(among * 1.0, where)
    return tf.gather_nd(among * 1.0, where[:, None])


def _gather_rows(x: Any, where: Any) -> Any:
    among = tf.pad(x, [[0, 1], [0, 0]])
    return tf.gather(among * 1.0, tf.math.floormod(where, tf.shape(among)[0]))


INTO_THREE = {
    "scatter": lambda x, where: tf.scatter_nd(where[:, None], x, [3]),
    "sum": lambda x, where: tf.math.unsorted_segment_sum(x, where, 3),
    "max": lambda x, where: tf.math.unsorted_segment_max(x, where, 3),
    "segment": lambda x, where: tf.math.unsorted_segment_sum(x, tf.sort(where), 3),
}


def _searchsorted(side: str, x: Any, y: Any) -> Any:
    x = tf.sort(tf.stop_gradient(x))
    return tf.searchsorted(x, tf.stop_gradient(y), side=side)


register_all({
    "top_three": ("f a -> f 3",
        lambda x: tf.math.top_k(tf.concat([x, tf.constant([0, -1, 1], tf.float64)], 0), 3)[0]),
    "extreme": ("f a -> i",
        lambda name, x: tame(getattr(tf, name)(with_one(x), output_type=tf.int32)),
        ("argmax", "argmin")),
    "gather_three": ("f 3, i a -> f a", lambda x, where: tf.gather(x * 1.0, _three(where))),
    "gather": ("f a, i b -> f b", _gather, ("gather", "gather_nd")),
    "gather_rows": ("f a b, i c -> f c b", _gather_rows),
    "into_three": ("f a, i a -> f 3",
        lambda name, x, where: tame(INTO_THREE[name](x, _three(where))), INTO_THREE),
    "add_at": ("f 3, f a, i a -> f 3",
        lambda x, y, where: tame(tf.tensor_scatter_nd_add(x, _three(where)[:, None], y))),
    "rows_into_three": ("f a b, i a -> f 3 b",
        lambda x, where: tame(tf.math.unsorted_segment_sum(x, _three(where), 3))),
    "bincount": ("i a -> i 3", lambda x: tf.math.bincount(_three(x), minlength=3, maxlength=3)),
    "one_hot": ("i a -> f a 3", lambda x: tf.one_hot(x, 3, dtype=tf.float64)),
    "searchsorted": ("f a, f b -> i b", _searchsorted, ("left", "right")),
})  # fmt: skip
