"""Which call an exception came from: the error names the line of the user's that made it."""

import os
import traceback
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import failure, jitted, plain
from tests.support.places import here, raise_below_zero

SPEC = tf.TensorSpec([], tf.float32)
ROUTES = ["custom_call", "partition"]


def by_numpy_function(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(raise_below_zero, [x], SPEC)
    return tf.numpy_function(raise_below_zero, [y - 1.0], SPEC)


def by_py_function(x: tf.Tensor) -> tf.Tensor:
    y = tf.py_function(raise_below_zero, [x], SPEC)
    return tf.py_function(raise_below_zero, [y - 1.0], SPEC)


CALLED = hostcall.callback(raise_below_zero, result=SPEC)


def by_callback(x: tf.Tensor) -> tf.Tensor:
    y = CALLED(x)
    return CALLED(y - 1.0)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("program", [by_numpy_function, by_py_function, by_callback])
def test_of_two_calls_the_one_that_failed_is_named(program: Any, route: str) -> None:
    with hostcall.scope(route=route):
        run = jitted(program)
        first = str(failure(run, tf.constant(-1.0)))
        second = str(failure(run, tf.constant(0.0)))
    assert f"called at {here(1, program)}" in first
    assert f"called at {here(2, program)}" in second
    assert here(2, program) not in first
    assert here(1, program) not in second
    assert f"raise_below_zero ({here(0, raise_below_zero)})" in first


@pytest.mark.parametrize("route", ROUTES)
def test_the_lines_that_led_to_the_call_are_those_of_plain_graph_mode(route: str) -> None:
    def inner(x: tf.Tensor) -> tf.Tensor:
        return by_numpy_function(x) * 2.0

    def outer(x: tf.Tensor) -> tf.Tensor:
        return inner(x) + 1.0

    with hostcall.scope(route=route):
        compiled = str(failure(jitted(outer), tf.constant(-1.0)))
    stock = str(failure(plain(outer), tf.constant(-1.0)))
    for function in (outer, inner, by_numpy_function):
        line = function.__code__.co_firstlineno + 1
        place = f'File "{__file__}", line {line}, in {function.__name__}\n'
        assert place in stock
        assert place in compiled


def fail(x: Any) -> Any:
    raise ValueError("in the layer")


hostcall.declare(fail, result=lambda x: x)


class Failing(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x + tf.numpy_function(fail, [x], x.dtype)


@pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU")
@pytest.mark.parametrize("route", [*ROUTES, None])
def test_keras_fit_names_the_layer_and_its_line(route: str | None) -> None:
    layers = [keras.layers.Dense(2), Failing(name="first"), Failing(name="second")]
    model = keras.Sequential([keras.Input((2,), batch_size=4), *layers])
    model.compile("sgd", "mse", jit_compile=route is not None)
    x = np.zeros((4, 2), np.float32)
    with hostcall.scope(route=route or "auto"):
        text = str(failure(lambda: model.fit(x, x, verbose=0)))
    assert "first" in text.splitlines()[2]
    assert "second" not in text
    line = Failing.call.__code__.co_firstlineno + 1
    assert f'File "{__file__}", line {line}, in call\n' in text
    assert "ValueError: in the layer" in text


@pytest.mark.cpu("XLA's inverse is not checked")
def test_errors_of_other_ops_show_no_frames_of_hostcall() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.function(tf.linalg.inv, autograph=False)(tf.zeros([2, 2]))
    text = caught.value.message + "".join(traceback.format_exception(caught.value))
    assert "not invertible" in text
    assert os.path.dirname(hostcall.__file__) not in text
