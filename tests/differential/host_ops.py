"""Ops of random programs that XLA cannot compile, and those with state."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import BOUND, host_op, op, tame
from tests.differential.program import Context


@host_op("i ...", gives="s")
def joined_text(context: Context, _: Any, x: Any) -> Any:
    return tf.strings.reduce_join(tf.strings.as_string(x), separator=",")


@host_op("i a", gives="s a")
def texts(context: Context, _: Any, x: Any) -> Any:
    return tf.strings.as_string(x)


@host_op("s", "s", gives="s")
def join(context: Context, _: Any, x: Any, y: Any) -> Any:
    return tf.strings.substr(tf.strings.join([x, y], "/"), 0, 40)


@host_op("s a", gives="i a")
def lengths(context: Context, _: Any, x: Any) -> Any:
    return tf.strings.length(x)


@host_op("s", gives="i")
def length(context: Context, _: Any, x: Any) -> Any:
    return tame(tf.strings.length(x))


@host_op("i", gives="i h!")
def ragged(context: Context, _: Any, x: Any) -> Any:
    limits = tf.clip_by_value(tf.stack([x, 2]), 0, BOUND)
    return tf.cast(tf.ragged.range(limits).values, tf.int32)


@host_op("i a", gives="i a")
def parsed(context: Context, _: Any, x: Any) -> Any:
    return tf.strings.to_number(tf.strings.as_string(x), tf.int32)


@host_op("s", gives="s", params=("[0-9]", "-", ","))
def replaced(context: Context, pattern: str, x: Any) -> Any:
    return tf.strings.regex_replace(x, pattern, "_")


@host_op("s", gives="i h!")
def parts(context: Context, _: Any, x: Any) -> Any:
    return tf.strings.length(tf.strings.split(x, "1"))


@host_op("s a", gives="i a")
def buckets(context: Context, _: Any, x: Any) -> Any:
    return tf.cast(tf.strings.to_hash_bucket_fast(x, BOUND), tf.int32)


@host_op("f a", gives="f a")
def serialized(context: Context, _: Any, x: Any) -> Any:
    return tf.ensure_shape(tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.float64), x.shape)


@host_op("f 3", gives="f")
def determinant(context: Context, _: Any, x: Any) -> Any:
    return tame(tf.round(tf.linalg.det(tf.linalg.diag(x) + 1.0)))


@host_op("f 3", gives="f", params=(0, 1, 2))
def nth_element(context: Context, n: int, x: Any) -> Any:
    return tf.raw_ops.NthElement(input=x, n=n)


@host_op("f a", gives="i 3")
def histogram(context: Context, _: Any, x: Any) -> Any:
    return tf.histogram_fixed_width(x, tf.constant([-4.0, 4.0], tf.float64), 3)


@host_op("f a", gives="i h!")
def counts(context: Context, _: Any, x: Any) -> Any:
    return tf.unique_with_counts(x).count


@host_op("f a", gives="f h!")
def segments(context: Context, _: Any, x: Any) -> Any:
    return tame(tf.math.segment_sum(x, tf.range(tf.shape(x)[0]) // 2))


@host_op("i a", "i b", gives="i h!", params=("intersection", "difference", "union"))
def together(context: Context, name: str, x: Any, y: Any) -> Any:
    return getattr(tf.sets, name)(x[None], y[None]).values


@host_op("f a", gives="f a")
def shuffled(context: Context, _: Any, x: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(x, [1, 2])


@host_op("f a", gives="f")
def dataset_total(context: Context, _: Any, x: Any) -> Any:
    zero = tf.zeros([], tf.float64)
    return tame(tf.data.Dataset.from_tensor_slices(x).reduce(zero, tf.add))


@host_op("i", "f", gives="")
def table_insert(context: Context, _: Any, key: Any, value: Any) -> Any:
    context.table.insert(tf.cast(key, tf.int64), value)
    return []


@host_op("i", gives="f")
def table_find(context: Context, _: Any, key: Any) -> Any:
    return context.table.lookup(tf.cast(key, tf.int64))


@host_op(gives="i")
def table_size(context: Context, _: Any) -> Any:
    return tf.cast(context.table.size(), tf.int32)


@op("f a", gives="")
def check(context: Context, _: Any, x: Any) -> Any:
    tf.debugging.assert_less_equal(x, tf.constant(1e9, tf.float64))
    return []


@op(gives="f 3")
def read(context: Context, _: Any) -> Any:
    return tame(context.vector.read_value())


@op("f 3", gives="", params=("assign", "assign_add", "assign_sub"))
def assign(context: Context, how: str, x: Any) -> Any:
    getattr(context.vector, how)(x)
    return []


@op("f", gives="")
def scatter(context: Context, _: Any, x: Any) -> Any:
    context.vector.scatter_nd_update([[1]], [x])
    return []


@op(gives="i")
def count_up(context: Context, _: Any) -> Any:
    return tame(context.counter.assign_add(1))
