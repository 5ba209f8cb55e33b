"""Shape functions are asked while TensorFlow traces, with None where a size is not known."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_same, each_decorator

FLOAT = tf.float32
each_mode = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "jitted"])
ANY_BATCH = [tf.TensorSpec([None, 6], FLOAT)]


def _half(rule: Any) -> Any:
    """A function of its own for each test, since a declaration stays with its function."""
    return hostcall.declare(lambda x: np.asarray(x)[:, ::2] * 1.0, result=rule)


def _halved(x: tf.TensorSpec) -> Any:
    return tf.TensorSpec([x.shape[0], x.shape[1] // 2], x.dtype)


# One that fails on None says nothing until XLA compiles.
@pytest.mark.parametrize(
    ("rule", "known"), [(_halved, [None, 3]), (lambda x: [x.shape[0] * 1, 3], None)]
)
@each_decorator
@each_mode
def test_what_is_known_flows_on(op: Any, compiled: bool, rule: Any, known: Any) -> None:
    seen = []

    @tf.function(jit_compile=compiled, input_signature=ANY_BATCH)
    def program(x: tf.Tensor) -> Any:
        y = op(_half(rule), [x], FLOAT)
        seen.append(y.shape.as_list() if y.shape.rank else None)
        return tf.matmul(y, tf.ones([y.shape[1] if known else 3, 2]))

    for batch in (2, 5):
        assert_same(program(tf.ones([batch, 6])).numpy(), np.full([batch, 2], 3.0, np.float32))
    assert seen == [known]


@each_decorator
@each_mode
def test_an_argument_of_unknown_rank(op: Any, compiled: bool) -> None:
    seen = []

    @tf.function(jit_compile=compiled, input_signature=[tf.TensorSpec(None, FLOAT)])
    def program(x: tf.Tensor) -> Any:
        same = hostcall.declare(lambda x: np.asarray(x) + 1.0, result=lambda x: x)
        y = op(same, [x], FLOAT)
        rows = op(_half(lambda x: [*x.shape[:1], 3]), [x], FLOAT)
        seen.append((y.shape.rank, rows.shape.rank))
        return y, rows

    for x in (tf.ones([2, 6]), tf.ones([4, 6])):
        found = program(x)
        assert_same(found[0].numpy(), x.numpy() + 1.0)
        assert_same(found[1].numpy(), x.numpy()[:, ::2])
    assert seen == [(None, 2)]


@each_decorator
@each_mode
def test_an_answer_that_turns_out_wrong_is_an_error(op: Any, compiled: bool) -> None:
    """With None it says one, and with the size that there is what it should."""

    @tf.function(jit_compile=compiled, input_signature=ANY_BATCH)
    def program(x: tf.Tensor) -> Any:
        return op(_half(lambda x: [x.shape[0] or 1, 3]), [x], FLOAT)

    assert_same(program(tf.ones([1, 6])).numpy(), np.ones([1, 3], np.float32))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        program(tf.ones([2, 6]))
    assert "(1, 3)" in str(caught.value)
    assert_same(program(tf.ones([1, 6])).numpy(), np.ones([1, 3], np.float32))


def _functional(layers: list[keras.layers.Layer]) -> keras.Model:
    inputs = keras.Input([6])
    return keras.Model(inputs, functools.reduce(lambda x, layer: layer(x), layers, inputs))


@each_decorator
@each_mode
@pytest.mark.parametrize("build", [keras.Sequential, _functional])
def test_keras_builds_the_next_layer(op: Any, compiled: bool, build: Any) -> None:
    half = _half(_halved)

    class Halves(keras.layers.Layer):
        """A layer that tells nothing but by its function."""

        def call(self, x: tf.Tensor) -> tf.Tensor:
            return op(half, [x], FLOAT)

    model = build([Halves(), keras.layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=compiled)
    x, y = np.ones([10, 6], np.float32), np.ones([10, 2], np.float32)
    model.fit(x, y, batch_size=4, verbose=0)  # the last batch is smaller
    assert model.layers[-1].kernel.shape == (3, 2)


def test_a_dataset_knows_the_shape() -> None:
    half = _half(_halved)
    dataset = tf.data.Dataset.from_tensors(tf.ones([4, 6])).repeat().unbatch().batch(3)
    dataset = dataset.map(lambda x: tf.numpy_function(half, [x], FLOAT))
    assert dataset.element_spec.shape.as_list() == [None, 3]
