"""contract.md, "Exceptions": failures deep inside a program, and what they leave behind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    MODES,
    OPS,
    DetailedError,
    each_op,
    failure,
    jitted,
    on_two,
    raising,
)

FLOAT = tf.float32
X = tf.constant([1.0, 2.0])


# Where the call is: each takes a program, and makes one of it.
NESTS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "function": lambda run: lambda x: jitted(jitted(run))(x),
    "loop": lambda run: (
        lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, run(v)), [0, x])[1]
    ),
    "branch": lambda run: lambda x: tf.cond(x[0] > 0.0, lambda: run(x), lambda: x),
    "case": lambda run: (
        lambda x: tf.switch_case(tf.cast(x[0], tf.int32), [lambda: x, lambda: run(x)])
    ),
    "map": lambda run: lambda x: tf.map_fn(run, tf.stack([x, x])),
    "gradient": lambda run: lambda x: tf.gradients(run(x * x), x)[0],
}


@pytest.mark.parametrize("nest", NESTS)
@each_op
def test_nested_calls_fail_alike(op: Any, nest: str) -> None:
    if nest == "gradient" and op is not tf.py_function:
        pytest.skip("the other ops have no gradient")
    raised = DetailedError("blah")
    run = jitted(NESTS[nest](on_two(op, raising(raised))))
    for _ in range(2):
        error = failure(run, X)
        assert type(error) is tf.errors.InvalidArgumentError
        assert "DetailedError: blah" in str(error)
        assert hostcall.last_error(error) is raised


@each_op
def test_an_error_in_the_gradient_is_reached_too(op: Any) -> None:
    raised = DetailedError("in the gradient")

    @tf.custom_gradient
    def identity(x: tf.Tensor) -> Any:
        return tf.identity(x), lambda dy: on_two(op, raising(raised))(dy)

    error = failure(jitted(lambda x: tf.gradients(identity(x), x)[0]), X)
    assert hostcall.last_error(error) is raised


@pytest.mark.parametrize("outer", OPS)
def test_a_callback_that_runs_a_failing_on_two(outer: Any) -> None:
    raised = DetailedError("blah")
    inner = jitted(on_two(tf.numpy_function, raising(raised)))
    error = failure(jitted(on_two(outer, lambda x: inner(tf.constant(x)).numpy())), X)
    assert type(error) is tf.errors.UnknownError
    middle = hostcall.last_error(error)
    assert type(middle) is tf.errors.InvalidArgumentError
    assert hostcall.last_error(middle) is raised


@pytest.mark.parametrize("build", MODES)
@each_op
@pytest.mark.parametrize("size", [2, 300_000])
def test_a_failed_call_leaves_later_calls_sound(build: Any, op: Any, size: int) -> None:
    def moody(x: Any) -> Any:
        if np.asarray(x)[0] % 2:
            raise ValueError("odd")
        return x * np.float32(2)

    run = build(lambda x: tf.ensure_shape(op(moody, [x + 0.0], FLOAT), [size]) + 1.0)
    for step in range(10):
        x = tf.fill([size], float(step))
        if step % 2:
            assert type(failure(run, x)) is tf.errors.InvalidArgumentError
        else:
            assert (run(x).numpy() == 2 * step + 1).all()


def test_of_two_failures_the_first_in_program_order_counts() -> None:
    first, second = ValueError("first"), KeyError("second")

    def both(x: tf.Tensor) -> tf.Tensor:
        y = on_two(tf.numpy_function, raising(first))(x)
        return y + on_two(tf.numpy_function, raising(second))(x)

    run = jitted(both)
    for _ in range(3):
        error = failure(run, X)
        assert type(error) is tf.errors.InvalidArgumentError
        assert hostcall.last_error(error) is first
        assert hostcall.last_error() is first
