"""Programs that are partitioned, in whichever way: what test_partition.py runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.helpers import gradient_of, jitted, plain

X = tf.constant([3.0, 1.0, 2.0, 2.0])


def distinct(x: tf.Tensor) -> tf.Tensor:
    """Return the distinct values, as a vector whose size depends on the values."""
    return tf.numpy_function(np.unique, [x], x.dtype)


def straight(x: tf.Tensor) -> Any:
    y = distinct(x * 2.0)
    return tf.reduce_sum(y * y), y + 1.0, tf.shape(y)


def independent_chains(x: tf.Tensor) -> Any:
    return [tf.reduce_sum(distinct(x + float(i)) * 2.0) for i in range(3)]


def behind_each_other(x: tf.Tensor) -> Any:
    y = distinct(x)
    z = distinct(tf.concat([y, y + 1.0], 0))
    return distinct(z * 2.0) - 1.0


def loop(x: tf.Tensor) -> Any:
    total = tf.constant(0.0)
    for i in tf.range(3):
        total += tf.reduce_sum(distinct(x + tf.cast(i, tf.float32)))
    return total


def nested_loops(x: tf.Tensor) -> Any:
    total = tf.constant(0.0)
    for i in tf.range(2):
        for j in tf.range(3):
            total += tf.reduce_sum(distinct(x * tf.cast(i * j, tf.float32)))
    return total


def branch(x: tf.Tensor) -> Any:
    return tf.reduce_sum(distinct(x)) if x[0] > 2.0 else x[1] * 2.0


def branch_in_a_loop(x: tf.Tensor) -> Any:
    y = tf.constant(0.0)
    for i in tf.range(4):
        if tf.equal(i % 2, 0):  # a v1 graph compares with == by identity
            y += tf.reduce_sum(distinct(x))
        else:
            y *= 2.0
    return y


def switch(x: tf.Tensor) -> Any:
    branches = [lambda: tf.reduce_sum(distinct(x)), lambda: x[0], lambda: -x[0]]
    return tf.switch_case(tf.cast(x[1], tf.int32), branches)


def strings(x: tf.Tensor) -> Any:
    text = tf.py_function(tf.strings.as_string, [x], tf.string)
    return tf.strings.length(text) * 2, x * 2.0, tf.strings.join([text, text])


def string_argument(x: tf.Tensor) -> Any:
    text = tf.strings.as_string(x)
    lengths = tf.numpy_function(lambda t: np.array([len(s) for s in t]), [text], tf.int64)
    return tf.reduce_sum(lengths) + 1


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


def both_routes(x: tf.Tensor) -> Any:
    y = tf.numpy_function(lambda v: v[::-1], [x], tf.TensorSpec([4], tf.float32))
    return distinct(y * 2.0) + 1.0


def random_numbers(x: tf.Tensor) -> Any:
    noise = tf.random.stateless_uniform([4], [1, 2])
    return distinct(x) + 1.0, noise * 0.0


def gradient_inside(x: tf.Tensor) -> Any:
    def large(v: tf.Tensor) -> tf.Tensor:
        return tf.boolean_mask(v, v > 3.0) ** 2

    def total(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.py_function(large, [x * 2.0], tf.float32) ** 2)

    return gradient_of(total, x)


PROGRAMS = [
    straight, independent_chains, behind_each_other, loop, nested_loops, branch, branch_in_a_loop,
    switch, strings, string_argument, tensor_array_of_xla, tensor_array_on_the_host,
    neighbours_without_a_kernel, ragged, nested_calls, both_routes, random_numbers, gradient_inside,
]  # fmt: skip


def traced(program: Callable[..., Any], route: str) -> Any:
    """The compiled function, traced with a route for arguments like X."""
    function = jitted(program)
    with hostcall.scope(route=route):
        function.get_concrete_function(X)
    return function
