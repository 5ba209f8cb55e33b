"""Ops of random programs that look something up, or put it somewhere, by values or positions.

Plain graph mode must not refuse them, so that they take empty vectors, too.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import op, tame, with_one
from tests.differential.program import Context


@op("f a", gives="f 3")
def top_three(context: Context, _: Any, x: Any) -> Any:
    return tf.math.top_k(tf.concat([x, tf.constant([0.0, -1.0, 1.0], tf.float64)], 0), 3)[0]


@op("f a", gives="i", params=("argmax", "argmin"))
def extreme(context: Context, name: str, x: Any) -> Any:
    return tame(getattr(tf, name)(with_one(x), output_type=tf.int32))


@op("f 3", "i a", gives="f a")
def gather_three(context: Context, _: Any, x: Any, where: Any) -> Any:
    return tf.gather(x * 1.0, tf.math.floormod(where, 3))


@op("f a", "i b", gives="f b", params=("gather", "gather_nd"))
def gather(context: Context, how: str, x: Any, where: Any) -> Any:
    among = with_one(x)
    where = tf.math.floormod(where, tf.size(among))
    if how == "gather":
        return tf.gather(among * 1.0, where)
    return tf.gather_nd(among * 1.0, where[:, None])


@op("f a b", "i c", gives="f c b")
def gather_rows(context: Context, _: Any, x: Any, where: Any) -> Any:
    among = tf.pad(x, [[0, 1], [0, 0]])
    return tf.gather(among * 1.0, tf.math.floormod(where, tf.shape(among)[0]))


@op("f a", "i a", gives="f 3", params=("scatter", "sum", "max", "segment"))
def into_three(context: Context, name: str, x: Any, where: Any) -> Any:
    where = tf.math.floormod(where, 3)
    if name == "scatter":
        return tame(tf.scatter_nd(where[:, None], x, [3]))
    if name == "segment":
        totals = tf.math.unsorted_segment_sum(x, tf.sort(where), 3)
        return tame(totals)
    return tame(getattr(tf.math, f"unsorted_segment_{name}")(x, where, 3))


@op("f 3", "f a", "i a", gives="f 3")
def add_at(context: Context, _: Any, x: Any, y: Any, where: Any) -> Any:
    return tame(tf.tensor_scatter_nd_add(x, tf.math.floormod(where, 3)[:, None], y))


@op("f a b", "i a", gives="f 3 b")
def rows_into_three(context: Context, _: Any, x: Any, where: Any) -> Any:
    return tame(tf.math.unsorted_segment_sum(x, tf.math.floormod(where, 3), 3))


@op("i a", gives="i 3")
def bincount(context: Context, _: Any, x: Any) -> Any:
    return tf.math.bincount(tf.math.floormod(x, 3), minlength=3, maxlength=3)


@op("i a", gives="f a 3")
def one_hot(context: Context, _: Any, x: Any) -> Any:
    return tf.one_hot(x, 3, dtype=tf.float64)


@op("f a", "f b", gives="i b", params=("left", "right"))
def searchsorted(context: Context, side: str, x: Any, y: Any) -> Any:
    x = tf.sort(tf.stop_gradient(x))
    return tf.searchsorted(x, tf.stop_gradient(y), side=side)
