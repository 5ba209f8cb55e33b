"""Inputs of which XLA knows only a bound: a callback gets them in their true size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted, plain

X = tf.constant([3.0, 1.0, 3.0, 2.0, 1.0])

OPS = [tf.numpy_function, tf.py_function, tf.compat.v1.py_func]
inside_xla = pytest.mark.custom_call("between clusters a size is known, and so has no bound")
each_op = pytest.mark.parametrize("op", OPS, ids=["numpy_function", "py_function", "py_func"])


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
each_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())


@each_op
@each_source
def test_the_callback_sees_the_true_size_and_values(op: Any, source: Any) -> None:
    def run(mode: Any) -> list[np.ndarray]:
        seen: list[np.ndarray] = []

        def note(x: Any) -> np.float32:
            seen.append(np.array(x))
            return np.float32(np.sum(x))

        total = mode(lambda x: op(note, [source(x)], tf.TensorSpec([], tf.float32)))(X)
        return [*seen, total.numpy()]

    expected, actual = run(plain), run(jitted)
    assert len(actual) == len(expected) == 2
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@inside_xla
@each_op
@each_source
def test_a_rule_hands_the_bound_on(op: Any, source: Any) -> None:
    specs: list[Any] = []

    def rule(x: Any) -> Any:
        specs.append(x)
        return x

    twice = hostcall.declare(lambda x: np.asarray(x) * np.float32(2.0), result=rule)

    def program(x: tf.Tensor) -> Any:
        y = op(twice, [source(x)], tf.float32)
        return y, tf.shape(y), tf.reduce_sum(y)

    for actual, expected in zip(jitted(program)(X), plain(program)(X), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert any(isinstance(spec, hostcall.BoundedSpec) for spec in specs)


@inside_xla
def test_the_spec_of_a_bounded_input() -> None:
    specs: list[Any] = []

    def rule(x: Any, y: Any) -> Any:
        specs.append((x, y))
        return tf.TensorSpec([], tf.float32)

    size = hostcall.declare(lambda x, y: np.float32(x.size), result=rule)
    jitted(lambda x: tf.numpy_function(size, [_large(x)[:, None], x], tf.float32))(X)
    bounded = hostcall.BoundedSpec([5, 1], tf.float32, dynamic_dims=[0])
    assert (bounded, tf.TensorSpec([5], tf.float32)) in specs


def test_a_chain_of_bounded_callbacks_keeps_order() -> None:
    entries: list[list[float]] = []

    def drop_last(x: np.ndarray) -> np.ndarray:
        entries.append(x.tolist())
        return x[:-1]

    hostcall.declare(drop_last, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in range(3):
            x = tf.numpy_function(drop_last, [x], tf.float32)
        return x

    np.testing.assert_array_equal(program(X), [3.0, 1.0])
    assert entries == [[3.0, 1.0, 3.0, 2.0, 1.0], [3.0, 1.0, 3.0, 2.0], [3.0, 1.0, 3.0]]


def test_a_bounded_loop_variable_that_a_callback_shrinks() -> None:
    def drop_last(x: np.ndarray) -> np.ndarray:
        return x[:-1]

    def program(x: tf.Tensor) -> Any:
        def body(i: tf.Tensor, x: tf.Tensor) -> Any:
            return i + 1, tf.numpy_function(drop_last, [x], hostcall.BoundedSpec([5], tf.float32))

        start = tf.numpy_function(lambda x: x, [x], hostcall.BoundedSpec([5], tf.float32))
        shape = [tf.TensorShape([]), tf.TensorShape([None])]
        return tf.while_loop(lambda i, x: i < 3, body, [0, start], shape_invariants=shape)[1]

    np.testing.assert_array_equal(plain(program)(X), [3.0, 1.0])
    np.testing.assert_array_equal(jitted(program)(X), [3.0, 1.0])


@pytest.mark.parametrize("positive", [True, False])
def test_branches_with_bounded_results_and_callbacks_that_take_them(positive: bool) -> None:
    def program(x: tf.Tensor) -> Any:
        bounded = tf.cond(x[0] > 0.0, lambda: _large(x), lambda: _large(-x) * 2.0)
        total = tf.cond(
            x[0] > 0.0,
            lambda: tf.numpy_function(np.sum, [bounded], tf.TensorSpec([], tf.float32)),
            lambda: tf.numpy_function(np.max, [bounded], tf.TensorSpec([], tf.float32)),
        )
        return bounded, total

    x = X if positive else -X
    for actual, expected in zip(jitted(program)(x), plain(program)(x), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_bounded_calls_in_map_fn() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        def row(x: tf.Tensor) -> tf.Tensor:
            size = tf.numpy_function(np.size, [_large(x)], tf.TensorSpec([], tf.int64))
            return tf.reduce_sum(_large(x)) * 10.0 + tf.cast(size, tf.float32)

        return tf.map_fn(row, x)

    x = tf.stack([X, X * 0.0, X + 5.0])
    np.testing.assert_array_equal(jitted(program)(x), plain(program)(x))


@inside_xla
def test_a_result_as_large_as_the_bound_of_its_input_must_have_its_true_size() -> None:
    same = hostcall.declare(lambda x: x, result=tf.TensorSpec([5], tf.float32))
    program = jitted(lambda x: tf.numpy_function(same, [_large(x)], tf.float32))
    np.testing.assert_array_equal(program(X + 5.0), X + 5.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="declared shape"):
        program(X)


def test_a_result_as_large_as_its_input() -> None:
    same = hostcall.declare(lambda x: x, result=lambda x: tf.TensorSpec(x.shape, x.dtype))
    program = jitted(lambda x: tf.numpy_function(same, [_large(x)], tf.float32))
    for x in (X + 5.0, X):
        np.testing.assert_array_equal(program(x), x[x > 1.5])


@pytest.mark.parametrize("shift", [0.0, 5.0, -5.0], ids=["some", "all", "none"])
@pytest.mark.parametrize("source", ["callback", "boolean_mask"])
def test_the_gradient_of_a_py_function_of_a_bounded_input(source: str, shift: float) -> None:
    def gradient(mode: Any) -> Any:
        def program(x: tf.Tensor) -> Any:
            bounded = SOURCES[source](x)
            with tf.GradientTape() as tape:
                tape.watch(bounded)
                y = tf.py_function(lambda x: x**3, [bounded], hostcall.BoundedSpec([5], tf.float32))
                total = tf.reduce_sum(2.0 * y)
            return y, tape.gradient(total, bounded)

        return mode(program)(X + shift)

    for actual, expected in zip(gradient(jitted), gradient(plain), strict=True):
        assert actual.shape == expected.shape
        np.testing.assert_array_equal(actual, expected)


def test_a_gradient_through_a_mask_and_a_bounded_py_function() -> None:
    def program(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            masked = tf.boolean_mask(x, x > 1.5)
            y = tf.py_function(lambda x: x**2, [masked], hostcall.BoundedSpec([5], tf.float32))
            total = tf.reduce_sum(3.0 * y)
        return tape.gradient(total, x)

    np.testing.assert_array_equal(jitted(program)(X), [18.0, 0.0, 18.0, 12.0, 0.0])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([None, 3], tf.float32), "a bound for every dimension"),
        ((None, tf.float32), "a bound for every dimension"),
        (([5], tf.float32, [1]), "names a dimension that the shape"),
        (([5], tf.float32, [-2]), "names a dimension that the shape"),
        (([], tf.float32), "names a dimension that the shape"),
        (([5, 3], tf.float32, [0, -2]), "names a dimension twice"),
    ],
)
def test_a_bounded_spec_that_makes_no_sense(arguments: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        hostcall.BoundedSpec(*arguments)


def test_bounded_specs_are_values() -> None:
    one = hostcall.BoundedSpec((5, 3), "float32", dynamic_dims=[-1, 0])
    other = hostcall.BoundedSpec(tf.TensorShape([5, 3]), tf.float32, dynamic_dims=(0, 1))
    assert one == other
    assert hash(one) == hash(other)
    assert one != hostcall.BoundedSpec([5, 3], tf.float32)
    assert (one.shape, one.dtype, one.dynamic_dims) == ((5, 3), tf.float32, (0, 1))
    assert one.tensor_spec() == tf.TensorSpec([None, None], tf.float32)
    assert hostcall.BoundedSpec([4], tf.int8).dynamic_dims == (0,)
    with pytest.raises(AttributeError):
        one.shape = (1, 1)  # type: ignore[misc]
