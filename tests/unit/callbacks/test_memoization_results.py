"""hostcall._functions.memoization: whose the results are that are kept, and what is not kept."""

import collections
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._functions.declarations import declaration_of
from tests.support.memo import counting, declared, each_mode

X = tf.constant([1.0, 2.0])

Point = collections.namedtuple("Point", ["x", "y"])


@each_mode
def test_what_the_function_writes_to_later_is_not_kept(mode: Any) -> None:
    own = np.zeros([5000], np.float32)

    def fill(x: np.ndarray) -> np.ndarray:
        own[:] = x[0]
        return own

    filled, calls = declared(fill)
    program = mode(filled)
    for value in (1.0, 2.0, 1.0, 2.0):
        np.testing.assert_array_equal(program(tf.fill([5000], value)), np.full([5000], value))
    assert len(calls) == 2


@each_mode
def test_results_are_the_callers_own(mode: Any) -> None:
    """TensorFlow may share an array's memory, and has ops that write to what they are given."""
    same, calls = declared(lambda v: v)
    program = mode(same)
    numbers = tf.random.uniform([5000])
    inputs = [numbers[: 5000 - n] for n in range(40)]  # it depends on where an array begins
    for x in inputs * 2:
        result = program(x)
        np.testing.assert_array_equal(result, x)
        tf.raw_ops.InplaceAdd(x=result, i=[0], v=[1.0])
    assert len(calls) == 40


@each_mode
def test_inputs_are_not_kept(mode: Any) -> None:
    inputs = []

    def double(v: np.ndarray) -> np.ndarray:
        inputs.append(weakref.ref(v))
        return v * 2.0

    hostcall.declare(double, result=lambda x: x, memo=True)
    program = mode(lambda x: tf.numpy_function(double, [x], tf.float32))
    program(X)
    gc.collect()
    assert [reference() is None for reference in inputs] == [True]


@each_mode
def test_inputs_that_the_function_writes_to(mode: Any) -> None:
    def zeroed(x: np.ndarray) -> np.ndarray:
        x[:] = 0.0
        return x

    counted, calls = counting(zeroed)
    zero = hostcall.callback(counted, result=lambda x: x, stateful=False, memo=True)
    program = mode(lambda x: zero(x))
    x = tf.ones([5000])
    for _ in range(3):
        np.testing.assert_array_equal(program(x), np.zeros([5000]))
        np.testing.assert_array_equal(x, np.ones([5000]))
    assert len(calls) == 1


@each_mode
def test_what_is_raised_is_not_kept(mode: Any) -> None:
    broken = [True]

    def fail_once(x: Any) -> Any:
        if broken:
            raise KeyError(broken.pop())
        return x

    program = mode(declared(fail_once)[0])
    with pytest.raises(tf.errors.UnknownError, match="KeyError: True") as caught:
        program(X)
    assert isinstance(hostcall.last_error(caught.value), KeyError)
    np.testing.assert_array_equal(program(X), X)


@each_mode
@pytest.mark.parametrize(
    "wrong", [np.array([1.0, 2.0], np.float64), [], [X.numpy(), X.numpy()], "blah"]
)
def test_wrong_results_are_errors_each_time(mode: Any, wrong: Any) -> None:
    program = mode(declared(lambda v: wrong, result=[2])[0])
    messages = []
    for _ in range(2):
        with pytest.raises(tf.errors.OpError) as caught:
            program(X)
        messages.append(caught.value.message.split("[hostcall")[0])
    assert messages[0] == messages[1]


@each_mode
def test_equal_arrays_in_other_structures_are_other_inputs(mode: Any) -> None:
    counted, calls = counting(lambda *args: np.float32(len(args) + len(args[0])))
    count = hostcall.callback(counted, result=tf.TensorSpec([], tf.float32), stateful=False, memo=9)
    arguments = [([X, X],), (X, X), ((X, X),), ({"a": X, "b": X},), (Point(X, X),), ({"b": X},)]
    program = mode(lambda: [count(*args) for args in arguments])
    for _ in range(2):
        assert [float(result) for result in program()] == [3.0, 4.0, 3.0, 3.0, 3.0, 2.0]
    assert len(calls) == 6


@each_mode
def test_results_that_are_read_in_two_ways(mode: Any) -> None:
    """As two results, and as one that is stacked."""
    counted, calls = counting(lambda x: [(x, x + 1.0)])
    hostcall.declare(counted, memo=True)
    nested = [(tf.TensorSpec([2], tf.float32), tf.TensorSpec([2], tf.float32))]
    stacked = [tf.TensorSpec([2, 2], tf.float32)]

    def program(x: tf.Tensor) -> Any:
        [(one, other)] = tf.numpy_function(counted, [x], nested)
        return one, other, tf.numpy_function(counted, [x], stacked)[0]

    run = mode(program)
    for _ in range(2):
        one, other, both = run(X)
        np.testing.assert_array_equal(both, [one, other])
        np.testing.assert_array_equal(both, [X, X + 1.0])
    assert len(calls) == 2


@each_mode
def test_the_function_dies_with_its_graphs(mode: Any) -> None:
    def double(v: Any) -> Any:
        return v * 2.0

    hostcall.declare(double, memo=True, result=lambda x: x)
    program = mode(lambda x, f=double: tf.numpy_function(f, [x], tf.float32))
    program(X)
    dead = weakref.ref(double)
    declaration = declaration_of(double)
    assert declaration is not None
    table = weakref.ref(declaration.table)
    del double, program, declaration
    gc.collect()
    assert dead() is None
    assert table() is None


@each_mode
def test_with_arrays_that_are_lent(mode: Any) -> None:
    calls = []

    def double(v: np.ndarray) -> np.ndarray:
        calls.append(v.flags.writeable)
        return v * 2.0

    hostcall.declare(double, result=lambda x: x, memo=True, borrow=True)
    program = mode(lambda x: tf.numpy_function(double, [x], tf.float32))
    for value in (1.0, 2.0, 1.0):
        x = tf.fill([5000], value)
        np.testing.assert_array_equal(program(x), x * 2.0)
    assert calls == [False, False]
