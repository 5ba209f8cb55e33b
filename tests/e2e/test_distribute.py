"""Keras trains a model with script ops in compiled steps under a MirroredStrategy."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_close, jitted, like, plain

pytestmark = [
    pytest.mark.full_run("takes long: trains models on two devices"),
    pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU"),
]


@hostcall.declare(result=like)
def half_of_square(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x**2 if tf.reduce_sum(x) > 0.0 else x


class Halving(keras.layers.Layer):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.py_function(half_of_square, [inputs], inputs.dtype)


def fit(mode: Any) -> Any:
    """The losses and weights of a train_step with script ops, forward and backward, in a mode."""

    class OwnStep(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            @mode
            def loss_and_gradients(x: tf.Tensor, y: tf.Tensor) -> Any:
                with tf.GradientTape() as tape:
                    errors = tf.py_function(half_of_square, [self(x) - y], tf.float32)
                    loss = tf.reduce_mean(errors)
                return loss, tape.gradient(loss, self.trainable_variables)

            loss, gradients = loss_and_gradients(*data)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).normal(size=[40, 4]).astype("float32")
    y = np.cos(x).sum(axis=1, keepdims=True)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        inputs = keras.Input([4])
        hidden = Halving()(keras.layers.Dense(6)(inputs))
        model = OwnStep(inputs, keras.layers.Dense(1)(hidden))
        model.compile("sgd", jit_compile=False)
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    return history["loss"], [weight.numpy() for weight in model.weights]


def test_compiled_steps_of_two_replicas() -> None:
    assert_close(fit(jitted), fit(plain), rtol=1e-5, atol=1e-6)
