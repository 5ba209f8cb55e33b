"""hostcall._compiler.lowering: calls of pure functions that are made when XLA compiles."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted
from tests.support.memo import calls_in, counting, declared

# A function that is partitioned has its script ops on the host.
pytestmark = pytest.mark.custom_call

X = tf.constant([1.0, 2.0])


def test_a_call_of_constants_is_made_once() -> None:
    double, calls = declared(lambda v: v * 2.0)
    program = jitted(lambda x: x + double(tf.constant([3.0, 4.0])))
    for _ in range(3):
        np.testing.assert_array_equal(program(X), [7.0, 10.0])
    assert len(calls) == 1
    assert calls_in(program, X) == 0
    assert len(calls) == 1


def test_what_xla_can_evaluate_is_constant() -> None:
    double, calls = declared(lambda v: v * 2.0)
    program = jitted(lambda x: x + double(double(tf.cast(tf.shape(x), tf.float32) * 2.0) + 1.0))
    for _ in range(2):
        np.testing.assert_array_equal(program(X), [19.0, 20.0])
    assert len(calls) == 2
    assert calls_in(program, X) == 0


def test_other_inputs_are_not() -> None:
    double, calls = declared(lambda v: v * 2.0)
    program = jitted(lambda x: double(x))
    for value in (1.0, 2.0, 1.0):
        np.testing.assert_array_equal(program(X * value), X * value * 2.0)
    assert len(calls) == 2
    assert calls_in(program, X) == 1


def test_one_constant_among_others() -> None:
    counted, calls = counting(lambda x, y: x * y)
    hostcall.declare(counted, result=lambda x, y: x, memo=True)
    program = jitted(lambda x: tf.numpy_function(counted, [x, 3.0], tf.float32))
    np.testing.assert_array_equal(program(X), X * 3.0)
    assert (len(calls), calls_in(program, X)) == (1, 1)


def test_without_memo_nothing_is_folded() -> None:
    calls = []
    function = lambda v: [calls.append(v), v * 2.0][1]  # noqa: E731
    hostcall.declare(function, result=lambda x: x)
    program = jitted(lambda x: x + tf.numpy_function(function, [tf.constant(1.0)], tf.float32))
    for _ in range(3):
        program(X)
    assert (len(calls), calls_in(program, X)) == (3, 1)


def test_a_function_of_nothing() -> None:
    counted, calls = counting(lambda: np.arange(3))
    numbers = hostcall.callback(
        counted, result=tf.TensorSpec([3], tf.int64), stateful=False, memo=True
    )
    program = jitted(lambda x: x + tf.cast(tf.reduce_sum(numbers()), tf.float32))
    for _ in range(2):
        np.testing.assert_array_equal(program(X), X + 3.0)
    assert (len(calls), calls_in(program, X)) == (1, 0)


def test_a_shape_may_come_of_it() -> None:
    """It is a constant for TensorFlow, too."""
    counted, _ = counting(lambda n: np.array([n, 2 * n], np.int32))
    sizes = hostcall.callback(
        counted, result=tf.TensorSpec([2], tf.int32), stateful=False, memo=True
    )
    program = jitted(lambda x: tf.zeros(sizes(3)) + x[0])
    np.testing.assert_array_equal(program(X), np.ones([3, 6]))


@pytest.mark.parametrize("inside", [True, False])
def test_in_a_loop(inside: bool) -> None:
    double, calls = declared(lambda v: v * 2.0)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        outside = tf.constant([3.0, 4.0])
        for _ in tf.range(100):
            x += double(tf.constant([3.0, 4.0]) if inside else outside)
        return x

    for _ in range(3):
        np.testing.assert_array_equal(program(X), [601.0, 802.0])
    assert len(calls) == 1
    if inside:
        assert calls_in(program, X) == 0


def test_the_order_of_other_calls_stays() -> None:
    journal: list[int] = []
    double, calls = declared(lambda v: v * 2.0)

    def note(n: int) -> None:
        tf.numpy_function(lambda: journal.append(n), [], [])

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        note(0)
        y = double(tf.constant([3.0, 4.0]))
        note(1)
        for _ in tf.range(2):
            note(2)
            y += double(tf.constant([1.0, 1.0]))
            note(3)
        if y[0] > 0.0:
            y += double(tf.constant([1.0, 1.0]))
            note(4)
        return x + y

    for _ in range(2):
        np.testing.assert_array_equal(program(X), [13.0, 16.0])
    assert journal == [0, 1, 2, 3, 2, 3, 4] * 2
    assert len(calls) == 2


DTYPES = [
    *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.complex64, np.complex128),
    *(ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [[], [3], [2, 0], [2, 3]])
def test_dtypes(dtype: Any, shape: list[int]) -> None:
    # Not counting up: what XLA makes of such constants of float8, TensorFlow 2.20 cannot compile.
    value = np.arange(np.prod(shape, dtype=int))[::-1].reshape(shape).astype(dtype)
    seen, calls = counting(lambda v: v)
    spec = tf.TensorSpec(shape, dtype)
    same = hostcall.callback(seen, result=spec, stateful=False, memo=True)
    program = jitted(lambda: same(tf.constant(value)))
    result = program().numpy()
    assert (result.dtype, result.shape) == (value.dtype, value.shape)
    assert result.tobytes() == value.tobytes()
    [(argument,)] = calls
    assert isinstance(argument, np.ndarray if shape else np.generic)
    assert argument.dtype == value.dtype
    assert calls_in(program) == 0


def test_bits_are_kept() -> None:
    bits = np.array([0x80000000, 0x7FC01234, 0xFFC00001, 0x00000001], np.uint32)
    same, calls = declared(lambda v: np.concatenate([v, bits.view(np.float32)]), result=[6])
    assert jitted(lambda: same(tf.constant([1.0, 2.0])))().numpy()[2:].tobytes() == bits.tobytes()
    assert len(calls) == 1


def test_functions_that_use_tensorflow() -> None:
    variable = tf.Variable([1.0, 1.0])
    inner = jitted(lambda v: v * 2.0)

    def derivative(v: Any) -> Any:
        x = tf.constant(v)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = inner(x) * x + variable
        return tape.gradient(y, x).numpy()

    slope, calls = declared(derivative)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(x)
        return slope(tf.constant([3.0, 4.0])) * x

    with tf.GradientTape() as tape:
        tape.watch(X)
        y = program(X)
    np.testing.assert_array_equal(y, [12.0, 32.0])
    np.testing.assert_array_equal(tape.gradient(y, X), [12.0, 16.0])
    assert len(calls) == 1
    np.testing.assert_array_equal(variable, [2.0, 3.0])


def test_in_clusters_of_a_partitioned_function() -> None:
    double, calls = declared(lambda v: v * 2.0)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        unknown = tf.numpy_function(lambda v: v[v > 1.0], [x], tf.float32)
        return tf.reduce_sum(unknown) + double(tf.constant([3.0, 4.0]))

    for _ in range(3):
        np.testing.assert_array_equal(program(X), [8.0, 10.0])
    assert len(calls) == 1
