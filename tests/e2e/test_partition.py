"""Functions that cannot be one program: compiled clusters with script ops between them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_as_plain_called_by,
    assert_same,
    distinct,
    each_caller,
    gradient_of,
    jitted,
    partitioned,
    plain,
    to_numpy,
)
from tests.support.versions import calls_from_the_device

X = tf.constant([3.0, 1.0, 2.0, 2.0])


def straight(x: tf.Tensor) -> Any:
    y = distinct(x * 2.0)
    return tf.reduce_sum(y * y), y + 1.0, tf.shape(y)


def nested_loops(x: tf.Tensor) -> Any:
    total = tf.constant(0.0)
    for i in tf.range(2):
        for j in tf.range(3):
            total += tf.reduce_sum(distinct(x * tf.cast(i * j, tf.float32)))
    return total


def strings(x: tf.Tensor) -> Any:
    text = tf.py_function(tf.strings.as_string, [x], tf.string)
    lengths = tf.numpy_function(lambda t: np.array([len(s) for s in t]), [text], tf.int64)
    return tf.strings.length(text) * 2, tf.reduce_sum(lengths) + 1, tf.strings.join([text, text])


def tensor_array_of_xla(x: tf.Tensor) -> Any:
    """The loop is compiled, and so is the list that it fills."""
    count = tf.size(distinct(x))
    values = tf.TensorArray(tf.float32, size=3)
    for i in tf.range(3):
        values = values.write(i, x[i] * 2.0)
    return values.stack() + tf.cast(count, tf.float32)


def tensor_array_on_the_host(x: tf.Tensor) -> Any:
    values = tf.TensorArray(tf.float32, size=3, element_shape=[])
    for i in tf.range(3):
        values = values.write(i, tf.reduce_sum(distinct(x * tf.cast(i, tf.float32))))
    return values.stack()


def neighbours_without_a_kernel(x: tf.Tensor) -> Any:
    values, _, counts = tf.unique_with_counts(distinct(x))
    return values + 1.0, counts


def ragged(x: tf.Tensor) -> Any:
    y = tf.ensure_shape(tf.numpy_function(np.sort, [x], tf.float32), [None])
    rows = tf.RaggedTensor.from_row_lengths(y, tf.constant([1, 3]), validate=False)
    return tf.reduce_sum(rows * 2.0, axis=1)


def nested_calls(x: tf.Tensor) -> Any:
    inner = jitted(lambda v: tf.reduce_sum(distinct(v) * 2.0))
    outer = plain(lambda v: inner(v) + inner(v + 1.0))
    return outer(x) + inner(x * 2.0)


def gradient_inside(x: tf.Tensor) -> Any:
    def large(v: tf.Tensor) -> tf.Tensor:
        return tf.boolean_mask(v, v > 3.0) ** 2

    def total(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.py_function(large, [x * 2.0], tf.float32) ** 2)

    return gradient_of(total, x)


PROGRAMS: list[Callable[[tf.Tensor], Any]] = [
    *(straight, nested_loops, strings, tensor_array_of_xla, tensor_array_on_the_host),
    *(neighbours_without_a_kernel, ragged, nested_calls, gradient_inside),
]
each_program = pytest.mark.parametrize("program", PROGRAMS)


@pytest.mark.parametrize("mode", [jitted, partitioned])
@each_program
def test_it_computes_what_plain_graph_mode_does(program: Any, mode: Any) -> None:
    function, expected = mode(program), plain(program)
    for x in (X, X + 1.0, X):
        assert_same(to_numpy(function(x)), to_numpy(expected(x)))


@each_caller
@pytest.mark.parametrize("program", [straight, nested_loops, strings, nested_calls])
def test_called_by(program: Any, caller: Any) -> None:
    assert_as_plain_called_by(caller, program, X)


@calls_from_the_device
@pytest.mark.parametrize("calls", [False, True])
def test_another_reason_than_a_callback_for_one_program(calls: bool) -> None:
    """TensorFlow's own error, with or without a callback that XLA can take."""

    def program(x: tf.Tensor) -> Any:
        if calls:
            x = tf.numpy_function(lambda v: v, [x], tf.TensorSpec([4], tf.float32))
        return tf.unique_with_counts(x)[2]

    with (
        hostcall.scope(route="custom_call"),
        pytest.raises(tf.errors.InvalidArgumentError, match="UniqueWithCounts"),
    ):
        jitted(program)(X)
    assert_same(to_numpy(partitioned(program)(X)), to_numpy(plain(program)(X)))
