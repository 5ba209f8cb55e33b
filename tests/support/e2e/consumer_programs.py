"""Programs whose ops tell the shapes of the results of script ops that they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.device import on_device

FLOAT = tf.float32


class Returns:
    """Returns numbers in a shape that is told later."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __call__(self, *_: Any) -> np.ndarray:
        return np.arange(np.prod(self.shape), dtype=np.float32).reshape(self.shape)


with on_device():
    VARIABLE = tf.Variable(tf.zeros([2, 3]))
PAIR = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def behind_a_cast(y: tf.Tensor) -> Any:
    z = tf.cast(y, tf.float64)
    z.set_shape([2, 3])
    return 2.0 * z


def behind_many_ops(y: tf.Tensor) -> Any:
    return tf.ensure_shape(tf.abs(tf.identity(-tf.sqrt(y))), [2, 3])


def assigned(y: tf.Tensor) -> Any:
    return VARIABLE.assign(y) + 1.0


def assigned_behind_a_cast(y: tf.Tensor) -> Any:
    VARIABLE.assign(tf.cast(tf.cast(y, tf.float64), FLOAT))
    return VARIABLE + 1.0


def added_to_a_variable(y: tf.Tensor) -> Any:
    VARIABLE.assign(PAIR)
    return VARIABLE.assign_add(y), VARIABLE.assign_sub(2.0 * tf.ensure_shape(y, None))


def applied_to_a_variable(y: tf.Tensor) -> Any:
    VARIABLE.assign(PAIR)
    tf.raw_ops.ResourceApplyGradientDescent(var=VARIABLE.handle, alpha=0.5, delta=y)
    return VARIABLE.read_value()


def stacked(y: tf.Tensor) -> Any:
    return tf.stack([y, PAIR], axis=1)


def stacked_and_told(y: tf.Tensor) -> Any:
    z = tf.stack([y, y], axis=-1)
    z.set_shape([2, 3, 2])
    return z


def unstacked(y: tf.Tensor) -> Any:
    parts = tf.unstack(y, 2)
    return tf.ensure_shape(parts[0], [3]) + parts[1]


def unstacked_from_the_end(y: tf.Tensor) -> Any:
    parts = tf.unstack(y, 3, axis=-1)
    return tf.stack([parts[2], tf.constant([1.0, 2.0])])


def joined(y: tf.Tensor) -> Any:
    return tf.ensure_shape(tf.concat([PAIR, y], axis=0), [4, 3])


def joined_at_the_last(y: tf.Tensor) -> Any:
    return (
        VARIABLE.assign(tf.concat([PAIR[:, :1], tf.concat([y, y], -1)[:, 4:]], axis=-1))
        + (tf.ensure_shape(tf.concat([y, PAIR], axis=-1), [2, 6])[:, :3])
    )


def indices_of_a_gather(y: tf.Tensor) -> Any:
    z = tf.gather(tf.range(30.0), tf.cast(y, tf.int32))
    return tf.ensure_shape(z, [2, 3])


def gathered_from(y: tf.Tensor) -> Any:
    z = tf.gather(y, [1, 0, 1], axis=0)
    return tf.ensure_shape(z, [3, 3]), tf.ensure_shape(tf.gather(y, 1, axis=1), [2])


def added_up(y: tf.Tensor) -> Any:
    return tf.add_n([PAIR, y])


def reshaped_with_a_size_missing(y: tf.Tensor) -> Any:
    y.set_shape([2, None])
    return tf.reshape(y, [3, 2])


def into_a_loop(y: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, _: i < 3,
        lambda i, z: (i + 1, z * 2.0),
        (0, y),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([2, 3])),
    )[1]


TRUE_TO_THEM = [
    *(behind_many_ops, assigned, assigned_behind_a_cast, added_to_a_variable),
    *(applied_to_a_variable, stacked, unstacked, unstacked_from_the_end, joined),
    *(joined_at_the_last, indices_of_a_gather, gathered_from, added_up),
]
PROMISES = [behind_a_cast, stacked_and_told, reshaped_with_a_size_missing, into_a_loop]
