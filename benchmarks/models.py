"""The time to trace and compile a large model, with a callback in it and without."""

import contextlib
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Array, Step, quiet, switched_off
from benchmarks.timing import FULL, Effort, measure_once_a_round

TITLE = "Tracing and compiling a model, with a callback in it and without"
NODES = (2_000, 20_000)

Model = tuple[Callable[[tf.Tensor], tf.Tensor], tf.Tensor]


def clipped(v: Array) -> Array:
    return np.clip(v, -1.0, 1.0)


def by_callback(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(clipped, [x], x.dtype)
    y.set_shape(x.shape)
    return y


def by_tensorflow(x: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(x, -1.0, 1.0)


class Clip(keras.layers.Layer):  # type: ignore[misc]
    """A layer that clips by one of these functions."""

    def __init__(self, clip: Step) -> None:
        super().__init__()
        self.clip = clip

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.clip(x)

    def compute_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape


def chain(nodes: int) -> Callable[[Step], Model]:
    """Return a maker of a chain of `nodes` ops, with the step in the middle.

    XLA drops most of the ops. It would take minutes to compile thousands of ops that compute.
    """

    def make(clip: Step) -> Model:
        def program(x: tf.Tensor) -> tf.Tensor:
            y = x
            for i in range(nodes // 2):
                y = tf.reshape(tf.reshape(y, [4, 4]), [16])
                if i % 100 == 0:
                    y = tf.tanh(y)
                if i == nodes // 4:
                    y = clip(y)
            return y

        return program, tf.zeros([16])

    return make


def resnet(clip: Step) -> Model:
    body = keras.applications.ResNet50(weights=None, include_top=False, input_shape=(64, 64, 3))
    model = keras.Sequential([body, Clip(clip), keras.layers.Flatten(), keras.layers.Dense(10)])
    return model, tf.zeros([1, 64, 64, 3])


def transformer(clip: Step) -> Model:
    inputs = x = keras.Input([32, 64], batch_size=2)
    for _ in range(4):
        attended = keras.layers.MultiHeadAttention(4, 16)(x, x)
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, attended]))
        wide = keras.layers.Dense(256, activation="gelu")(x)
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, keras.layers.Dense(64)(wide)]))
    return keras.Model(inputs, Clip(clip)(x)), tf.zeros([2, 32, 64])


MODELS: dict[str, Callable[[Step], Model]] = {
    "4 layers of a transformer": transformer,
    "ResNet50": resnet,
    **{f"a chain of {nodes:,} ops": chain(nodes) for nodes in NODES},
}


def seconds_to_compile(model: Model, on: bool) -> Callable[[], float]:
    call, x = model

    def make() -> float:
        with contextlib.nullcontext() if on else switched_off():
            function = tf.function(lambda x: call(x), jit_compile=True, autograph=False)
            start = time.perf_counter()
            function(x).numpy()
            return time.perf_counter() - start

    return make


def rows_of(name: str, make: Callable[[Step], Model], effort: Effort) -> list[Row]:
    stock = f"{name}, without a callback, hostcall off"
    without, with_one = f"{name}, without a callback", f"{name}, with one"
    plain, calling = make(by_tensorflow), make(by_callback)
    samples = measure_once_a_round(
        {
            stock: seconds_to_compile(plain, on=False),
            without: seconds_to_compile(plain, on=True),
            with_one: seconds_to_compile(calling, on=True),
        },
        effort,
    )
    return [
        alone(stock, samples[stock]),
        beside(samples, without, stock, at_most(1.03)),
        beside(samples, with_one, stock, at_most(1.03)),
    ]


def main(effort: Effort = FULL) -> list[Row]:
    models = MODELS if effort.part == 1 else {"a chain of 20 ops": chain(20)}
    with quiet("tensorflow"):  # it warns that a function is traced often
        return [
            row for name, make in models.items() for row in rows_of(name, make, effort.times(0.3))
        ]
