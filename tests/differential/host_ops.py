"""Ops of random programs that XLA cannot compile, and those with state."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import BOUND, op, tame
from tests.differential.program import Context


@op("i ...", gives=lambda _: ["s"])
def joined_text(context: Context, _: Any, x: Any) -> Any:
    context.flags.add("no_kernel")
    return tf.strings.reduce_join(tf.strings.as_string(x), separator=",")


@op("i a", gives="s a")
def texts(context: Context, _: Any, x: Any) -> Any:
    context.flags.add("no_kernel")
    return tf.strings.as_string(x)


@op("s", "s", gives="s")
def join(context: Context, _: Any, x: Any, y: Any) -> Any:
    context.flags.add("no_kernel")
    return tf.strings.substr(tf.strings.join([x, y], "/"), 0, 40)


@op("s a", gives="i a")
def lengths(context: Context, _: Any, x: Any) -> Any:
    context.flags.add("no_kernel")
    return tf.strings.length(x)


@op("s", gives="i")
def length(context: Context, _: Any, x: Any) -> Any:
    context.flags.add("no_kernel")
    return tame(tf.strings.length(x))


@op("i", gives="i h!")
def ragged(context: Context, _: Any, x: Any) -> Any:
    context.flags.add("no_kernel")
    limits = tf.clip_by_value(tf.stack([x, 2]), 0, BOUND)
    return tf.cast(tf.ragged.range(limits).values, tf.int32)


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
