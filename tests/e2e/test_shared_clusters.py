"""Programs that are compiled more than once: their clusters are compiled once."""

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import hostcall
from tests.support.helpers import compilations, jitted, numbers, plain
from tests.support.threads import in_threads

pytestmark = [
    pytest.mark.usefixtures("auto_route", "every_cluster"),
    pytest.mark.cpu("clusters of an accelerator are placed, each for its program"),
]

THREE = tf.constant(3)


def library() -> set[str]:
    gc.collect()
    return set(context.context().list_function_names())


def test_a_function_with_loops_and_branches_that_is_traced_again() -> None:
    def traced_again(n: tf.Tensor) -> tf.Tensor:
        y = numbers(n)
        for i in tf.range(4):
            if i % 2 == 0:
                y = tf.sqrt(y + 1.0)
            else:
                y *= 2.0
        return y

    functions = [jitted(traced_again) for _ in range(3)]
    for function in functions:
        np.testing.assert_allclose(function(THREE), plain(traced_again)(THREE), rtol=1e-6)
    assert sorted(compilations("traced_again")) == [0, 0, 1]


def test_a_further_size_is_compiled_for_all() -> None:
    def of_many_sizes(n: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.sqrt(numbers(n)))

    first, second = jitted(of_many_sizes), jitted(of_many_sizes)
    for n in (1, *[2] * 9):
        first(tf.constant(n))
    for n in (2, 1, 2):
        np.testing.assert_allclose(second(tf.constant(n)), plain(of_many_sizes)(tf.constant(n)))
    rows = [row for row in hostcall.stats().compilations if "of_many_sizes" in row.cluster]
    assert sorted((row.compilations, row.uncompiled_runs) for row in rows) == [(0, 0), (2, 8)]


def test_each_trace_compiles_its_size_at_once() -> None:
    def of_a_size(x: tf.Tensor) -> tf.Tensor:
        return tf.sqrt(tf.numpy_function(lambda v: v + 1.0, [x * 2.0], tf.float32)) * 2.0

    function = jitted(of_a_size)
    for size in range(1, 13):
        x = tf.range(size, dtype=tf.float32)
        np.testing.assert_allclose(function(x), plain(of_a_size)(x), rtol=1e-6)
    rows = [row for row in hostcall.stats().compilations if "of_a_size" in row.cluster]
    assert {row.uncompiled_runs for row in rows} == {0}


def test_what_differs_in_a_constant() -> None:
    def scaled_by(factor: float) -> Any:
        def scaled(n: tf.Tensor) -> tf.Tensor:
            return numbers(n) * factor

        return jitted(scaled)

    functions = [scaled_by(float(factor)) for factor in range(3)]
    for factor, function in enumerate(functions):
        np.testing.assert_array_equal(function(THREE), np.arange(3.0) * factor)
    assert compilations("scaled") == [1, 1, 1]


def test_each_has_variables_of_its_own() -> None:
    def counting(variable: tf.Variable) -> Any:
        def count(n: tf.Tensor) -> tf.Tensor:
            variable.assign_add(tf.reduce_sum(numbers(n)))
            return variable * 2.0

        return jitted(count)

    variables = [tf.Variable(0.0), tf.Variable(10.0)]
    functions = [counting(variable) for variable in variables]
    assert [float(function(THREE)) for function in functions * 2] == [6.0, 26.0, 12.0, 32.0]
    assert [float(variable) for variable in variables] == [6.0, 16.0]
    assert sorted(compilations("count")) == [0, 1]


def test_each_calls_the_python_function_of_its_own() -> None:
    def adding(number: float) -> Any:
        add = hostcall.callback(lambda v: v + np.float32(number), result=lambda v: v)

        return jitted(lambda n: add(numbers(n) * 2.0) * 2.0)

    functions = [adding(float(number)) for number in range(2)]
    for number, function in enumerate(functions):
        np.testing.assert_array_equal(function(THREE), (np.arange(3.0) * 2.0 + number) * 2.0)


def test_each_draws_random_numbers_of_its_own() -> None:
    def draw(n: tf.Tensor) -> tf.Tensor:
        return tf.random.uniform([100]) + tf.reduce_sum(numbers(n))

    first, second = jitted(draw), jitted(draw)
    assert np.any(first(THREE) != second(THREE))
    assert compilations("draw") == [1, 1]


def test_functions_are_dropped_while_others_go_on() -> None:
    def goes_on(n: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(numbers(n)) * 2.0

    before = library()
    first, second = jitted(goes_on), jitted(goes_on)
    assert float(first(THREE)) == float(second(THREE)) == 6.0
    del first
    between = library()
    assert float(second(THREE)) == 6.0
    for _ in range(10):
        assert float(second(tf.constant(5))) == 20.0
    del second
    assert between > before
    assert library() == before

    def work(_: int) -> None:
        for _ in range(15):
            assert float(jitted(goes_on)(THREE)) == 6.0

    in_threads(4, work)
    assert library() <= before


def test_the_log_names_the_function(caplog: pytest.LogCaptureFixture) -> None:
    def outgrowing_again(n: tf.Tensor) -> tf.Tensor:
        return tf.sqrt(numbers(n)) * 5.0

    first, second = jitted(outgrowing_again), jitted(outgrowing_again)
    hostcall.configure(max_compilations=1)
    try:
        for n in (1, 2, 3):
            first(tf.constant(n))
            second(tf.constant(n))
    finally:
        hostcall.configure(max_compilations=10)
    said = [text for text in caplog.messages if "max_compilations" in text]
    assert len(said) == 1
    assert "a cluster of outgrowing_again was compiled 1 time" in said[0]
