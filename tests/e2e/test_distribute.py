"""Script ops in compiled steps under a MirroredStrategy over two logical CPUs."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_close, assert_says, failure, jitted, plain


@pytest.fixture(scope="module")
def strategy() -> tf.distribute.Strategy:
    devices = tf.config.list_logical_devices("CPU")
    assert len(devices) == 2, "tests/conftest.py makes two logical CPUs before TensorFlow starts"
    return tf.distribute.MirroredStrategy([device.name for device in devices])


@hostcall.declare(result=lambda x: tf.TensorSpec(x.shape, x.dtype))
def half_of_square(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x**2 if tf.reduce_sum(x) > 0.0 else x


def on_each_replica(strategy: tf.distribute.Strategy, step: Callable[..., Any]) -> Any:
    """Run a compiled step on a value for each replica, and return the results."""
    compiled = jitted(step)
    run = tf.function(lambda x: strategy.run(compiled, args=(x,)))
    return lambda *values: strategy.experimental_local_results(run(per_replica(strategy, *values)))


def per_replica(strategy: tf.distribute.Strategy, *values: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group])
    )


def test_a_compiled_step_runs_in_each_replica(strategy: tf.distribute.Strategy) -> None:
    seen: list[float] = []

    def note(x: np.ndarray) -> np.ndarray:
        seen.append(float(x.sum()))
        return np.sort(x)

    def sort(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)

    run = on_each_replica(strategy, lambda x: sort(x) * 2.0)
    for _ in range(3):
        np.testing.assert_array_equal(run([3.0, 1.0], [30.0, 10.0]), [[2.0, 6.0], [20.0, 60.0]])
    assert sorted(seen) == [4.0] * 3 + [40.0] * 3


def test_an_exception_in_one_replica(strategy: tf.distribute.Strategy) -> None:
    class OnlyOneError(ValueError):
        pass

    def refuse(x: np.ndarray) -> np.ndarray:
        if x > 5.0:
            raise OnlyOneError("too much")
        return x

    run = on_each_replica(
        strategy, lambda x: tf.ensure_shape(tf.numpy_function(refuse, [x], tf.float32), [])
    )
    error = failure(run, 1.0, 10.0)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error, "OnlyOneError: too much")
    assert isinstance(hostcall.last_error(error), OnlyOneError)
    assert [float(result) for result in run(1.0, 2.0)] == [1.0, 2.0]


class Halving(keras.layers.Layer):
    """A script op in a layer; `alone` compiles the layer by itself."""

    def __init__(self, alone: bool = False) -> None:
        super().__init__()
        self._call = jitted(self._halve) if alone else self._halve

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self._call(inputs)

    @staticmethod
    def _halve(inputs: tf.Tensor) -> tf.Tensor:
        outputs = tf.py_function(half_of_square, [inputs], inputs.dtype)
        outputs.set_shape([None, *inputs.shape[1:]])
        return outputs


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


def fit(
    strategy: tf.distribute.Strategy,
    layer: Callable[[], keras.layers.Layer] = Halving,
    jit_compile: bool = False,
    model_class: type[keras.Model] = keras.Model,
) -> Any:
    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).normal(size=[40, 4]).astype("float32")
    y = np.cos(x).sum(axis=1, keepdims=True)
    with strategy.scope():
        inputs = keras.Input([4])
        hidden = layer()(keras.layers.Dense(6)(inputs))
        model = model_class(inputs, keras.layers.Dense(1)(hidden))
        model.compile("sgd", "mse", jit_compile=jit_compile)
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    evaluated = model.evaluate(x, y, batch_size=16, verbose=0)
    predicted = model.predict(x, batch_size=16, verbose=0)
    return history["loss"], evaluated, predicted, [weight.numpy() for weight in model.weights]


@pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU")
@pytest.mark.parametrize("compiled", ["layer", "train step", "model"])
def test_keras(compiled: str, strategy: tf.distribute.Strategy) -> None:
    if compiled == "layer":
        found, expected = fit(strategy, lambda: Halving(alone=True)), fit(strategy)
    elif compiled == "train step":
        found = fit(strategy, model_class=CompiledStep)
        expected = fit(strategy, model_class=OwnStep)
    else:
        # On one CPU: for two, Keras makes one program of both replicas, and TensorFlow refuses to
        # compile it even without a script op, since a variable of the second CPU is in it.
        one = tf.distribute.MirroredStrategy(["CPU:0"])
        found, expected = fit(one, jit_compile=True), fit(one)
    assert_close(found, expected, rtol=1e-5, atol=1e-6)
