"""Bounded sizes that reach an op which XLA gets wrong: the function is partitioned."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_equal,
    assert_same,
    failure,
    gradient_of,
    jitted,
    outcome,
    plain,
    value_and_gradient,
)

inside_xla = pytest.mark.custom_call("it is about what can be in one program")

BOUND = 5


def _vector(n: tf.Tensor) -> tf.Tensor:
    """The numbers from 1 on, as many as `n` says."""
    counted = lambda n: np.arange(1, n + 1, dtype=np.float32)  # noqa: E731
    return tf.numpy_function(counted, [n], hostcall.BoundedSpec([BOUND], tf.float32))


def _gradient(f: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], Any]:
    return lambda u: gradient_of(lambda u: tf.reduce_sum(f(u) ** 2), u)


def _of_size(use: Callable[[tf.Tensor], Any]) -> Callable[[tf.Tensor], Any]:
    """A program of a size that uses a vector of it."""
    return lambda n: use(_vector(n))


# Programs that one XLA program gets wrong, by the op that does, with what happens there.
UNPROVEN: dict[str, tuple[str, Callable[[tf.Tensor], Any]]] = {
    "last element": ("StridedSlice", lambda u: u[-1]),
    "all but the first": ("StridedSlice", lambda u: u[1:] * 2.0),
    "backwards": ("StridedSlice", lambda u: u[::-1]),
    "identity matrix": ("Fill", lambda u: tf.eye(tf.size(u))),
    "resize": ("ResizeBilinear", lambda u: tf.image.resize(u[:, None, None], [4, 4])),
    "running sum": ("Cumsum", lambda u: tf.cumsum(u)),
    "roll": ("Roll", lambda u: tf.roll(u, 1, 0)),
    "largest element": ("ArgMax", lambda u: tf.argmax(u)),
    "fixed size": ("AddV2", lambda u: u + tf.constant([1.0, 2.0, 3.0, 4.0, 5.0])),
    "best": ("TopKV2", lambda u: tf.math.top_k(u, 2).values),
    "part of fixed size": ("Slice", lambda u: tf.slice(u, [0], [2])),
    "where in two dimensions": ("Where", lambda u: tf.where(u[None, :] > 1.0)),
    "gradient of a concatenation": ("ConcatOffset", _gradient(lambda u: tf.concat([u, u * u], 0))),
    "gradient of a pad": ("Slice", _gradient(lambda u: tf.pad(u, [[1, 2]]))),
    "a random tensor": (
        "StatelessRandomUniformFullIntV2",  # of which the numbers are made
        lambda u: tf.shape(tf.random.stateless_uniform(tf.shape(u), [1, 2])),
    ),
    "counting down": ("Range", lambda u: tf.range(tf.size(u) - 1, -1, -1)),
    "map_fn": (  # which XLA does not compile where there is nothing to go over
        "TensorListReserve",
        lambda u: tf.map_fn(lambda x: x * 2.0, tf.concat([u, [9.0]], 0)),
    ),
    "in a branch": (
        "Cumsum",
        lambda u: tf.cond(tf.size(u) > 2, lambda: tf.cumsum(u), lambda: u * 2.0),
    ),
    "in a loop": (
        "Cumsum",
        lambda u: tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, tf.cumsum(v)), [0, u])[1],
    ),
    "in a function": ("Cumsum", lambda u: tf.function(tf.cumsum)(u)),
    "one branch of fixed size": (
        "If",
        lambda u: tf.cond(tf.size(u) > 2, lambda: u, lambda: tf.ones([5])),
    ),
}
each = pytest.mark.parametrize(("op", "use"), UNPROVEN.values(), ids=UNPROVEN.keys())


@each
def test_a_program_is_right_for_each_size(op: str, use: Callable[[tf.Tensor], Any]) -> None:
    expected, actual = plain(_of_size(use)), jitted(_of_size(use))
    for size in (3, BOUND, 1, 0):
        wanted = outcome(expected, tf.constant(size))
        if not isinstance(wanted, type):  # what plain TensorFlow refuses, XLA may refuse otherwise
            assert_same(outcome(actual, tf.constant(size)), wanted)


@inside_xla
@each
def test_it_is_partitioned_or_an_error_that_names_the_op(
    op: str, use: Callable[[tf.Tensor], Any]
) -> None:
    named = rf"\((Stateless)?{op}\)"
    (script_op,) = hostcall.explain(jitted(_of_size(use)), tf.constant(3)).script_ops
    assert script_op.route == "partition"
    assert re.search(named, script_op.reason)
    with hostcall.scope(route="custom_call"):
        error = failure(jitted(_of_size(use)), tf.constant(3))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert "route='custom_call'" in str(error)
    assert re.search(named, str(error))


@inside_xla
def test_only_the_calls_that_lead_to_the_op_are_on_the_host() -> None:
    def program(n: tf.Tensor) -> Any:
        u, v = _vector(n), _vector(n + 1)
        return tf.cumsum(u), v * 2.0

    explained = hostcall.explain(jitted(program), tf.constant(3))
    assert [op.route for op in explained.script_ops] == ["partition", "custom_call"]
    assert_equal(jitted(program)(3), plain(program)(3))


@inside_xla
def test_results_of_two_calls_are_not_taken_for_equally_long() -> None:
    def program(n: tf.Tensor, k: tf.Tensor) -> Any:
        return _vector(n) + _vector(k)

    compiled = jitted(program)
    np.testing.assert_array_equal(compiled(3, 3), plain(program)(3, 3))
    np.testing.assert_array_equal(compiled(3, 1), plain(program)(3, 1))
    with pytest.raises(tf.errors.InvalidArgumentError):
        compiled(3, 2)


@pytest.mark.parametrize(
    "use",
    [
        lambda u: (u, u),
        lambda u: (u * 2.0, u * 2.0, u + u),
        lambda u: {"a": u, "b": tf.reshape(tf.reshape(u, [-1, 1]), [-1])},
    ],
    ids=["itself", "equal ones", "reshaped"],
)
def test_one_value_of_bounded_size_is_returned_twice(use: Callable[[tf.Tensor], Any]) -> None:
    compiled, expected = jitted(_of_size(use)), plain(_of_size(use))
    for size in (3, 0, BOUND, 1):
        assert_same(outcome(compiled, tf.constant(size)), outcome(expected, tf.constant(size)))


NUMBERS = tf.constant([3.0, 1.0, 2.0, 4.0, 0.0])


def test_one_value_is_returned_twice_where_xla_knows_the_argument() -> None:
    def program(x: tf.Tensor) -> Any:
        tf.print(x, output_stream="file:///dev/null")  # stock XLA refuses it
        y = tf.repeat(x, tf.cast(x, tf.int32))  # which is a constant of the program
        return y, y, tf.identity(y)

    compiled, expected = jitted(program), plain(program)
    for x in (NUMBERS, NUMBERS - 3.0, NUMBERS * 0.0, NUMBERS + 1.0):
        assert_equal(compiled(x), expected(x))


def test_the_gradient_of_a_function_outside_of_it() -> None:
    def program(x: tf.Tensor) -> Any:
        spec = hostcall.BoundedSpec([BOUND], tf.float32)
        return tf.reduce_sum(tf.cumsum(tf.py_function(lambda x: x[x > 1.5] ** 2, [x], spec)))

    assert_equal(gradient_of(jitted(program), NUMBERS), gradient_of(plain(program), NUMBERS))


@inside_xla
def test_a_gradient_inside_whose_backward_call_goes_to_the_host() -> None:
    def program(x: tf.Tensor) -> Any:
        spec = hostcall.BoundedSpec([BOUND], tf.float32)
        start = tf.numpy_function(lambda x: x[x > 1.5], [x], spec)

        def cube(x: tf.Tensor) -> tf.Tensor:
            return tf.py_function(lambda x: x**3, [x], spec)

        y, gradient = value_and_gradient(lambda x: 2.0 * cube(x), start)
        return tf.cumsum(gradient), y

    assert_equal(jitted(program)(NUMBERS), plain(program)(NUMBERS))


@inside_xla
def test_a_bound_that_comes_only_with_the_sizes_of_inputs() -> None:
    """The function is partitioned when it comes to that, or it is an error."""

    def rule(x: tf.TensorSpec) -> Any:
        many = x.shape[0] > 100
        return hostcall.BoundedSpec(x.shape, x.dtype) if many else tf.TensorSpec(x.shape, x.dtype)

    some = hostcall.declare(lambda x: x[:150], result=rule)

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None], tf.float32)])
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.cumsum(tf.numpy_function(some, [x], tf.float32), reverse=True)

    np.testing.assert_array_equal(program(tf.ones([3])), [3.0, 2.0, 1.0])
    hostcall.configure(uncompilable="error")
    try:
        with pytest.raises(tf.errors.UnimplementedError, match="could not be seen to be so before"):
            program(tf.ones([200]))
    finally:
        hostcall.configure(uncompilable="partition")
    np.testing.assert_array_equal(program(tf.ones([200])), np.arange(150.0, 0.0, -1.0))


@inside_xla
def test_export_and_rewrite_name_the_op() -> None:
    program, spec = jitted(_of_size(tf.cumsum)), tf.TensorSpec([], tf.int32)
    with pytest.raises(ValueError, match=r"cannot be one program:\n.*\(Cumsum\)"):
        hostcall.export(program, spec)
    with pytest.raises(ValueError, match=r"\(Cumsum\)"):
        hostcall.rewrite(program.get_concrete_function(spec), route="custom_call")
