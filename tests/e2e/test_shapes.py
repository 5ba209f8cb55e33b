"""Tests of the sources that tell XLA the shape of a result, and of their order."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_close, each_mode, each_public_op, gradient_of, jitted

X = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


Pair = collections.namedtuple("Pair", ["total", "twice"])


@each_public_op
def test_each_source_fills_in_what_those_before_it_leave_open(op: Any) -> None:
    def padded(x: Any) -> Any:
        return np.zeros([2, 3, 4, 5], np.float32)

    hostcall.declare(padded, result=lambda x: [x.shape[0], None, None, None])

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        y = op(padded, [x], tf.TensorSpec([None, 3, None, None], tf.float32))
        y.set_shape([None, None, 4, None])
        return tf.ensure_shape(y, [None, None, None, 5])

    np.testing.assert_array_equal(program(X), np.zeros([2, 3, 4, 5]))


@each_public_op
def test_a_rule_knows_the_sizes_that_tracing_does_not(op: Any) -> None:
    seen = []

    def rule(x: tf.TensorSpec) -> tf.TensorSpec:
        seen.append(x.shape)
        return tf.TensorSpec([x.shape[0] * 2], x.dtype)

    twice = hostcall.declare(lambda x: np.repeat(np.asarray(x)[:, 0], 2), result=rule)
    traces = []

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def program(x: tf.Tensor) -> tf.Tensor:
        traces.append(x)
        return op(twice, [x], tf.float32) + 1.0

    for batch in (1, 4, 7, 0, 4):
        x = np.arange(3.0 * batch, dtype=np.float32).reshape(batch, 3)
        np.testing.assert_array_equal(program(x), np.repeat(x[:, 0], 2) + 1.0)
        assert seen[-1].rank == 2
    assert len(traces) == 1
    # Tracing may have asked for sizes of its own.
    assert {0, 1, 4, 7} <= {shape[0] for shape in seen if shape.is_fully_defined()}


def concatenated(x: tf.Tensor) -> tf.Tensor:
    function = hostcall.declare(
        lambda x, y: np.concatenate([x, y]), result=lambda x, y: [x.shape[0] + y.shape[0], None]
    )
    y = tf.numpy_function(function, [x, -x], tf.float32)
    y.set_shape([None, 3])
    return y


def traced(x: tf.Tensor) -> Any:
    def work(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.linalg.matmul(x, x, transpose_b=True), tf.concat([x, x, x], axis=1)

    return tf.py_function(hostcall.declare(work, result="trace"), [x], [tf.float32, tf.float32])


def differentiated(x: tf.Tensor) -> tf.Tensor:
    """Gradient calls know the shapes of the forward inputs."""

    def total(x: tf.Tensor) -> tf.Tensor:
        return tf.py_function(lambda x: tf.reduce_sum(x**2), [x], tf.TensorSpec([], tf.float32))

    return gradient_of(total, x)


EXPECTED: dict[Any, Callable[[tf.Tensor], Any]] = {
    concatenated: lambda x: tf.concat([x, -x], 0),
    traced: lambda x: (x @ tf.transpose(x), tf.concat([x, x, x], 1)),
    differentiated: lambda x: 2.0 * x,
}


@pytest.mark.parametrize("program", EXPECTED)
def test_sizes_that_only_xla_knows(program: Any) -> None:
    signature = [tf.TensorSpec([None, 3], tf.float32)]
    function = tf.function(program, jit_compile=True, input_signature=signature)
    for batch in (1, 2, 6, 0, 2):
        x = tf.random.stateless_uniform([batch, 3], [1, batch])
        assert_close(function(x), EXPECTED[program](x))


STRUCTURES: dict[str, tuple[Any, Any]] = {
    "list": ([tf.float32, tf.float64], lambda x: [x.shape[:1], x.shape]),
    "tuple": ((tf.float32, tf.float64), (tf.TensorSpec([2], tf.float32), [2, 3])),
    "dict": ({"a": tf.float32, "b": tf.float64}, lambda x: {"b": x.shape, "a": x.shape[:1]}),
    "named tuple": (Pair(tf.float32, tf.float64), lambda x: Pair(x.shape[:1], x.shape)),
    "nested": ([[tf.float32], tf.float64], [[[2]], [2, 3]]),
}


@each_mode
@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_of_results(mode: Any, name: str) -> None:
    tout, result = STRUCTURES[name]

    def two(x: tf.Tensor) -> Any:
        leaves = [tf.reduce_sum(x, axis=1), 2.0 * tf.cast(x, tf.float64)]
        return tf.nest.pack_sequence_as(tout, leaves)

    hostcall.declare(two, result=result)
    results = mode(lambda x: tf.py_function(two, [x], tout))(X)
    assert_close(results, two(X))
