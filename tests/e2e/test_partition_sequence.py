"""Partitioned functions whose nodes wait for each other run on one thread; others side by side."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import called, eagerly, jitted, plain, stateless_py_func
from tests.support.threads import meeting

X = tf.constant([1.0, 2.0])

pytestmark = pytest.mark.usefixtures("partition_route")


def host(x: tf.Tensor, function: Callable[..., Any] = lambda v: v) -> tf.Tensor:
    return called(function, x)


def on_this_device(x: tf.Tensor, note: Any) -> tf.Tensor:
    with tf.device("CPU:0"):
        return host(x * 2.0, note)


def in_a_loop(x: tf.Tensor, note: Any) -> tf.Tensor:
    for _ in tf.range(3):
        x = host(x + 1.0, note)
    return host(x, note)


def with_strings(x: tf.Tensor, note: Any) -> tf.Tensor:
    a, b = tf.strings.as_string(x), tf.strings.as_string(x + 1.0)
    texts = tf.numpy_function(lambda v: note(v)[::-1], [tf.strings.join([a, b])], tf.string)
    return tf.strings.to_number(tf.strings.substr(texts, 0, 1))


SEQUENTIAL: dict[str, Callable[..., tf.Tensor]] = {
    "one call": host,
    "two calls with effects": lambda x, note: host(x, note) + host(x, note),
    "a loop": in_a_loop,
    "a branch": lambda x, note: tf.cond(x[0] > 0.0, lambda: host(x, note), lambda: x),
    "strings": with_strings,
    "on this device": on_this_device,
}


@pytest.mark.cpu("a function on two devices runs on TensorFlow's threads")
@pytest.mark.parametrize("program", SEQUENTIAL.values(), ids=SEQUENTIAL)
def test_nodes_that_wait_for_each_other_run_on_the_thread_of_the_caller(program: Any) -> None:
    threads: set[int] = set()

    def note(v: Any) -> Any:
        threads.add(threading.get_ident())
        return v

    jitted(lambda x: program(x, note))(X)
    assert threads == {threading.get_ident()}


def test_resources_of_another_device() -> None:
    """A table that is read on the host, and a variable, which XLA only takes from its own."""
    with tf.device("CPU:1"):
        keys = tf.lookup.KeyValueTensorInitializer([1, 2], [10.0, 20.0], tf.int64)
        table = tf.lookup.StaticHashTable(keys, -1.0)
        there = tf.Variable([1.0, 2.0])
    program = jitted(lambda x: host(table.lookup(tf.cast(host(x), tf.int64))) + 1.0)
    with tf.device("CPU:0"):
        for _ in range(2):
            np.testing.assert_array_equal(program(X), [11.0, 21.0])
        here = tf.Variable([1.0, 2.0])
        mixed = jitted(lambda: host(here + there))
        np.testing.assert_array_equal(mixed(), [2.0, 4.0])


in_a_plain_function = pytest.mark.parametrize(
    "outer", [eagerly, plain], ids=["eager", "in a plain function"]
)


@in_a_plain_function
@pytest.mark.parametrize("in_a_branch", [False, True])
def test_slow_callbacks_overlap_where_they_may(outer: Any, in_a_branch: bool) -> None:
    meet = hostcall.declare(meeting(2), concurrent=True)

    def met(x: tf.Tensor) -> tf.Tensor:
        a = stateless_py_func(meet, [x], tf.float32)
        return a + stateless_py_func(meet, [x * 2.0], tf.float32)

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x[0] > 0.0, lambda: met(x), lambda: x) if in_a_branch else met(x)

    np.testing.assert_array_equal(outer(program)(X), 6.0 * X)


@in_a_plain_function
def test_long_loops(outer: Any) -> None:
    """No call of TensorFlow's may lie within the one before: the stack would overflow."""
    iterations = 20_000

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(iterations):
            x = host(x) + 1.0
        return x

    np.testing.assert_array_equal(outer(program)(X), X + iterations)


def test_long_chains_of_calls() -> None:
    inner = tf.function(lambda x: host(x) + 1.0, input_signature=[tf.TensorSpec([2], tf.float32)])

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in range(300):
            x = inner(x)
        return x

    np.testing.assert_array_equal(program(X), X + 300.0)


def test_a_loop_in_a_cluster_that_is_not_compiled() -> None:
    """TensorFlow makes nodes of some loops that its executor of one thread does not run."""
    spec = [tf.TensorSpec([None], tf.float32)]

    @tf.function(input_signature=spec)
    def repeated(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.sin(y)), [0, x])[1]

    @tf.function(jit_compile=True, input_signature=spec)
    def program(x: tf.Tensor) -> tf.Tensor:
        y = tf.numpy_function(lambda v: v * 2.0, [x], tf.float32)
        return repeated(tf.ensure_shape(y, [None]))

    repeated(X)  # which traces it outside of the compiled function
    for size in (2, 3, 4):
        x = tf.linspace(0.0, 1.0, size)
        np.testing.assert_allclose(program(x), repeated(x * 2.0), rtol=1e-6)
