"""hostcall._compiler.lowering: calls of constants that are made when the program runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted
from tests.support.memo import calls_in, counting, declared

# A function that is partitioned has its script ops on the host.
pytestmark = pytest.mark.custom_call

X = tf.constant([1.0, 2.0])
INT4 = tf.as_dtype("int4")  # TensorFlow has no public name for it


def unchanged(value: Any) -> Callable[..., Any]:
    return lambda x: value


STAY: dict[str, tuple[Any, Any, Any]] = {
    "large": (np.zeros([2**18 + 1], np.float32), tf.float32, [2**18 + 1]),
    "large together": (
        [np.zeros([2**18], np.float32), np.float32(1.0)],
        [tf.float32, tf.float32],
        [[2**18], []],
    ),
    "bounded": (
        np.ones([2], np.float32),
        tf.float32,
        hostcall.BoundedSpec([5], tf.float32),
    ),
    "int4": (np.ones([2], INT4.as_numpy_dtype), INT4, [2]),
    "without results": (None, [], []),
}


@pytest.mark.parametrize(("value", "dtypes", "result"), STAY.values(), ids=STAY.keys())
def test_what_stays_a_call(value: Any, dtypes: Any, result: Any) -> None:
    counted, calls = counting(unchanged(value))
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
    zeros, calls = declared(lambda v: np.zeros([2**18], np.float32), result=[2**18])
    program = jitted(lambda: zeros(tf.constant(1.0)))
    np.testing.assert_array_equal(program(), np.zeros([2**18]))
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
        checked, _ = declared(unchanged(wrong), result=[2])
        program = jitted(lambda x, f=checked, c=constant: f(tf.constant([3.0, 4.0]) if c else x))
        with pytest.raises(tf.errors.OpError) as caught:
            program(X)
        errors.append((type(caught.value), caught.value.message.partition(" is ")[2][:20]))
    assert errors[0] == errors[1]


def test_a_call_that_the_program_does_not_come_to() -> None:
    def fails(v: Any) -> Any:
        raise ValueError("blah")

    checked, _ = declared(fails)
    program = jitted(lambda x: tf.cond(x[0] > 0.0, lambda: x, lambda: checked(tf.zeros([2]))))
    np.testing.assert_array_equal(program(X), X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: blah"):
        program(-X)


def test_a_function_that_runs_the_program_itself() -> None:
    """TensorFlow holds a lock while it compiles."""

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
