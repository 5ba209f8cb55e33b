"""Lowering: calls of constants, made when XLA compiles or when the program runs."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import failure, gradient_of, jitted, raising, value_and_gradient
from tests.support.memo import calls_in, counting, declared

# A function that is partitioned has its script ops on the host.
pytestmark = pytest.mark.custom_call

X = tf.constant([1.0, 2.0])
INT4 = tf.as_dtype("int4")  # TensorFlow has no public name for it


def test_what_xla_can_evaluate_is_constant() -> None:
    double, calls = declared(lambda v: v * 2.0)
    program = jitted(lambda x: x + double(double(tf.cast(tf.shape(x), tf.float32) * 2.0) + 1.0))
    for _ in range(2):
        np.testing.assert_array_equal(program(X), [19.0, 20.0])
    assert (len(calls), calls_in(program, X)) == (2, 0)


def test_without_memo_nothing_is_folded() -> None:
    double, calls = declared(lambda v: v * 2.0, memo=False)
    program = jitted(lambda x: x + double(tf.constant(1.0)))
    for _ in range(3):
        program(X)
    assert (len(calls), calls_in(program, X)) == (3, 1)


def memoized(function: Callable[..., Any], spec: tf.TensorSpec) -> tuple[Any, list[Any]]:
    """A callback, and the list of the arguments of its calls."""
    counted, calls = counting(function)
    return hostcall.callback(counted, result=spec, stateful=False, memo=True), calls


def test_a_function_of_nothing() -> None:
    numbers, calls = memoized(lambda: np.arange(3), tf.TensorSpec([3], tf.int64))
    program = jitted(lambda x: x + tf.cast(tf.reduce_sum(numbers()), tf.float32))
    for _ in range(2):
        np.testing.assert_array_equal(program(X), X + 3.0)
    assert (len(calls), calls_in(program, X)) == (1, 0)


def test_a_shape_may_come_of_it() -> None:
    """The result is a constant for TensorFlow, too."""
    sizes, _ = memoized(lambda n: np.array([n, 2 * n], np.int32), tf.TensorSpec([2], tf.int32))
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


@pytest.mark.usefixtures("stock_errors")
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
@pytest.mark.parametrize("shape", [[], [2, 0], [2, 3]])
def test_dtypes(dtype: Any, shape: list[int]) -> None:
    # Not counting up: what XLA makes of such constants of float8, TensorFlow 2.20 cannot compile.
    value = np.arange(np.prod(shape, dtype=int))[::-1].reshape(shape).astype(dtype)
    same, calls = memoized(lambda v: v, tf.TensorSpec(shape, dtype))
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
        return gradient_of(lambda x: inner(x) * x + variable, tf.constant(v)).numpy()

    slope, calls = declared(derivative)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(x)
        return slope(tf.constant([3.0, 4.0])) * x

    y, gradient = value_and_gradient(program, X)
    np.testing.assert_array_equal(y, [12.0, 32.0])
    np.testing.assert_array_equal(gradient, [12.0, 16.0])
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


LARGE = np.zeros([2**18], np.float32)
STAY: dict[str, tuple[Any, Any, Any]] = {
    "large": (np.zeros([2**18 + 1], np.float32), tf.float32, [2**18 + 1]),
    "large together": ([LARGE, np.float32(1.0)], [tf.float32] * 2, [[2**18], []]),
    "bounded": (np.ones([2], np.float32), tf.float32, hostcall.BoundedSpec([5], tf.float32)),
    "int4": (np.ones([2], INT4.as_numpy_dtype), INT4, [2]),
    "without results": (None, [], []),
}


@pytest.mark.parametrize(("value", "dtypes", "result"), STAY.values(), ids=STAY.keys())
def test_what_stays_a_call(value: Any, dtypes: Any, result: Any) -> None:
    counted, calls = counting(lambda x: value)
    hostcall.declare(counted, result=result, memo=True)

    def program(x: tf.Tensor) -> Any:
        results = tf.numpy_function(counted, [1.0], dtypes)
        # XLA would return int4 as it packs it.
        return x, [tf.cast(result, tf.float32) for result in tf.nest.flatten(results) if dtypes]

    run = jitted(program)
    for _ in range(2):
        _, results = run(X)
        for one, other in zip(results, tf.nest.flatten(value), strict=bool(dtypes)):
            np.testing.assert_array_equal(one, other.astype(np.float32))
    assert (len(calls), calls_in(run, X)) == (1, 1)


def test_up_to_a_mebibyte_it_is_a_constant() -> None:
    zeros, calls = declared(lambda v: LARGE, result=[2**18])
    program = jitted(lambda: zeros(tf.constant(1.0)))
    np.testing.assert_array_equal(program(), LARGE)
    assert (len(calls), calls_in(program)) == (1, 0)


def test_an_error_is_that_of_the_run() -> None:
    error = KeyError("blah")
    broken = [True]

    def fails(v: Any) -> Any:
        if broken:
            raise error
        return v

    checked, calls = declared(fails)
    program = jitted(lambda x: checked(tf.constant([3.0, 4.0])) + x)
    for _ in range(2):
        with pytest.raises(tf.errors.UnknownError, match="KeyError: 'blah'") as caught:
            program(X)
        assert hostcall.last_error(caught.value) is error
    broken.clear()
    for _ in range(2):
        np.testing.assert_array_equal(program(X), [4.0, 6.0])
    assert len(calls) == 4  # once when it was compiled, and three times since


@pytest.mark.parametrize(
    "wrong", [np.array([1.0, 2.0], np.float64), np.array([1.0], np.float32), None, [X, X], "blah"]
)
def test_wrong_results_are_those_of_the_run(wrong: Any) -> None:
    errors = []
    for constant in (True, False):
        checked, _ = declared(lambda v: wrong, result=[2])
        program = jitted(lambda x, f=checked, c=constant: f(tf.constant([3.0, 4.0]) if c else x))
        error = failure(program, X)
        errors.append((type(error), error.message.partition(" is ")[2][:20]))
    assert errors[0] == errors[1]


def test_a_call_that_the_program_does_not_come_to() -> None:
    checked, _ = declared(raising(ValueError("blah")))
    program = jitted(lambda x: tf.cond(x[0] > 0.0, lambda: x, lambda: checked(tf.zeros([2]))))
    np.testing.assert_array_equal(program(X), X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: blah"):
        program(-X)


def test_a_function_that_runs_the_program_itself() -> None:
    """It does not wait for the lock that TensorFlow holds while it compiles."""

    def less(v: np.ndarray) -> np.ndarray:
        return np.float32(program(tf.constant(-1.0))) + v

    recursive, _ = declared(less)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        return recursive(tf.constant(3.0)) if x > 0.0 else x

    for _ in range(2):
        assert float(program(tf.constant(1.0))) == 2.0
    assert float(program(tf.constant(-5.0))) == -5.0


def test_an_interrupt_reaches_the_user() -> None:
    interrupt = KeyboardInterrupt()
    pending = [interrupt]

    def interrupted(v: Any) -> Any:
        if pending:
            raise pending.pop()
        return v

    same, _ = declared(interrupted)
    program = jitted(lambda: same(tf.constant([3.0, 4.0])))
    with pytest.raises(KeyboardInterrupt) as caught:
        program()
    assert caught.value is interrupt
    np.testing.assert_array_equal(program(), [3.0, 4.0])
