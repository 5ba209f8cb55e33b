"""Tests of the call that an error names, where JAX runs code of TensorFlow's or the reverse."""

from typing import Any

import jax
import numpy as np
import tensorflow as tf

import hostcall.jax
from tests.support import helpers
from tests.support.helpers import jitted
from tests.support.jax.helpers import failure, struct
from tests.support.places import here, raise_below_zero
from tests.support.versions import reads_programs_of_jax


def by_numpy_function(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(raise_below_zero, [x], tf.TensorSpec([], tf.float32))
    return tf.numpy_function(raise_below_zero, [y - 1.0], tf.TensorSpec([], tf.float32))


def by_jax(x: Any) -> Any:
    y = hostcall.jax.call(raise_below_zero, struct([]), x)
    return hostcall.jax.call(raise_below_zero, struct([]), y - 1.0)


def test_in_jax_the_call_that_failed_is_named() -> None:
    run = jax.jit(by_jax)
    assert f"called at {here(1, by_jax)}" in str(failure(run, np.float32(-1.0)))
    assert f"called at {here(2, by_jax)}" in str(failure(run, np.float32(0.0)))


@reads_programs_of_jax
def test_a_jax_function_in_tensorflow_names_the_call() -> None:
    run = jitted(hostcall.jax.to_tf(by_jax))
    assert f"called at {here(1, by_jax)}" in str(helpers.failure(run, tf.constant(-1.0)))
    assert f"called at {here(2, by_jax)}" in str(helpers.failure(run, tf.constant(0.0)))


def test_a_tensorflow_function_in_jax_names_the_call() -> None:
    run = jax.jit(hostcall.jax.from_tf(jitted(by_numpy_function)))
    assert f"called at {here(1, by_numpy_function)}" in str(failure(run, np.float32(-1.0)))
    assert f"called at {here(2, by_numpy_function)}" in str(failure(run, np.float32(0.0)))


def test_an_error_grows_by_a_line_with_each_call_that_it_passes_through() -> None:
    def step(x: Any) -> Any:
        if x == 0.0:
            raise ValueError("the innermost")
        return np.asarray(run(x - np.float32(1.0)))

    def run(x: Any) -> Any:  # a new program a level: JAX refuses one that calls itself
        return jax.jit(lambda x: hostcall.jax.call(step, struct([]), x) + 1.0)(x)

    lines = []
    for depth in (2, 6):
        text = str(failure(run, np.float32(depth)))
        assert text.count("Traceback (most recent call last)") == 1
        assert text.count("Passed on by step") == depth
        assert "ValueError: the innermost" in text
        lines.append(len(text.splitlines()))
    assert lines[1] - lines[0] == 4
