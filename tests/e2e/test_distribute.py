"""Script ops in compiled steps under a MirroredStrategy over two logical CPUs."""

import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_close, value_and_gradient


@pytest.fixture(scope="module")
def strategy() -> tf.distribute.Strategy:
    devices = tf.config.list_logical_devices("CPU")
    assert len(devices) == 2, "tests/conftest.py makes two logical CPUs before TensorFlow starts"
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def half_of_square(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x**2 if tf.reduce_sum(x) > 0.0 else x


hostcall.declare(half_of_square, result=lambda x: tf.TensorSpec(x.shape, x.dtype))


def on_each_replica(strategy: tf.distribute.Strategy, step: Callable[..., Any]) -> Any:
    return tf.function(lambda x: strategy.run(step, args=(x,)))


def per_replica(strategy: tf.distribute.Strategy, *values: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group])
    )


def local(strategy: tf.distribute.Strategy, value: Any) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in strategy.experimental_local_results(value)]


def test_a_compiled_step_runs_in_each_replica(strategy: tf.distribute.Strategy) -> None:
    seen: list[float] = []
    lock = threading.Lock()

    def note(x: np.ndarray) -> np.ndarray:
        with lock:
            seen.append(float(x.sum()))
        return np.sort(x)

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> tf.Tensor:
        result = tf.numpy_function(note, [x], tf.float32)
        result.set_shape(x.shape)
        return result * 2.0

    run = on_each_replica(strategy, step)

    x = per_replica(strategy, [3.0, 1.0], [30.0, 10.0])
    for _ in range(3):
        first, second = local(strategy, run(x))
        np.testing.assert_array_equal(first, [2.0, 6.0])
        np.testing.assert_array_equal(second, [20.0, 60.0])
    assert sorted(seen) == [4.0] * 3 + [40.0] * 3


def test_gradients_and_a_mirrored_variable(strategy: tf.distribute.Strategy) -> None:
    def losses(jit_compile: bool) -> tuple[list[float], np.ndarray]:
        with strategy.scope():
            weight = tf.Variable([2.0, -1.0])

        @tf.function(jit_compile=jit_compile)
        def loss_and_gradient(w: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return value_and_gradient(
                lambda w: tf.reduce_sum(tf.py_function(half_of_square, [w * x], tf.float32)), w
            )

        def step(x: tf.Tensor) -> tf.Tensor:
            loss, gradient = loss_and_gradient(weight.read_value(), x)
            mean = tf.distribute.get_replica_context().all_reduce("mean", gradient)
            weight.assign_sub(0.1 * mean)
            return loss

        @tf.function
        def run(x: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(step, args=(x,)), axis=None)

        x = per_replica(strategy, [1.0, 1.0], [2.0, 3.0])
        return [float(run(x)) for _ in range(4)], weight.numpy()

    compiled, plain = losses(True), losses(False)
    assert_close(compiled, plain)
    # The first loss and weight by hand: w*x is [2, -1] (sum 1) and [4, -3] (sum 1).
    np.testing.assert_allclose(compiled[0][0], 0.5 * (4 + 1) + 0.5 * (16 + 9), rtol=1e-6)


def test_an_exception_in_one_replica(strategy: tf.distribute.Strategy) -> None:
    class OnlyOneError(ValueError):
        pass

    def refuse(x: np.ndarray) -> np.ndarray:
        if x > 5.0:
            raise OnlyOneError("too much")
        return x

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(refuse, [x], tf.float32), [])

    run = on_each_replica(strategy, step)

    with pytest.raises(tf.errors.InvalidArgumentError, match="OnlyOneError: too much") as caught:
        local(strategy, run(per_replica(strategy, 1.0, 10.0)))
    assert isinstance(hostcall.last_error(caught.value), OnlyOneError)
    assert local(strategy, run(per_replica(strategy, 1.0, 2.0))) == [1.0, 2.0]


class Halving(keras.layers.Layer):
    """A script op in a layer; `compiled` compiles the layer alone."""

    def __init__(self, compiled: bool = False) -> None:
        super().__init__()
        self._call = tf.function(self._halve, jit_compile=True) if compiled else self._halve

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self._call(inputs)

    @staticmethod
    def _halve(inputs: tf.Tensor) -> tf.Tensor:
        outputs = tf.py_function(half_of_square, [inputs], inputs.dtype)
        outputs.set_shape([None, *inputs.shape[1:]])
        return outputs


class CompiledLoss(keras.Model):
    """A train_step that compiles the forward and the backward pass, with a script op in both."""

    compiled = True

    def train_step(self, data: Any) -> dict[str, Any]:
        @tf.function(jit_compile=self.compiled)
        def loss_and_gradients(x: tf.Tensor, y: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                errors = tf.py_function(half_of_square, [self(x) - y], tf.float32)
                loss = tf.reduce_mean(errors)
            return loss, tape.gradient(loss, self.trainable_variables)

        loss, gradients = loss_and_gradients(*data)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class PlainLoss(CompiledLoss):
    compiled = False


def fit(
    strategy: tf.distribute.Strategy,
    layer: Callable[[], keras.layers.Layer],
    jit_compile: bool,
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


def assert_same_fit(compiled: Any, plain: Any) -> None:
    assert_close(compiled, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU")
def test_keras_with_a_compiled_layer(strategy: tf.distribute.Strategy) -> None:
    compiled = fit(strategy, lambda: Halving(compiled=True), jit_compile=False)
    assert_same_fit(compiled, fit(strategy, Halving, jit_compile=False))


@pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU")
def test_keras_with_a_compiled_train_step(strategy: tf.distribute.Strategy) -> None:
    compiled = fit(strategy, Halving, False, CompiledLoss)
    assert_same_fit(compiled, fit(strategy, Halving, False, PlainLoss))


@pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU")
def test_keras_compiled_as_a_whole() -> None:
    # On one CPU: for two, Keras makes one program of both replicas, and TensorFlow refuses to
    # compile it even without a script op, since a variable of the second CPU is in it.
    alone = tf.distribute.MirroredStrategy(["CPU:0"])
    assert_same_fit(fit(alone, Halving, jit_compile=True), fit(alone, Halving, jit_compile=False))
