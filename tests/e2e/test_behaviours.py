"""Tests of script ops in compiled functions that JAX has of its callbacks and no other file has."""

import concurrent.futures
import gc
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

import hostcall  # noqa: F401 - what is tested
from tests.support.e2e.journals import same_order
from tests.support.fate import Fate
from tests.support.helpers import OPS, called, each_op, jitted
from tests.support.threads import PATIENCE

X = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
def test_the_same_call_in_both_branches(taken: bool, is_known: bool) -> None:
    def program(journal: Any, condition: tf.Tensor, x: tf.Tensor) -> Any:
        def branch() -> Any:
            journal.say("both")
            return journal.numpy("value", x)

        if is_known:
            condition = tf.constant(taken)
        tf.cond(condition, branch, branch)  # its result is not used
        return tf.cond(condition, branch, branch)

    called = same_order(program, tf.constant(taken), tf.constant(1.0))
    assert called == ["both", "value"] * 2


@each_op
def test_a_program_that_is_dropped_while_it_runs(op: Any) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(v: Any) -> Any:
        started.set()
        assert go_on.wait(PATIENCE)
        return v + np.float32(1)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = pool.submit(lambda: jitted(lambda x: called(slow, x, op))(tf.constant(X)))
        assert started.wait(PATIENCE)
        gc.collect()
        go_on.set()
        np.testing.assert_array_equal(result.result(), X + 1)


@pytest.mark.parametrize("op", OPS[:3])
def test_arguments_and_results_die_with_the_call(op: Any) -> None:
    fates: list[Fate] = []

    def noted(v: Any) -> Any:
        result = v + np.float32(1)
        fates.extend([Fate(v), Fate(result)])
        return result

    program = jitted(lambda x: called(noted, x, op))
    for _ in range(3):
        np.testing.assert_array_equal(program(tf.constant(X)), X + 1)
    assert len(fates) == 6
    for fate in fates:
        fate.assert_goes()


@each_op
def test_functions_that_run_eagerly(op: Any) -> None:
    tf.config.run_functions_eagerly(True)
    try:
        program = jitted(lambda x: called(lambda v: v + np.float32(1), x, op))
        np.testing.assert_array_equal(program(tf.constant(X)), X + 1)
    finally:
        tf.config.run_functions_eagerly(False)


@each_op
def test_calls_while_a_function_is_traced(op: Any) -> None:
    calls: list[int] = []

    def noted(v: Any) -> Any:
        calls.append(1)
        return v + np.float32(1)

    @jitted
    def program(x: Any) -> Any:
        with tf.init_scope():
            constant = op(noted, [tf.constant(X)], tf.float32)
        return x * constant

    for _ in range(2):
        np.testing.assert_array_equal(program(tf.constant(X)), X * (X + 1))
    assert calls == [1]


@each_op
def test_functions_that_arrays_are_reduced_by(op: Any) -> None:
    # XLA itself would end the process; TensorFlow refuses before.
    def add(a: Any, b: Any) -> Any:
        return tf.ensure_shape(op(lambda a, b: a + b, [a, b], tf.float32), [])

    scalar = tf.TensorSpec([], tf.float32)
    reducer = tf.function(add).get_concrete_function(scalar, scalar)
    program = jitted(lambda x: xla.reduce(x, tf.constant(0.0), [0], reducer))
    with pytest.raises(tf.errors.OpError, match="unsupported op for export to XLA"):
        program(tf.constant(X))
