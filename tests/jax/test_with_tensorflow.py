"""hostcall.jax.call beside TensorFlow: its specs, its tensors, errors, and programs that cross."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall.jax
from tests.jax.test_random_programs import SEEDS, check
from tests.support import helpers
from tests.support.helpers import jitted
from tests.support.jax.helpers import X, each_mode, failure, struct
from tests.support.places import here, raise_below_zero
from tests.support.versions import reads_programs_of_jax

call = hostcall.jax.call


@each_mode
def test_tensors_are_results(mode: Any) -> None:
    program = mode(lambda x: call(lambda v: tf.constant(v + np.float32(1)), x, x))
    np.testing.assert_array_equal(program(X), X + 1)


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (
            tf.TensorSpec([None], tf.float32),
            ValueError,
            r"shape \(None,\), and JAX needs every size",
        ),
        (tf.TensorSpec(None, tf.float32), ValueError, "shape <unknown>, and JAX needs every size"),
        (tf.TensorSpec([3], tf.string), TypeError, "is of dtype object, and JAX has arrays of"),
    ],
    ids=str,
)
def test_specs_of_results_that_jax_cannot_have(
    result: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as raised:
        call(np.sin, result, X)
    assert f"called at {__file__}" in str(raised.value)


def test_a_struct_of_jax_declares_results_in_both_frameworks() -> None:
    negative = hostcall.callback(lambda x: -x, result=struct(X.shape))
    by_rule = hostcall.callback(lambda x: -x, result=lambda x: struct(x.shape, x.dtype))
    for program in (negative, by_rule):
        np.testing.assert_array_equal(jax.jit(program)(X), -X)
    np.testing.assert_array_equal(jitted(negative)(np.asarray(X)), -X)


def test_a_call_in_a_tf_function() -> None:
    with pytest.raises(TypeError, match=r"is a tensor of a tf.function, .* hostcall.jax.to_tf"):
        tf.function(lambda x: call(np.negative, x, x), autograph=False)(X)


@reads_programs_of_jax
def test_to_tf_takes_calls_with_whole_arrays_alone() -> None:
    whole = hostcall.jax.to_tf(lambda x: call(np.negative, x, x, sharding=jax.P()))
    np.testing.assert_array_equal(whole(np.asarray(X)), -X)
    divided = jax.NamedSharding(jax.sharding.Mesh(jax.devices()[:1], ("i",)), jax.P("i"))
    with pytest.raises(NotImplementedError, match="TensorFlow runs a function of"):
        hostcall.jax.to_tf(lambda x: call(np.negative, x, x, sharding=divided))(np.asarray(X))


@reads_programs_of_jax
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_does_in_tensorflow_what_it_does_in_python(seed: int) -> None:
    def in_tensorflow(function: Any) -> Any:
        program = jitted(hostcall.jax.to_tf(function))
        return lambda x: jnp.asarray(program(tf.constant(x)).numpy())

    check(seed, 10, in_tensorflow)


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
