"""Functions that cannot be one program: compiled clusters with script ops between them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.helpers import assert_same, jitted, plain, to_numpy

X = tf.constant([3.0, 1.0, 2.0, 2.0])


def distinct(x: tf.Tensor) -> tf.Tensor:
    """Of a size that only the values tell."""
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

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.py_function(large, [x * 2.0], tf.float32)
        z = tf.reduce_sum(y * y)
    return tape.gradient(z, x)


PROGRAMS = [
    straight, independent_chains, behind_each_other, loop, nested_loops, branch, branch_in_a_loop,
    switch, strings, string_argument, tensor_array_of_xla, tensor_array_on_the_host,
    neighbours_without_a_kernel, ragged, nested_calls, both_routes, random_numbers, gradient_inside,
]  # fmt: skip

each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def traced(program: Callable[..., Any], route: str) -> Any:
    """The compiled function, traced with a route for arguments like X."""
    function = jitted(program)
    with hostcall.scope(route=route):
        function.get_concrete_function(X)
    return function


@pytest.mark.parametrize("route", ["auto", "split"])
@each_program
def test_it_computes_what_plain_graph_mode_does(program: Any, route: str) -> None:
    function, expected = traced(program, route), plain(program)
    for x in (X, X + 1.0, X):
        assert_same(to_numpy(function(x)), to_numpy(expected(x)))


@each_program
def test_called_by_a_plain_function(program: Any) -> None:
    inner = jitted(program)
    assert_same(to_numpy(plain(lambda x: inner(x))(X)), to_numpy(plain(program)(X)))


@each_program
def test_called_by_a_compiled_function(program: Any) -> None:
    inner = jitted(program)
    assert_same(to_numpy(jitted(lambda x: inner(x + 1.0))(X)), to_numpy(plain(program)(X + 1.0)))


@each_program
def test_in_a_v1_graph(program: Any) -> None:
    inner = jitted(program)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = tf.nest.flatten(inner(tf.constant(X.numpy())))
        found = session.run(results)
    for one, other in zip(found, tf.nest.flatten(to_numpy(plain(program)(X))), strict=True):
        assert_same(one, other)


def test_inputs_of_changing_shape() -> None:
    function = jitted(lambda x: (distinct(x) * 2.0, tf.reduce_sum(x)))
    for size in (4, 7, 0, 4, 1):
        x = tf.range(size, dtype=tf.float32) // 2.0
        assert_same(to_numpy(function(x)), to_numpy((distinct(x) * 2.0, tf.reduce_sum(x))))


def test_no_route_for_other_reasons() -> None:
    """TensorFlow's own error, with or without a callback that XLA can take."""

    def same(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda v: v, [x], tf.TensorSpec([4], tf.float32))

    def without(x: tf.Tensor) -> Any:
        return tf.unique_with_counts(x)[2]

    def beside(x: tf.Tensor) -> Any:
        return tf.unique_with_counts(same(x))[2]

    for program in (without, beside):
        with pytest.raises(tf.errors.InvalidArgumentError, match="UniqueWithCounts"):
            jitted(program)(X)
        assert_same(to_numpy(traced(program, "split")(X)), to_numpy(plain(program)(X)))


def test_variables_in_several_clusters() -> None:
    v = tf.Variable([1.0, 2.0])

    def program(x: tf.Tensor) -> Any:
        v.assign_add([1.0, 1.0])
        y = distinct(x * v[0])
        before = v.read_value()
        v.assign(v * 2.0)
        z = distinct(y + v[1])
        v.assign_add(z[:2])
        return z, before, v.read_value()

    results = []
    for mode in (plain, jitted):
        v.assign([1.0, 2.0])
        function = mode(program)
        results.append([to_numpy((function(X), v)) for _ in range(3)])
    assert_same(results[0], results[1])


def test_variables_that_callbacks_read_and_assign() -> None:
    v = tf.Variable(1.0)

    def double() -> tf.Tensor:
        v.assign(v * 2.0)
        return v.read_value()[tf.newaxis]

    def program(x: tf.Tensor) -> Any:
        with tf.control_dependencies([v.assign_add(1.0)]):
            y = tf.py_function(double, [], tf.float32)
        with tf.control_dependencies([y]):
            v.assign_add(10.0)
            return y + x[0], v.read_value()

    results = []
    for mode in (plain, jitted):
        v.assign(1.0)
        results.append([to_numpy(mode(program)(X)), v.numpy()])
    assert_same(results[0], results[1])


def test_the_order_of_side_effects() -> None:
    journal: list[str] = []

    def say(text: str, x: tf.Tensor) -> tf.Tensor:
        def note(v: Any) -> Any:
            journal.append(text)
            return v

        return tf.numpy_function(note, [x], tf.float32)

    def known(text: str, x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(say(text, x), [4])

    def program(x: tf.Tensor) -> Any:
        say("first", x)
        known("second", x * 2.0)
        for i in tf.range(2):
            say("in a loop", x)
            known("after it in the loop", x + tf.cast(i, tf.float32))
        y = say("third", x) if x[0] > 0.0 else known("never", x)
        known("fourth", x)
        return known("fifth", x) + 1.0, y

    orders = []
    for mode in (plain, jitted):
        journal.clear()
        mode(program)(X)
        orders.append(list(journal))
    assert orders[0] == orders[1]
    assert orders[0][-3:] == ["third", "fourth", "fifth"]


def test_assertions_hold_as_in_plain_graph_mode() -> None:
    def program(x: tf.Tensor) -> Any:
        y = distinct(x)
        tf.debugging.assert_greater(tf.reduce_sum(y), 0.0, message="not positive")
        return y * 2.0

    function = jitted(program)
    function(X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
        function(-X)
    function(X)


def test_prints_come_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    def program(x: tf.Tensor) -> Any:
        tf.print("one", x[0])
        y = distinct(x)
        tf.print("two", y)
        return y * 2.0

    jitted(program)(X)
    assert capfd.readouterr().err == "one 3\ntwo [1 2 3]\n"


def test_an_exception_and_the_calls_after_it() -> None:
    def picky(x: Any) -> Any:
        if x[0] < 0.0:
            raise ValueError("negative")
        return np.unique(x)

    function = jitted(lambda x: tf.numpy_function(picky, [x * 2.0], tf.float32) + 1.0)
    for _ in range(2):
        np.testing.assert_array_equal(function(X), [3.0, 5.0, 7.0])
        with pytest.raises(tf.errors.InvalidArgumentError, match="negative") as caught:
            function(-X)
        assert isinstance(hostcall.last_error(caught.value), ValueError)


def test_gradients_forward_and_backward() -> None:
    w = tf.Variable([1.0, 2.0, 3.0, 4.0])

    def large(v: tf.Tensor) -> tf.Tensor:
        return tf.boolean_mask(v, v > 3.0) ** 2

    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.py_function(large, [x * w], tf.float32) * 3.0)

    def reference(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(large(x * w) * 3.0)

    gradients = []
    for function in (reference, plain(program), jitted(program)):
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = function(X)
        gradients.append(to_numpy(tape.gradient(y, [X, w])))
    assert_same(gradients[1], gradients[0])
    assert_same(gradients[2], gradients[0])


def test_the_gradient_of_a_function_that_the_user_has_split() -> None:
    """Its gradient holds an op without an XLA kernel, too, and nothing marks that."""

    def program(x: tf.Tensor) -> tf.Tensor:
        indices = tf.constant([[0, 1], [1, 0]], tf.int64)
        sparse = tf.SparseTensor(indices, x[:2], [2, 2])
        return tf.reduce_sum(tf.sparse.sparse_dense_matmul(sparse, [[1.0], [2.0]]) ** 2)

    gradients = []
    for function in (plain(program), traced(program, "split")):
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = function(X)
        gradients.append(to_numpy(tf.convert_to_tensor(tape.gradient(y, X))))
    assert_same(gradients[1], gradients[0])


def test_many_chains_and_few_clusters() -> None:
    """Forty script ops, and as many clusters as one chain of two has."""

    def program(x: tf.Tensor) -> Any:
        parts = [distinct(distinct(x + float(i)) * 2.0) for i in range(20)]
        return functools.reduce(tf.add, map(tf.reduce_sum, parts))

    assert_same(to_numpy(jitted(program)(X)), to_numpy(plain(program)(X)))


def test_the_gradient_of_a_branch_that_is_not_taken() -> None:
    """Its intermediates are made up, of any shape, and the gradient holds no script op."""

    def program(x: tf.Tensor) -> tf.Tensor:
        if x[0] > 1.0:
            z = tf.numpy_function(lambda v: v, [x], tf.float32) * x
        else:
            z = tf.clip_by_value(x * x * 2.0, -8.0, 8.0) * x
        return tf.reduce_sum(z)

    for x in (tf.constant([2.0, 1.0]), tf.constant([0.5, 1.0])):
        gradients = []
        for function in (plain(program), jitted(program)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            gradients.append(to_numpy(tape.gradient(y, x)))
        assert_same(gradients[1], gradients[0])
