"""Keras compiled with script ops inside gives what it gives uncompiled, from the same seed."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_close

SAMPLES, BATCH, EPOCHS = 40, 16, 2  # the last batch has 8 samples
STEPS = 3


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


@pytest.fixture(scope="module", autouse=True)
def _declarations() -> None:
    hostcall.declare(soften, result=lambda x: tf.TensorSpec(x.shape, x.dtype))
    hostcall.declare(squared_errors, result=lambda _, y: tf.TensorSpec(y.shape[:1], y.dtype))
    hostcall.declare(median_error, result=tf.TensorSpec([], tf.float32))


rank = hostcall.callback(rank_in_row, result=lambda x: tf.TensorSpec(x.shape, x.dtype))


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


def sequential() -> keras.Model:
    layers = [keras.Input([4]), keras.layers.Dense(8), Soften(), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def fixed_batch() -> keras.Model:
    inputs = keras.Input([4], batch_size=BATCH // 2)
    return keras.Model(inputs, keras.layers.Dense(1)(Soften()(keras.layers.Dense(8)(inputs))))


def functional(model: type[keras.Model] = keras.Model) -> keras.Model:
    inputs = keras.Input([4])
    hidden = keras.layers.Dense(8)(inputs)
    both = keras.layers.Concatenate()([Soften()(hidden), Soften()(-hidden)])
    return model(inputs, keras.layers.Dense(1)(both))


def plain_model() -> keras.Model:
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(8), keras.layers.Dense(1)])


def loss(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return tf.py_function(squared_errors, [y_true, y_pred], tf.float32)


def metric(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(median_error, [y_true, y_pred], tf.float32)


def everything(build: Callable[[], keras.Model], jit_compile: bool, **options: Any) -> Any:
    """All that fit, evaluate and predict tell, and the trained weights."""
    batch = options.pop("batch_size", BATCH)
    keras.utils.set_random_seed(7)
    x = np.random.default_rng(0).normal(size=[SAMPLES, 4]).astype("float32")
    y = np.sin(x).sum(axis=1, keepdims=True)
    model = build()
    model.compile(**{"optimizer": "sgd", "loss": "mse", **options}, jit_compile=jit_compile)
    history = model.fit(x, y, batch_size=batch, epochs=EPOCHS, verbose=0, shuffle=False).history
    evaluated = model.evaluate(x, y, batch_size=batch, verbose=0, return_dict=True)
    predicted = model.predict(x, batch_size=batch, verbose=0)
    return history, evaluated, predicted, [weight.numpy() for weight in model.weights]


def assert_same_compiled(build: Callable[[], keras.Model], **options: Any) -> Any:
    compiled = everything(build, True, **options)
    assert_close(compiled, everything(build, False, **options), rtol=1e-5, atol=1e-6)
    return compiled


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (sequential, {}),
        (functional, {}),
        (Subclassed, {}),
        (fixed_batch, {"batch_size": BATCH // 2}),
        (sequential, {"steps_per_execution": 2}),
        (functional, {"loss": loss, "metrics": [metric], "optimizer": "adam"}),
    ],
)
def test_py_functions_in_models(build: Callable[[], keras.Model], options: Any) -> None:
    assert_same_compiled(build, **options)


def test_a_py_function_layer_trains_like_its_ops_without_a_callback() -> None:
    class Stock(keras.layers.Layer):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            positive = tf.math.softplus(inputs) + 0.1 * inputs**2
            return tf.where(tf.reduce_mean(inputs) > 0.0, positive, tf.tanh(inputs))

    def build(layer: keras.layers.Layer) -> keras.Model:
        layers = [keras.Input([4]), keras.layers.Dense(8), layer, keras.layers.Dense(1)]
        return keras.Sequential(layers)

    compiled, stock = (
        everything(lambda: build(Soften()), True),
        everything(lambda: build(Stock()), False),
    )
    assert_close(compiled, stock, rtol=1e-5, atol=1e-6)


def test_a_py_function_loss() -> None:
    history, *_ = assert_same_compiled(plain_model, loss=loss)
    assert history["loss"][-1] < history["loss"][0]


def test_a_numpy_function_metric() -> None:
    history, evaluated, *_ = assert_same_compiled(plain_model, metrics=[metric])
    assert "metric" in history
    assert "metric" in evaluated


def test_a_train_step_of_the_users_own() -> None:
    history, *_ = assert_same_compiled(lambda: functional(OwnTrainStep))
    assert history["largest"][0] != 0.0


@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_stateful_callback_runs_once_a_step(jit_compile: bool) -> None:
    sizes: list[int] = []

    class Count(keras.layers.Layer):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            tf.numpy_function(lambda x: sizes.append(len(x)), [inputs], [])
            return inputs

    def build() -> keras.Model:
        return keras.Sequential([keras.Input([4]), Count(), keras.layers.Dense(1)])

    everything(build, jit_compile)
    runs = EPOCHS + 2  # and one each of evaluate and predict
    assert sizes == [16, 16, 8] * runs
    assert len(sizes) == STEPS * runs


def test_calling_a_compiled_model_directly_and_by_train_on_batch() -> None:
    def run(jit_compile: bool) -> Any:
        keras.utils.set_random_seed(1)
        model = sequential()
        model.compile("sgd", "mse", jit_compile=jit_compile)
        x = np.linspace(-1, 1, 12, dtype=np.float32).reshape([3, 4])
        losses = [model.train_on_batch(x, x[:, :1]) for _ in range(3)]
        return losses, model(x).numpy(), model.predict_on_batch(x)

    assert_close(run(True), run(False), rtol=1e-5)


def test_an_exception_in_a_layer_comes_out_of_fit_and_training_goes_on() -> None:
    class RefusedError(ValueError):
        pass

    refuse = [True]

    class Picky(keras.layers.Layer):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            def look(x: np.ndarray) -> None:
                if refuse[0]:
                    raise RefusedError("not today")

            tf.numpy_function(look, [inputs], [])
            return inputs

    model = keras.Sequential([keras.Input([4]), Picky(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    x = np.ones([4, 4], np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="RefusedError: not today") as caught:
        model.fit(x, x[:, :1], verbose=0)
    assert isinstance(hostcall.last_error(caught.value), RefusedError)
    refuse[0] = False
    history = model.fit(x, x[:, :1], verbose=0, epochs=2).history
    assert history["loss"][1] < history["loss"][0]


@pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU")
def test_a_layer_of_unknown_shape_is_an_error_that_says_what_to_write() -> None:
    class Unknown(keras.layers.Layer):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            outputs = tf.py_function(lambda x: x * 2, [inputs], inputs.dtype)
            outputs.set_shape([None, 4])
            return outputs

    model = keras.Sequential([keras.Input([4]), Unknown(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    x = np.ones([4, 4], np.float32)
    refused = pytest.raises(tf.errors.InvalidArgumentError, match=r"hostcall\.declare\(")
    with hostcall.scope(route="custom_call"), refused:
        model.fit(x, x[:, :1], verbose=0)
