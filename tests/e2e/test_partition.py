"""Functions that cannot be one program: compiled clusters with script ops between them."""

import functools
from typing import Any

import pytest
import tensorflow as tf

from tests.support.e2e.partition_programs import PROGRAMS, X, distinct, traced
from tests.support.helpers import (
    assert_as_plain,
    assert_as_plain_called_by,
    assert_same,
    each_caller,
    jitted,
    plain,
    to_numpy,
)
from tests.support.versions import calls_from_the_device

each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@pytest.mark.parametrize("route", ["auto", "partition"])
@each_program
def test_it_computes_what_plain_graph_mode_does(program: Any, route: str) -> None:
    function, expected = traced(program, route), plain(program)
    for x in (X, X + 1.0, X):
        assert_same(to_numpy(function(x)), to_numpy(expected(x)))


@each_caller
@each_program
def test_called_by(program: Any, caller: Any) -> None:
    assert_as_plain_called_by(caller, program, X)


def test_inputs_of_changing_shape() -> None:
    function = jitted(lambda x: (distinct(x) * 2.0, tf.reduce_sum(x)))
    for size in (4, 7, 0, 4, 1):
        x = tf.range(size, dtype=tf.float32) // 2.0
        assert_same(to_numpy(function(x)), to_numpy((distinct(x) * 2.0, tf.reduce_sum(x))))


@calls_from_the_device
def test_other_reasons_with_callbacks_that_shall_be_in_a_program() -> None:
    """TensorFlow's own error, with or without a callback that XLA can take."""

    def same(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda v: v, [x], tf.TensorSpec([4], tf.float32))

    def without(x: tf.Tensor) -> Any:
        return tf.unique_with_counts(x)[2]

    def beside(x: tf.Tensor) -> Any:
        return tf.unique_with_counts(same(x))[2]

    for program in (without, beside):
        with pytest.raises(tf.errors.InvalidArgumentError, match="UniqueWithCounts"):
            traced(program, "custom_call")(X)
        assert_same(to_numpy(traced(program, "partition")(X)), to_numpy(plain(program)(X)))


def test_many_chains_and_few_clusters() -> None:
    """Forty script ops, and as many clusters as one chain of two has."""

    def program(x: tf.Tensor) -> Any:
        parts = [distinct(distinct(x + float(i)) * 2.0) for i in range(20)]
        return functools.reduce(tf.add, map(tf.reduce_sum, parts))

    assert_as_plain(program, X)
