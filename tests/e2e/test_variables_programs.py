"""Compiled programs with callbacks do with variables what they do without, and in plain graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
from tests.support.device import DEVICE
from tests.support.helpers import (
    MODES,
    assert_equal,
    eagerly,
    jitted,
    outcome,
    plain,
    touch,
    value_and_gradient,
)


def same_as_plain(build: Callable[[Any], Any]) -> None:
    """`build` takes what makes functions, and returns values; they are the same compiled."""
    expected, actual = [build(mode) for mode in MODES]
    assert_equal(actual, expected)


def in_a_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a plain function that calls a function ten times."""

    @plain
    def looping(x: tf.Tensor) -> Any:
        values = function(x)
        for i in tf.range(9):
            values = function(x + tf.cast(i, tf.float32))
        return values

    return looping


@pytest.mark.parametrize("outer", [eagerly, plain, jitted, in_a_loop])
def test_the_caller_reads_and_assigns_before_and_after_the_call(outer: Any) -> None:
    def build(mode: Any) -> Any:
        v = tf.Variable(1.0)

        @mode
        def inner(x: tf.Tensor) -> tf.Tensor:
            touch(x)
            return v.assign(v * 0.5 + x)

        def run(x: tf.Tensor) -> Any:
            v.assign_add(1.0)
            first = inner(x)
            between = v.read_value()
            v.assign(between + 0.5)
            second = inner(x)
            return first, between, second, v.read_value()

        outside = outer(run)
        return [outside(tf.constant(float(i))) for i in range(3)]

    same_as_plain(build)


@pytest.mark.parametrize("tape_mode", MODES)
def test_a_tape_outside_of_the_compiled_function(tape_mode: Any) -> None:
    def build(mode: Any) -> Any:
        v, count = tf.Variable([1.0, 3.0]), tf.Variable(0)

        @mode
        def loss(x: tf.Tensor) -> tf.Tensor:
            count.assign_add(1)
            y = tf.py_function(lambda a: a * a + 0.0 * v[0], [x * v], tf.float32)
            return tf.reduce_sum(tf.ensure_shape(y, [2]) * v)

        def run(x: tf.Tensor) -> Any:
            return value_and_gradient(lambda args: loss(args[0]), [x, v])

        inside = run if mode is plain else tape_mode(run)
        return [inside(tf.constant([1.0, 2.0])) for _ in range(3)], count.numpy()

    same_as_plain(build)


def test_random_state_goes_on() -> None:
    """As in graph mode; on other devices than the CPU, as in a function without callbacks."""

    def numbers(mode: Callable[..., Any], callback: Callable[..., None] = touch) -> Any:
        generator = tf.random.Generator.from_seed(7)

        @mode
        def run() -> tf.Tensor:
            callback()
            return generator.uniform([4])

        return [run().numpy() for _ in range(4)], generator.state.numpy()

    expected = numbers(jitted, lambda: None) if DEVICE else numbers(plain)
    assert_equal(numbers(jitted), expected)


@pytest.mark.usefixtures("every_cluster")
def test_one_variable_given_twice_is_what_it_is_without_callbacks() -> None:
    def build(callback: Callable[..., None]) -> Any:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="given_twice")
        tf.raw_ops.AssignVariableOp(resource=handle, value=1.0)

        @jitted
        def run(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            callback()
            added = tf.raw_ops.AssignAddVariableOp(resource=a, value=1.0)
            with tf.control_dependencies([added] if added is not None else []):
                return tf.raw_ops.ReadVariableOp(resource=b, dtype=tf.float32)

        return outcome(run, handle, handle)

    assert build(touch) == build(lambda: None)


def test_a_handle_that_the_program_returns_is_the_users() -> None:
    v = tf.Variable(3.0)

    @jitted
    def run() -> tf.Tensor:
        touch()
        v.assign_add(1.0)
        return v.handle

    assert tf.raw_ops.ReadVariableOp(resource=run(), dtype=tf.float32).numpy() == 4.0


@pytest.mark.parametrize("conditional", [False, True])
def test_a_variable_that_is_not_initialized_can_be_assigned(conditional: bool) -> None:
    def build(callback: Callable[..., None]) -> Any:
        name = f"{conditional} {callback is touch}"
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name=name)

        @jitted
        def run(x: tf.Tensor) -> tf.Tensor:
            callback()
            if not conditional or tf.reduce_sum(x) > 0.0:
                tf.raw_ops.AssignVariableOp(resource=handle, value=x)
            return x

        return outcome(
            lambda: [run(tf.ones([2])), tf.raw_ops.ReadVariableOp(resource=handle, dtype="float32")]
        )

    assert str(build(touch)) == str(build(lambda: None))


def test_a_session_of_v1() -> None:
    def build(mode: Any) -> Any:
        v1 = tf.compat.v1
        with tf.Graph().as_default():
            v = v1.get_variable("v", initializer=1.0, use_resource=True)
            w = v1.get_variable("w", initializer=0.0, use_resource=True)

            def run() -> tf.Tensor:
                w.assign(tf.ensure_shape(tf.numpy_function(lambda x: x * 3, [v], tf.float32), []))
                return v.assign_add(1.0) + w

            result = mode(run)()
            with v1.Session() as session:
                session.run(v.initializer)  # w is not
                return [(*session.run([result]), *session.run([v, w])) for _ in range(3)]

    same_as_plain(build)


@pytest.mark.skipif(bool(DEVICE), reason="Python sees a copy of what is in a device's memory.")
def test_the_values_have_no_other_owner_after_the_run() -> None:
    """What a run holds goes before its op is done, not a little later on another thread.

    Later, a session that closes may have destroyed what the copies of variables are registered in.
    The next assignment shows it: it writes into the variable's memory if nothing else has that.
    """
    v = tf.Variable(tf.zeros([1000]))

    @jitted
    def program() -> tf.Tensor:
        touch(v)
        return tf.reduce_sum(v)

    def address(x: np.ndarray) -> Any:
        return np.int64(x.__array_interface__["data"][0])

    @plain
    def addresses() -> Any:
        before = tf.numpy_function(address, [v.read_value()], tf.int64)
        with tf.control_dependencies([before]):
            result = program()
        with tf.control_dependencies([result]):
            v.assign_add(tf.ones([1000]))
            return before, tf.numpy_function(address, [v.read_value()], tf.int64)

    moved = 0
    for _ in range(1000):
        before, after = addresses()
        moved += int(before != after)
    assert moved == 0
