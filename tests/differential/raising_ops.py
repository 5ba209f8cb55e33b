"""Ops of random programs that graph mode refuses for some values."""

from typing import Any

import tensorflow as tf

from tests.differential.catalogue import register_all, tame, with_one

_DIVISIONS = {"floordiv": tf.math.floordiv, "floormod": tf.math.floormod}


def _powered(x: Any, y: Any) -> Any:
    return tame(tf.pow(tf.clip_by_value(x, -3, 3), tf.clip_by_value(y, -1, 3)))


def _asserted(x: Any) -> Any:
    tf.debugging.Assert(tf.reduce_all(x < 4.0), ["a number of 4 or more"])
    return x * 1.0


def _read(x: Any, i: Any) -> Any:
    x = with_one(x)
    return tf.TensorArray(x.dtype, tf.shape(x)[0], element_shape=[]).unstack(x).read(i)


RAISING: dict[str, tuple[Any, ...]] = {
    "taken": ("f a, i -> f", lambda x, i: tf.gather(x, i)),
    "taken_rows": ("f a, i b -> f b", lambda x, i: tf.gather(x, i)),
    "indexed": ("f a, i -> f", lambda x, i: x[i]),
    "sliced": ("f a, i -> f 1", lambda x, i: tf.slice(x, [i], [1])),
    "divided": ("i, i -> i", lambda name, x, y: _DIVISIONS[name](x, y), _DIVISIONS),
    "divided_rows": ("i a, i a -> i a", lambda name, x, y: _DIVISIONS[name](x, y), _DIVISIONS),
    "powered": ("i, i -> i", _powered),
    "placed": ("f a, i -> f a", lambda x, i: tf.tensor_scatter_nd_update(x, [[i]], [x[0] * 0.0])),
    "summed": ("f a, i a -> f 3", lambda x, i: tame(tf.math.unsorted_segment_sum(x, i, 3))),
    "reversed_rows": ("f a b, i a -> f a b", lambda x, i: tf.reverse_sequence(x, i, seq_axis=1)),
    "asserted": ("f a -> f a", _asserted),
    "checked": ("f a -> f a", lambda x: tf.debugging.check_numerics(x + 0.0 / x, "of a zero")),
    "read": ("f a, i -> f", _read),
}
register_all(RAISING)
