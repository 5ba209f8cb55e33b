"""Keras compiled with script ops inside gives what it gives uncompiled, from the same seed."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_close, like

SAMPLES, BATCH, EPOCHS = 40, 16, 2  # the last batch has 8 samples


def soften(x: tf.Tensor) -> tf.Tensor:
    """Python decides what is computed, and the gradient has to follow."""
    if tf.reduce_mean(x) > 0.0:
        return tf.math.softplus(x) + 0.1 * x**2
    return tf.tanh(x)


def rank_in_row(x: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(x, axis=1), axis=1).astype(x.dtype)


def squared_errors(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    errors = tf.reduce_mean((y_true - y_pred) ** 2, axis=-1)
    return errors if tf.size(errors) > 8 else 2.0 * errors


def median_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    return np.median(np.abs(y_true - y_pred))


hostcall.declare(soften, result=like)
hostcall.declare(squared_errors, result=lambda _, y: tf.TensorSpec(y.shape[:1], y.dtype))
hostcall.declare(median_error, result=tf.TensorSpec([], tf.float32))
rank = hostcall.callback(rank_in_row, result=like)


class Soften(keras.layers.Layer):
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        outputs = tf.py_function(soften, [inputs], inputs.dtype)
        outputs.set_shape([None, *inputs.shape[1:]])
        return outputs


class Subclassed(keras.Model):
    """Callbacks in Model.call itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.layers.Dense(8)
        self.outer = keras.layers.Dense(1)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        hidden = tf.py_function(soften, [self.inner(inputs)], tf.float32)
        hidden.set_shape([None, 8])
        return self.outer(hidden) + 0.1 * self.outer(rank(hidden))


class OwnTrainStep(keras.Model):
    """A gradient through a callback in a train_step of the user's own."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            errors = tf.py_function(squared_errors, [y, self(x, training=True)], tf.float32)
            loss = tf.reduce_sum(errors)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss, "largest": tf.reduce_max([tf.reduce_max(g) for g in gradients])}


def sequential(layer: type[keras.layers.Layer] = Soften, **how: Any) -> keras.Model:
    layers = [keras.Input([4], **how), keras.layers.Dense(8), layer(), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def functional(model: type[keras.Model] = keras.Model) -> keras.Model:
    inputs = keras.Input([4])
    hidden = keras.layers.Dense(8)(inputs)
    both = keras.layers.Concatenate()([Soften()(hidden), Soften()(-hidden)])
    return model(inputs, keras.layers.Dense(1)(both))


def loss(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return tf.py_function(squared_errors, [y_true, y_pred], tf.float32)


def metric(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(median_error, [y_true, y_pred], tf.float32)


def everything(
    build: Callable[[], keras.Model], jit_compile: bool, batch_size: int = BATCH, **options: Any
) -> Any:
    """All that fit, evaluate and predict tell, and the trained weights."""
    keras.utils.set_random_seed(7)
    x = np.random.default_rng(0).normal(size=[SAMPLES, 4]).astype("float32")
    y = np.sin(x).sum(axis=1, keepdims=True)
    model = build()
    model.compile(**{"optimizer": "sgd", "loss": "mse", **options}, jit_compile=jit_compile)
    how = {"batch_size": batch_size, "verbose": 0}
    history = model.fit(x, y, epochs=EPOCHS, shuffle=False, **how).history
    evaluated = model.evaluate(x, y, return_dict=True, **how)
    predicted = model.predict(x, **how)
    return history, evaluated, predicted, [weight.numpy() for weight in model.weights]


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (Subclassed, {}),
        (lambda: sequential(batch_size=BATCH // 2), {"batch_size": BATCH // 2}),
        (sequential, {"steps_per_execution": 2}),
        (functional, {"loss": loss, "metrics": [metric], "optimizer": "adam"}),
        (lambda: functional(OwnTrainStep), {}),
    ],
)
def test_models_are_what_they_are_uncompiled(
    build: Callable[[], keras.Model], options: Any
) -> None:
    compiled = everything(build, True, **options)
    assert_close(compiled, everything(build, False, **options), rtol=1e-5, atol=1e-6)
    assert ("metric" in compiled[0]) == ("metrics" in options)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_stateful_callback_runs_once_a_step(jit_compile: bool) -> None:
    sizes: list[int] = []

    class Count(keras.layers.Layer):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            tf.numpy_function(lambda x: sizes.append(len(x)), [inputs], [])
            return inputs

    everything(lambda: sequential(Count), jit_compile)
    assert sizes == [16, 16, 8] * (EPOCHS + 2)  # and one each of evaluate and predict


def test_a_callback_is_a_metric_itself() -> None:
    result = tf.TensorSpec([], tf.float32)
    furthest = hostcall.callback(lambda y, p: np.max(np.abs(y - p)), result=result)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    named = hostcall.callback(median_error, result=result)
    model.compile("sgd", "mse", metrics=[furthest, named], jit_compile=True)
    history = model.fit(np.ones([8, 3], "float32"), np.ones([8, 1]), verbose=0).history
    assert {"median_error", "loss"} < set(history)
