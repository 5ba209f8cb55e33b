"""Ops of random programs that XLA can compile and that have no state.

Values are small integers in float64, so that the results are exact whatever XLA does with them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import op, tame
from tests.differential.program import Context

BINARY = {"add": tf.add, "subtract": tf.subtract, "multiply": tf.multiply, "maximum": tf.maximum}


@op("f a", "f a", gives="f a", params=tuple(BINARY))
def binary(context: Context, name: str, x: Any, y: Any) -> Any:
    return tame(BINARY[name](x, y))


@op("f ...", gives=lambda _: ["f"])
def total(context: Context, _: Any, x: Any) -> Any:
    return tame(tf.reduce_sum(x))


@op("f a", "f", gives="f a", params=tuple(BINARY))
def with_scalar(context: Context, name: str, x: Any, y: Any) -> Any:
    return tame(BINARY[name](x, y))


UNARY = {"negative": tf.negative, "square": tf.square, "abs": tf.abs, "sign": tf.sign,
         "relu": tf.nn.relu, "identity": tf.identity, "stop": tf.stop_gradient}  # fmt: skip


@op("f a", gives="f a", params=tuple(UNARY))
def unary(context: Context, name: str, x: Any) -> Any:
    return tame(UNARY[name](x))


def _sorted(x: Any) -> Any:
    # The gradient of tf.sort fails where there is nothing. That of tf.gather has indices, which the
    # multiplication takes away: with them, XLA ends the process in a tf.concat of nothing.
    return tf.gather(x * 1.0, tf.argsort(x))


@op("f a", gives="f a", params=("reverse", "sort", "cumsum"))
def along(context: Context, name: str, x: Any) -> Any:
    make = {"reverse": lambda v: v[::-1], "sort": _sorted, "cumsum": tf.cumsum}
    return tame(make[name](x))


@op("f a", "f b", gives="f a b")
def outer(context: Context, _: Any, x: Any, y: Any) -> Any:
    return tame(x[:, None] * y[None, :])


@op("f a b", "f b c", gives="f a c")
def matmul(context: Context, _: Any, x: Any, y: Any) -> Any:
    return tame(tf.matmul(x, y))


@op("f a b", gives="f b a")
def transpose(context: Context, _: Any, x: Any) -> Any:
    return tf.transpose(x)


@op("f a b", gives="f a", params=("reduce_sum", "reduce_max"))
def rows(context: Context, reduce: str, x: Any) -> Any:
    return tame(getattr(tf, reduce)(x, axis=1))


@op("f a b", gives="f a*b")
def flatten(context: Context, _: Any, x: Any) -> Any:
    return tf.reshape(x, [-1])


@op("f a", "f b", gives="f a+b")
def concat(context: Context, _: Any, x: Any, y: Any) -> Any:
    return tf.concat([x, y], 0)


@op("f a", gives="f a~")
def tail(context: Context, _: Any, x: Any) -> Any:
    return x[1:]


@op("f", gives="f 3", params=((1, 2, 3), (-1, 0, 1)))
def spread(context: Context, factors: Any, x: Any) -> Any:
    return tame(x * tf.constant(factors, tf.float64))


@op("* a", gives="i")
def size(context: Context, _: Any, x: Any) -> Any:
    return tf.shape(x)[0]


@op("* a", gives="f a", params=(1, -2))
def fill(context: Context, value: int, x: Any) -> Any:
    return tf.fill(tf.shape(x), tf.constant(value, tf.float64))


@op("* a", gives="i a")
def positions(context: Context, _: Any, x: Any) -> Any:
    return tf.range(tf.shape(x)[0])


@op("f a", gives="i a")
def to_integers(context: Context, _: Any, x: Any) -> Any:
    return tf.cast(x, tf.int32)


@op("f", gives="i")
def to_integer(context: Context, _: Any, x: Any) -> Any:
    return tf.cast(x, tf.int32)


@op("i a", gives="f a")
def to_floats(context: Context, _: Any, x: Any) -> Any:
    return tf.cast(x, tf.float64)


@op("i", gives="f")
def to_float(context: Context, _: Any, x: Any) -> Any:
    return tf.cast(x, tf.float64)


@op("i", "i", gives="i", params=tuple(BINARY))
def integers(context: Context, name: str, x: Any, y: Any) -> Any:
    return tame(BINARY[name](x, y))


@op("i a", gives="i")
def integer_total(context: Context, _: Any, x: Any) -> Any:
    return tame(tf.reduce_sum(x))


@op("f a", "f", gives="b a")
def greater(context: Context, _: Any, x: Any, y: Any) -> Any:
    return x > y


@op("f", "f", gives="b")
def less(context: Context, _: Any, x: Any, y: Any) -> Any:
    return x < y


@op("i", gives="b")
def even(context: Context, _: Any, x: Any) -> Any:
    return tf.equal(tf.bitwise.bitwise_and(x, 1), 0)


@op("b a", gives="b", params=("reduce_any", "reduce_all"))
def truth(context: Context, reduce: str, x: Any) -> Any:
    return getattr(tf, reduce)(x)


@op("b a", "f a", "f a", gives="f a")
def select(context: Context, _: Any, condition: Any, x: Any, y: Any) -> Any:
    return tf.where(condition, x, y)
