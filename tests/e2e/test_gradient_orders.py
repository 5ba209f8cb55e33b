"""Second and third derivatives, and derivatives forward: those without a wrapper, or an error."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.helpers import jitted


def of_two_inputs(call: Any, function: Any, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return call(lambda x, y: function(x * y) * tf.exp(y), x, y)


def chain(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    return call(function, call(function, x)) * x


def loop_between_clusters(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    """The loop holds a call on the host, and is partitioned; the others may be in its clusters."""
    on_host = hostcall.declare(lambda x: np.ones_like(x), result=x, route="partition")
    for _ in tf.range(3):
        ones = tf.numpy_function(on_host, [tf.stop_gradient(x)], x.dtype, stateful=False)
        x = call(function, x) * tf.ensure_shape(ones, x.shape)
    return x


def inner_function(call: Any, function: Any, x: tf.Tensor) -> tf.Tensor:
    inner = functools.partial(g.once, call, function)
    if not tf.executing_eagerly():
        inner = tf.function(inner)
    return inner(inner(x))


@g.each_wrapper
@pytest.mark.parametrize(
    ("orders", "size", "dtype"), [(4, 4, "float64"), (3, 4, "float32"), (3, 65_536, "float64")]
)
def test_up_to_the_fourth_with_all_tapes_inside(
    call: Any, orders: int, size: int, dtype: str
) -> None:
    g.check(g.tapes(orders, orders), call, g.once, [g.values(size, dtype)])


@pytest.mark.parametrize(
    ("call", "inner", "size"),
    [(g.by_callback, 0, 4), (g.by_py_function, 1, 65_536), (g.by_callback, 2, 4)],
)
def test_up_to_the_third_with_tapes_outside(call: Any, size: int, inner: int) -> None:
    g.check(g.tapes(inner, 3), call, g.once, [g.values(size, "float64")])


@g.small_and_large
@g.each_wrapper
@pytest.mark.parametrize("inner", [2, 0])
def test_mixed_ones_of_two_inputs(call: Any, size: int, inner: int) -> None:
    args = [g.values(size, "float64", seed) for seed in (0, 1)]
    g.check(g.tapes(inner, 2), call, of_two_inputs, args)


@pytest.mark.parametrize(
    ("program", "size"),
    [
        *((program, 4) for program in (chain, loop_between_clusters, inner_function)),
        *((program, 65_536) for program in (g.loop, g.branches)),
    ],
)
def test_of_programs(program: Any, size: int) -> None:
    g.check(g.tapes(2, 2), g.by_py_function, program, [g.values(size, "float64")])


@pytest.mark.parametrize("inner", [0, 2])
def test_a_fourth_one_outside_of_it_is_refused(inner: int) -> None:
    compiled = g.tapes(inner, 4)(jitted, functools.partial(g.once, g.by_py_function, tf.sin))
    with pytest.raises(tf.errors.UnknownError, match="The derivative of order 4") as caught:
        compiled(g.values(4))
    assert "all of them inside one tf.function" in str(caught.value)


# The function is compiled for one order before it is asked for another.
@g.each_wrapper
def test_one_function_for_each_order_in_turn(call: Any) -> None:
    function, x = jitted(functools.partial(g.once, call, tf.sin)), g.values(4, "float64")
    for orders in (1, 3, 1, 2):
        g.assert_close(
            g.derivatives(function, orders, x),
            g.derivatives(functools.partial(g.once, g.unwrapped, tf.sin), orders, x),
        )


@g.small_and_large
@g.each_wrapper
@pytest.mark.parametrize("mode", [g.eagerly, jitted])
@pytest.mark.parametrize("accumulator_inside", [True, False])
def test_a_forward_accumulator(mode: Any, call: Any, size: int, accumulator_inside: bool) -> None:
    x, tangent = g.values(size), g.values(size, seed=1)

    def forward(function: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            y = function(x)
        return accumulator.jvp(y)

    function = functools.partial(g.once, call, tf.sin)
    if accumulator_inside:
        found = mode(functools.partial(forward, function))(x)
    else:
        found = forward(mode(function), x)
    g.assert_close(found, forward(functools.partial(g.once, g.unwrapped, tf.sin), x))
    assert np.any(found)
