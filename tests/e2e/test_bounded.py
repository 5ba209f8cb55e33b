"""Tensors of which only a bound is known: programs and callbacks see their true size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_alike,
    assert_equal,
    assert_same,
    assert_says,
    each_decorator,
    each_mode,
    each_op,
    failure,
    jitted,
    plain,
    value_and_gradient,
)

X = tf.constant([3.0, 1.0, 3.0, 2.0, 1.0])
Program = Callable[..., Any]


@hostcall.declare(result=lambda x: hostcall.BoundedSpec([np.prod(x.shape)], tf.float32))
def unique(x: Any) -> np.ndarray:
    return np.unique(np.asarray(x))


def _unique(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(unique, [x], tf.float32)


def _assert_same_as_plain(program: Program, *arguments: tf.Tensor, rtol: float = 0.0) -> None:
    compiled, graph = jitted(program), plain(program)
    for x in arguments:
        assert_alike(compiled(x), graph(x), rtol)


# `test_bounded_ops.py` proves the ops one by one; these are results, and what makes steps of them.
CONSUMERS: dict[str, Program] = {
    "itself": lambda u, x: u,
    "loop variable": lambda u, x: tf.while_loop(
        lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, u]
    ),
    "captured by a loop": lambda u, x: tf.while_loop(
        lambda i, s: i < 3, lambda i, s: (i + 1, s + tf.reduce_sum(u)), [0, 0.0]
    ),
    "captured by a branch": lambda u, x: tf.cond(
        x[0] > 0.0, lambda: tf.reduce_sum(u), lambda: tf.reduce_max(u)
    ),
    "result of a branch": lambda u, x: tf.cond(x[0] < 0.0, lambda: u, lambda: 2.0 * u),
}


@pytest.mark.parametrize("consume", CONSUMERS.values(), ids=CONSUMERS.keys())
def test_what_the_program_computes_with_it(consume: Program) -> None:
    all_differ = tf.constant([0.0, 4.0, 1.0, 2.0, 3.0])
    _assert_same_as_plain(lambda x: consume(_unique(x), x), X, all_differ, rtol=1e-6)


def test_two_bounded_results_of_one_call() -> None:
    def partitioned(x: np.ndarray) -> Any:
        return x[x > 1.5], x[x <= 1.5, None], np.int32(x.size)

    specs = [
        hostcall.BoundedSpec([5], tf.float32),
        hostcall.BoundedSpec([5, 1], tf.float32),
        tf.TensorSpec([], tf.int32),
    ]

    def program(x: tf.Tensor) -> Any:
        large, small, count = tf.numpy_function(partitioned, [x], specs)
        return large, small, count, tf.reduce_sum(large) - tf.reduce_sum(small), tf.shape(small)

    _assert_same_as_plain(program, X, X * 0.0, X + 5.0, rtol=1e-6)


@pytest.mark.parametrize("dims", [[0, 2], [-1, -3]])
def test_several_dynamic_dimensions(dims: list[int]) -> None:
    def block(n: Any) -> np.ndarray:
        return np.arange(2.0 * n[0] * n[1], dtype=np.float32).reshape(n[0], 2, n[1])

    bounded = hostcall.BoundedSpec([6, 2, 7], tf.float32, dynamic_dims=dims)

    def program(n: tf.Tensor) -> Any:
        y = tf.numpy_function(block, [n], bounded)
        sums = [tf.reduce_sum(y, axis=axis) for axis in (0, 1, 2, [0, 1, 2])]
        return y, tf.shape(y), tf.size(y), sums, tf.transpose(y)

    sizes = [(2, 3), (6, 7), (0, 3), (3, 0), (0, 0), (1, 7)]
    _assert_same_as_plain(program, *map(tf.constant, sizes), rtol=1e-6)


@each_op
@each_mode
def test_a_bound_is_checked(op: Any, mode: Any) -> None:
    shapes: list[tuple[int, ...]] = []

    def untrue(n: Any) -> np.ndarray:
        return np.ones(shapes[-1], np.float32)

    program = mode(lambda n: op(untrue, [n], hostcall.BoundedSpec([6, 2], tf.float32)))
    for shape in ((7, 2), (3,), (3, 3), (3, 1), (3, 2, 1)):
        shapes.append(shape)
        error = failure(program, tf.constant(7))
        assert isinstance(error, tf.errors.InvalidArgumentError)
        assert_says(error, "0-th value returned by", f"has shape {shape}", "(<=6, 2)", "untrue")
    for rows in (6, 3, 0):
        shapes.append((rows, 2))
        np.testing.assert_array_equal(program(tf.constant(7)), np.ones([rows, 2]))


def test_a_shape_known_better_elsewhere_makes_it_static() -> None:
    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        y = _unique(x)
        y.set_shape([3])
        return tf.ones_like(y)

    np.testing.assert_array_equal(program(X), [1.0, 1.0, 1.0])


# Inputs of which XLA knows only a bound: a callback gets them in their true size.

inside_xla = pytest.mark.custom_call("between clusters a size is known, and so has no bound")


def _large(x: tf.Tensor) -> tf.Tensor:
    """A tensor whose size XLA does not know, from a callback."""
    return tf.numpy_function(lambda x: x[x > 1.5], [x], hostcall.BoundedSpec([5], tf.float32))


# Such tensors from callbacks, and from TensorFlow itself.
SOURCES: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "callback": _large,
    "boolean_mask": lambda x: tf.boolean_mask(x, x > 1.5),
    "where": lambda x: tf.cast(tf.where(x > 1.5), tf.float32),
    "two dimensions": lambda x: _large(x)[:, None] * _large(x)[None, :],
    "middle dimension": lambda x: tf.stack([_large(x)[:, None]] * 2),
    "zero": lambda x: tf.boolean_mask(x, x > 100.0),
}


@each_decorator
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_callback_sees_the_true_size_and_values(op: Any, source: Any) -> None:
    def run(mode: Any) -> list[np.ndarray]:
        seen: list[np.ndarray] = []

        def note(x: Any) -> np.float32:
            seen.append(np.array(x))
            return np.float32(np.sum(x))

        total = mode(lambda x: op(note, [source(x)], tf.TensorSpec([], tf.float32)))(X)
        return [*seen, total.numpy()]

    assert_same(run(jitted), run(plain))


BOUNDS = {
    "where": ([5, 1], [0]),
    "two dimensions": ([5, 5], [0, 1]),
    "middle dimension": ([2, 5, 1], [1]),
}


@inside_xla
@each_decorator
@pytest.mark.parametrize("source", SOURCES)
def test_a_rule_is_given_the_bound_and_hands_it_on(op: Any, source: str) -> None:
    specs: list[Any] = []

    def rule(x: Any, y: Any) -> Any:
        specs.append((x, y))
        return x

    twice = hostcall.declare(lambda x, _: np.asarray(x) * np.float32(2.0), result=rule)

    def program(x: tf.Tensor) -> Any:
        y = op(twice, [SOURCES[source](x), x], tf.float32)
        return y, tf.shape(y), tf.reduce_sum(y)

    assert_equal(jitted(program)(X), plain(program)(X))
    sizes, dims = BOUNDS.get(source, ([5], [0]))
    bounded = hostcall.BoundedSpec(sizes, tf.float32, dynamic_dims=dims)
    assert (bounded, tf.TensorSpec([5], tf.float32)) in specs


def test_a_bounded_loop_variable_that_a_callback_shrinks() -> None:
    def call(function: Any, x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(function, [x], hostcall.BoundedSpec([5], tf.float32))

    def program(x: tf.Tensor) -> Any:
        return tf.while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, call(lambda x: x[:-1], x)),
            [0, call(lambda x: x, x)],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        )[1]

    _assert_same_as_plain(program, X)


@inside_xla
def test_a_result_as_large_as_the_bound_of_its_input_must_have_its_true_size() -> None:
    same = hostcall.declare(lambda x: x, result=tf.TensorSpec([5], tf.float32))
    program = jitted(lambda x: tf.numpy_function(same, [_large(x)], tf.float32))
    np.testing.assert_array_equal(program(X + 5.0), X + 5.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="declared shape"):
        program(X)


@pytest.mark.parametrize("source", ["callback", "boolean_mask"])
def test_the_gradient_of_a_py_function_of_a_bounded_input(source: str) -> None:
    def cube(x: tf.Tensor) -> Any:
        return tf.py_function(lambda x: x**3, [x], hostcall.BoundedSpec([5], tf.float32))

    def program(x: tf.Tensor) -> Any:
        return value_and_gradient(lambda x: 2.0 * cube(x), SOURCES[source](x))

    _assert_same_as_plain(program, X, X + 5.0, X - 5.0)  # some, all and none
