"""Ops of random programs that look something up, or put it somewhere, by values or positions.

Plain graph mode must not refuse them, so that they take empty vectors, too.
"""

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import register_all, tame, with_one


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
