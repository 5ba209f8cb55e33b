"""Keras trains models with script ops in compiled steps under a MirroredStrategy."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_close, jitted, plain

pytestmark = [
    pytest.mark.full_run("takes long: trains models on two devices"),
    pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU"),
]


@hostcall.declare(result=lambda x: tf.TensorSpec(x.shape, x.dtype))
def half_of_square(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x**2 if tf.reduce_sum(x) > 0.0 else x


class Halving(keras.layers.Layer):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.py_function(half_of_square, [inputs], inputs.dtype)


class OwnStep(keras.Model):
    """A train_step with a script op in the forward and the backward pass, `in_mode`."""

    in_mode = staticmethod(plain)

    def train_step(self, data: Any) -> dict[str, Any]:
        @self.in_mode
        def loss_and_gradients(x: tf.Tensor, y: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                errors = tf.py_function(half_of_square, [self(x) - y], tf.float32)
                loss = tf.reduce_mean(errors)
            return loss, tape.gradient(loss, self.trainable_variables)

        loss, gradients = loss_and_gradients(*data)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class CompiledStep(OwnStep):
    in_mode = staticmethod(jitted)


def fit(devices: int, jit_compile: bool = False, model_class: type[keras.Model] = OwnStep) -> Any:
    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).normal(size=[40, 4]).astype("float32")
    y = np.cos(x).sum(axis=1, keepdims=True)
    with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)]).scope():
        inputs = keras.Input([4])
        hidden = Halving()(keras.layers.Dense(6)(inputs))
        model = model_class(inputs, keras.layers.Dense(1)(hidden))
        model.compile("sgd", "mse", jit_compile=jit_compile)
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    predicted = model.predict(x, batch_size=16, verbose=0)
    return history["loss"], predicted, [weight.numpy() for weight in model.weights]


def test_compiled_steps_of_two_replicas() -> None:
    assert_close(fit(2, model_class=CompiledStep), fit(2), rtol=1e-5, atol=1e-6)


def test_a_compiled_model() -> None:
    # On one CPU: for two, Keras makes one program of both replicas, and TensorFlow refuses to
    # compile it even without a script op, since a variable of the second CPU is in it.
    found = fit(1, jit_compile=True, model_class=keras.Model)
    assert_close(found, fit(1, model_class=keras.Model), rtol=1e-5, atol=1e-6)
