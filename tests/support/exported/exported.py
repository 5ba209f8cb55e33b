"""TensorFlow functions that are exported."""

from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.exported.user_code import Pair, half, note, pairs, sine, structured, two

F3 = tf.TensorSpec([3], tf.float32)
I = tf.TensorSpec([], tf.int32)  # noqa: E741
X = np.array([1.0, 2.0, 0.5], np.float32)


def doubled_tensor(x: tf.Tensor) -> tf.Tensor:
    return tf.add(x, x)


def two_tensors(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, int]:
    return x + tf.cast(n, x.dtype), 2


def half_gradient(inputs: Any, results: Any, upstream: Any) -> Any:
    return upstream * 0.5


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable([1.0, 2.0, 3.0], name="scale")
        self.count = tf.Variable(0, dtype=tf.int64, name="count")
        self.half = hostcall.callback(half, result=lambda x: x, grad=half_gradient)

    @tf.function(jit_compile=True)
    def predict(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(self.half(x * self.scale))

    @tf.function(jit_compile=True)
    def step(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = self.predict(x) ** 2
        self.scale.assign_sub(0.1 * tape.gradient(loss, self.scale))
        self.count.assign_add(1)
        return {"loss": loss, "count": self.count}


def call_sine(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(sine, [x], x.dtype), x.shape)


def straight(x: tf.Tensor) -> tf.Tensor:
    return tf.cos(call_sine(x) + 1.0)


def looping(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    i = tf.constant(0)
    while i < n:
        x = call_sine(x) + 1.0
        tf.numpy_function(note, [x], [])
        i += 1
    if tf.reduce_sum(x) > 4.0:
        tf.numpy_function(note, [-x], [])
        x = call_sine(x)
    return x, i


def with_structures(x: tf.Tensor) -> dict[str, Any]:
    call = hostcall.callback(
        structured, result=lambda pair, table: {"z": pair.first, "a": [pair.first, (pair.first,)]}
    )
    made = hostcall.callback(pairs, result=lambda x: Pair(x, x), stateful=False)(x)
    returned = call(Pair(x, 2.0 * x), {"b": made.first, "a": made.second})
    return {"returned": returned, "pair": Pair(x, None), "list": [x, (x,)]}


def by_two_conventions(x: tf.Tensor) -> tf.Tensor:
    spec = tf.TensorSpec(x.shape, x.dtype)
    a, b = tf.numpy_function(two, [x, x], [spec, spec])
    c, d = hostcall.callback(two, result=lambda x, y: (x, y))(x, a)
    return a + b + c + d


def several_dtypes(*tensors: tf.Tensor) -> list[tf.Tensor]:
    return [tf.ensure_shape(tf.numpy_function(np.copy, [t], t.dtype), t.shape) for t in tensors]


def without_callbacks(x: tf.Tensor) -> tf.Tensor:
    return (
        tf.reduce_sum(tf.sin(x))
        + tf.math.erf(x)
        + tf.math.top_k(x).values[0]
        + tf.linalg.qr(tf.reshape(x, [3, 1]))[1][0, 0]
    )


def in_turn(x: tf.Tensor) -> tf.Tensor:
    """Calls of which none needs what another returns."""
    for factor in range(10):
        tf.numpy_function(note, [x * float(factor)], [])
    return x


def nothing(x: tf.Tensor) -> None:
    tf.numpy_function(note, [x], [])


def constants(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
    return (
        x,
        tf.constant(3.0),
        tf.shape(x),
        x,
        call_sine(x) * tf.constant([True, False, True], x.dtype),
    )


# For each of them what it is exported for, and what it is called with.
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "straight": (straight, (F3,), (X,)),
    "looping": (looping, (F3, I), (X, np.int32(3))),
    "not_taken": (looping, (F3, I), (-X, np.int32(0))),
    "structures": (with_structures, (F3,), (X,)),
    "conventions": (by_two_conventions, (F3,), (X,)),
    "no_callbacks": (without_callbacks, (F3,), (X,)),
    "in_turn": (in_turn, (F3,), (X,)),
    "no_results": (nothing, (F3,), (X,)),
    "constants": (constants, (F3,), (X,)),
}
