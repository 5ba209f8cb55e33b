"""hostcall._functions.native_functions: native code that is called on tensors and arrays."""

import ctypes
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted, plain
from tests.support.memo import eagerly
from tests.support.native_code.programs import NEXT, of

X = np.array([1.0, 2.0, 3.0], np.float32)


@pytest.mark.parametrize("mode", [eagerly, plain, jitted])
def test_it_is_called_on_tensors(mode: Any) -> None:
    add = of("next_float32", *NEXT)
    result = mode(lambda x: add(x) * 2.0)(tf.constant(X))
    assert isinstance(result, tf.Tensor)
    np.testing.assert_array_equal(result, (X + 1) * 2)


def test_a_compiled_program_calls_it_without_python() -> None:
    add = of("next_float32", *NEXT)
    program = jitted(lambda x: add(x))
    hlo = program.experimental_get_compiler_ir(tf.zeros([3]))(stage="hlo")
    assert 'custom_call_target="hostcall_native"' in hlo


def test_sizes_that_tracing_does_not_know() -> None:
    add = of("next_float32", *NEXT)
    program = tf.function(add, jit_compile=True, input_signature=[tf.TensorSpec([None])])
    np.testing.assert_array_equal(program(X), X + 1)


@pytest.mark.parametrize("mode", [eagerly, jax.jit])
def test_it_is_called_on_arrays_of_jax(mode: Any) -> None:
    add = of("next_float32", *NEXT)
    result = mode(lambda x: add(x) * 2)(jnp.asarray(X))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, (X + 1) * 2)


def test_arrays_of_numpy_stay_such() -> None:
    result = of("next_float32", *NEXT)(X)
    assert type(result) is np.ndarray


def test_variables() -> None:
    add = of("next_float32", *NEXT)
    variable = tf.Variable(X)
    for mode in (eagerly, plain, jitted):
        np.testing.assert_array_equal(mode(lambda: add(variable))(), X + 1)


def test_other_dtypes_than_the_code_takes() -> None:
    add = of("next_float32", *NEXT)
    for mode in (eagerly, jitted):
        with pytest.raises((TypeError, tf.errors.InvalidArgumentError), match="float32"):
            mode(add)(tf.constant([1.0], tf.float64))


def test_results_have_to_be_declared() -> None:
    with pytest.raises(TypeError, match=r"Write result=tf\.TensorSpec\(\[3\], tf\.float32\)"):
        hostcall.native(ctypes.CFUNCTYPE(None)())
