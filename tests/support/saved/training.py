"""Models that are trained, saved, loaded, trained further, and saved again."""

from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.saved import functions

X = tf.constant([[1.0, 2.0], [0.5, -1.0], [2.0, 0.25]])
Y = tf.constant([3.0, -1.0, 1.5])
MODULE = functions.__name__


class Model(tf.Module):
    """A linear model whose loss goes through Python, with a step of training of its own."""

    def __init__(self, jitted: bool) -> None:
        super().__init__()
        self.w = tf.Variable([0.5, -0.25])
        specs = [tf.TensorSpec([3, 2], tf.float32), tf.TensorSpec([3], tf.float32)]
        self.loss = tf.function(self._loss, input_signature=specs, jit_compile=jitted)
        self.step = tf.function(self._step, input_signature=specs, jit_compile=jitted)

    def _loss(self, x: Any, y: Any) -> Any:
        error = tf.linalg.matvec(x, self.w) - y
        cubes = tf.ensure_shape(tf.py_function(functions.cube, [error], tf.float32), [3])
        pure = tf.ensure_shape(tf.py_function(functions.pure_cube, [error], tf.float32), [3])
        return tf.reduce_mean(tf.abs(cubes) + tf.abs(pure))

    def _step(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self._loss(x, y)
        self.w.assign_sub(0.01 * tape.gradient(loss, self.w))
        return loss


def train(model: Any) -> list[str]:
    """Steps of training, inside of the model and around it; what they have come to, as bytes."""
    found = []
    for _ in range(3):
        found.append(model.step(X, Y))
        with tf.GradientTape() as tape:
            loss = model.loss(X, Y)
        gradient = tape.gradient(loss, model.w)
        model.w.assign_sub(0.01 * gradient)
        found += [loss, gradient, model.w]
    return [np.asarray(value).tobytes().hex() for value in found]


def begin(folder: str, jitted: bool) -> list[str]:
    """Trains and saves; then trains on, uninterrupted."""
    model = Model(jitted)
    train(model)
    tf.saved_model.save(model, f"{folder}/first")
    return train(model)


def go_on(folder: str, before: str, after: str) -> list[str]:
    """Loads what was saved, saves it again at once, and trains on."""
    hostcall.allow(MODULE)
    model = tf.saved_model.load(f"{folder}/{before}")
    tf.saved_model.save(model, f"{folder}/{after}_uncalled")
    trained = train(model)
    # With the values that it was loaded with, and after its functions were called.
    model.w.assign(tf.saved_model.load(f"{folder}/{before}").w)
    tf.saved_model.save(model, f"{folder}/{after}")
    return trained
