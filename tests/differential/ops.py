"""Ops of random programs that XLA can compile and that have no state.

Values are small integers in float64, so that the results are exact whatever XLA does with them.
"""

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import register_all, tame

BINARY = {"add": tf.add, "subtract": tf.subtract, "multiply": tf.multiply, "maximum": tf.maximum}
UNARY = {"negative": tf.negative, "square": tf.square, "abs": tf.abs, "sign": tf.sign,
         "relu": tf.nn.relu, "identity": tf.identity, "stop": tf.stop_gradient}  # fmt: skip


def _sorted(x: Any) -> Any:
    # The gradient of tf.sort fails where there is nothing. That of tf.gather has indices, which the
    # multiplication takes away: with them, XLA ends the process in a tf.concat of nothing.
    return tf.gather(x * 1.0, tf.argsort(x))


ALONG = {"reverse": lambda x: x[::-1], "sort": _sorted, "cumsum": tf.cumsum}


def _binary(name: str, x: Any, y: Any) -> Any:
    return tame(BINARY[name](x, y))


register_all({
    "binary": ("f a, f a -> f a", _binary, BINARY),
    "total": ("f ... -> f", lambda x: tame(tf.reduce_sum(x))),
    "with_scalar": ("f a, f -> f a", _binary, BINARY),
    "unary": ("f a -> f a", lambda name, x: tame(UNARY[name](x)), UNARY),
    "along": ("f a -> f a", lambda name, x: tame(ALONG[name](x)), ALONG),
    "outer": ("f a, f b -> f a b", lambda x, y: tame(x[:, None] * y[None, :])),
    "matmul": ("f a b, f b c -> f a c", lambda x, y: tame(tf.matmul(x, y))),
    "transpose": ("f a b -> f b a", tf.transpose),
    "rows": ("f a b -> f a", lambda name, x: tame(getattr(tf, name)(x, axis=1)),
             ("reduce_sum", "reduce_max")),
    "flatten": ("f a b -> f a*b", lambda x: tf.reshape(x, [-1])),
    "concat": ("f a, f b -> f a+b", lambda x, y: tf.concat([x, y], 0)),
    "tail": ("f a -> f a~", lambda x: x[1:]),
    "spread": ("f -> f 3", lambda factors, x: tame(x * tf.constant(factors, tf.float64)),
               ((1, 2, 3), (-1, 0, 1))),
    "size": ("* a -> i", lambda x: tf.shape(x)[0]),
    "fill": ("* a -> f a", lambda value, x: tf.fill(tf.shape(x), tf.constant(value, tf.float64)),
             (1, -2)),
    "positions": ("* a -> i a", lambda x: tf.range(tf.shape(x)[0])),
    "to_integers": ("f a -> i a", lambda x: tf.cast(x, tf.int32)),
    "to_integer": ("f -> i", lambda x: tf.cast(x, tf.int32)),
    "to_floats": ("i a -> f a", lambda x: tf.cast(x, tf.float64)),
    "to_float": ("i -> f", lambda x: tf.cast(x, tf.float64)),
    "integers": ("i, i -> i", _binary, BINARY),
    "integer_total": ("i a -> i", lambda x: tame(tf.reduce_sum(x))),
    "greater": ("f a, f -> b a", lambda x, y: x > y),
    "less": ("f, f -> b", lambda x, y: x < y),
    "even": ("i -> b", lambda x: tf.equal(tf.bitwise.bitwise_and(x, 1), 0)),
    "truth": ("b a -> b", lambda name, x: getattr(tf, name)(x), ("reduce_any", "reduce_all")),
    "select": ("b a, f a, f a -> f a", tf.where),
})  # fmt: skip
