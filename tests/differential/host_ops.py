"""Ops of random programs that XLA cannot compile, and those with state."""

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import BOUND, register_all, tame


def ragged(x: Any) -> Any:
    limits = tf.clip_by_value(tf.stack([x, 2]), 0, BOUND)
    return tf.cast(tf.ragged.range(limits).values, tf.int32)


def total(x: Any) -> Any:
    zero = tf.zeros([], tf.float64)
    return tame(tf.data.Dataset.from_tensor_slices(x).reduce(zero, tf.add))


register_all(
    {
        "joined_text": ("i ... -> s",
            lambda x: tf.strings.reduce_join(tf.strings.as_string(x), separator=",")),
        "texts": ("i a -> s a", tf.strings.as_string),
        "join": ("s, s -> s", lambda x, y: tf.strings.substr(tf.strings.join([x, y], "/"), 0, 40)),
        "lengths": ("s a -> i a", tf.strings.length),
        "length": ("s -> i", lambda x: tame(tf.strings.length(x))),
        "ragged": ("i -> i h!", ragged),
        "parsed": ("i a -> i a", lambda x: tf.strings.to_number(tf.strings.as_string(x), tf.int32)),
        "replaced": ("s -> s", lambda pattern, x: tf.strings.regex_replace(x, pattern, "_"),
            ("[0-9]", "-", ",")),
        "parts": ("s -> i h!", lambda x: tf.strings.length(tf.strings.split(x, "1"))),
        "buckets": (
            "s a -> i a", lambda x: tf.cast(tf.strings.to_hash_bucket_fast(x, BOUND), tf.int32)
        ),
        "serialized": ("f a -> f a", lambda x: tf.ensure_shape(
            tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.float64), x.shape)),
        "determinant": (
            "f 3 -> f", lambda x: tame(tf.round(tf.linalg.det(tf.linalg.diag(x) + 1.0)))
        ),
        "nth_element": ("f 3 -> f", lambda n, x: tf.raw_ops.NthElement(input=x, n=n), (0, 1, 2)),
        "histogram": ("f a -> i 3",
            lambda x: tf.histogram_fixed_width(x, tf.constant([-4.0, 4.0], tf.float64), 3)),
        "counts": ("f a -> i h!", lambda x: tf.unique_with_counts(x).count),
        "segments": (
            "f a -> f h!", lambda x: tame(tf.math.segment_sum(x, tf.range(tf.shape(x)[0]) // 2))
        ),
        "together": (
            "i a, i b -> i h!", lambda name, x, y: getattr(tf.sets, name)(x[None], y[None]).values,
            ("intersection", "difference", "union"),
        ),
        "shuffled": ("f a -> f a", lambda x: tf.random.experimental.stateless_shuffle(x, [1, 2])),
        "dataset_total": ("f a -> f", total),
    },
    on_host=True,
)  # fmt: skip


register_all(
    {
        "table_insert": (
            "i, f ->", lambda context, key, x: context.table.insert(tf.cast(key, tf.int64), x)
        ),
        "table_find": ("i -> f", lambda context, key: context.table.lookup(tf.cast(key, tf.int64))),
        "table_size": ("-> i", lambda context: tf.cast(context.table.size(), tf.int32)),
    },
    stateful=True,
    on_host=True,
)  # fmt: skip
register_all(
    {
        "read": ("-> f 3", lambda context: tame(context.vector.read_value())),
        "assign": ("f 3 ->", lambda context, how, x: getattr(context.vector, how)(x),
            ("assign", "assign_add", "assign_sub")),
        "scatter": ("f ->", lambda context, x: context.vector.scatter_nd_update([[1]], [x])),
        "count_up": ("-> i", lambda context: tame(context.counter.assign_add(1))),
    },
    stateful=True,
)  # fmt: skip
register_all({
    "check": ("f a ->", lambda x: tf.debugging.assert_less_equal(x, tf.constant(1e9, tf.float64))),
})  # fmt: skip
