"""Programs without callbacks that XLA refuses to compile, each for a reason of its own."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

X = tf.constant([1.0, 3.0, 2.0, 3.0])

Program = Callable[..., Any]
PROGRAMS: dict[str, Program] = {
    "without_a_kernel_for_its_dtype": lambda x: (
        tf.abs(tf.linalg.eigvals(tf.linalg.diag(x) + 1.0)) * 2.0
    ),
    "a_string_inside": lambda x: tf.strings.to_number(tf.strings.as_string(x * 2.0)) + 1.0,
    "a_string_returned": lambda x: (tf.strings.as_string(tf.cast(x, tf.int32) * 2), x + 1.0),
    "a_constant_string": lambda x: (tf.constant("text"), x + 1.0),
    "a_range_of_unknown_length": lambda x: tf.range(_size(x)) * 2,
    "a_tile_of_unknown_size": lambda x: tf.reshape(tf.tile(x, [_size(x)]), [_size(x), -1]) * 2.0,
    "zeros_of_unknown_shape": lambda x: tf.reduce_sum(tf.zeros([_size(x), 2]) + 1.0) * x,
}


def _program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def _size(x: tf.Tensor) -> tf.Tensor:
    """A size that XLA cannot know when it compiles, however it tries: 3 for `X`."""
    return tf.cast(tf.reduce_max(tf.map_fn(lambda y: y, x)), tf.int32)


@_program
def without_a_kernel(x: tf.Tensor) -> Any:
    values, index, counts = tf.unique_with_counts(x * 2.0)
    return values + 1.0, index, counts * 2


@_program
def a_dataset(x: tf.Tensor) -> Any:
    total = tf.reduce_sum(x)
    for element in tf.data.Dataset.range(3).map(lambda i: i * 2):
        total += tf.cast(element, tf.float32)
    return total * 2.0


@_program
def in_a_loop(x: tf.Tensor) -> Any:
    total = x
    for i in tf.range(3):
        total += tf.cast(tf.unique_with_counts(x)[1], tf.float32) * tf.cast(i, tf.float32)
    return total


@_program
def of_unknown_size_in_a_loop(x: tf.Tensor) -> Any:
    total = 0
    for i in tf.range(3):
        total += tf.reduce_sum(tf.range(_size(x) + i))
    return total


@_program
def in_a_branch(x: tf.Tensor) -> Any:
    def some() -> Any:
        return tf.reduce_sum(tf.unique_with_counts(x)[0])

    return tf.cond(x[0] > 0.0, some, lambda: 0.0) + x


@_program
def in_a_function(x: tf.Tensor) -> Any:
    inner = tf.function(lambda y: tf.range(_size(y)) * 2)
    return tf.reduce_sum(inner(x)) + tf.reduce_sum(inner(x + 1.0))


@_program
def a_loop_variable_that_changes_its_shape(x: tf.Tensor) -> Any:
    _, grown = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, y: (i + 1, tf.concat([y, x * 2.0], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )
    return grown + 1.0


@_program
def a_ragged_tensor(x: tf.Tensor) -> Any:
    ragged = tf.ragged.range(tf.cast(x, tf.int32))
    return tf.cast(ragged.to_tensor(), tf.float32) * 2.0, ragged.row_lengths()


@_program
def a_growing_array(x: tf.Tensor) -> Any:
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(5):
        array = array.write(i, x * tf.cast(i, tf.float32))
    return array.stack()


@_program
def several_reasons(x: tf.Tensor) -> Any:
    values = tf.unique_with_counts(x)[0]
    text = tf.strings.as_string(tf.reduce_sum(values))
    return tf.range(_size(x)) + tf.strings.length(text), values * 2.0


@_program
def a_variable_that_is_assigned(x: tf.Tensor) -> Any:
    variable = _variable()
    variable.assign(x[:2])
    before = tf.strings.as_string(tf.cast(variable, tf.int32))
    variable.assign_add(x[2:])
    return before, variable * 2.0, tf.range(tf.cast(variable[1], tf.int32))


@functools.cache
def _variable() -> tf.Variable:
    with tf.init_scope():
        return tf.Variable([0.0, 0.0])
