"""Tests that our callbacks keep the promises of JAX's own in loops, branches and functions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.jax.flavours import FLAVOURS, Log, each_effect, each_flavour
from tests.support.jax.helpers import X, each_mode, plus_one, struct

call = hostcall.jax.call


@each_mode
@each_flavour
def test_while_with_a_callback_as_its_condition(mode: Any, flavour: Any) -> None:
    def below(v: Any) -> Any:
        return np.any(v < 10)

    def program(x: Any) -> Any:
        return lax.while_loop(
            lambda x: flavour(below, struct([], bool), x), lambda x: flavour(plus_one, x, x), x
        )

    np.testing.assert_array_equal(mode(program)(X), X + 10)


@each_mode
@each_flavour
def test_cond_on_the_result_of_a_callback(mode: Any, flavour: Any) -> None:
    def program(x: Any) -> Any:
        large = flavour(lambda v: v.sum() > 6, struct([], bool), x)
        return lax.cond(large, lambda x: flavour(plus_one, x, x), lambda x: x, x)

    np.testing.assert_array_equal(mode(program)(X), X)
    np.testing.assert_array_equal(mode(program)(X + 1), X + 2)


@each_effect
def test_the_condition_of_a_loop_runs_once_more_than_its_body(flavour: Any) -> None:
    log = Log()

    def below(carry: Any) -> Any:
        log(flavour, 0, carry[0])
        return carry[0] < 2

    def body(carry: Any) -> Any:
        log(flavour, 1, carry[0])
        return carry[0] + 1, jnp.sin(carry[1])

    # XLA knows how often the loop runs where it knows how it starts.
    for start, calls in (
        (0, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]),
        (1, [(0, 1), (0, 2), (1, 1)]),
        (2, [(0, 2)]),
    ):
        jax.jit(lambda i, x: lax.while_loop(below, body, (i, x)))(start, X)
        assert sorted(log.take()) == calls
        jax.jit(lambda x, start=start: lax.while_loop(below, body, (start, x)))(X)
        assert sorted(log.take()) == calls


@each_effect
@pytest.mark.parametrize("unroll", [1, 2, 4])
def test_unrolled_loops_call_as_often(flavour: Any, unroll: int) -> None:
    log = Log()
    jax.jit(
        lambda: lax.fori_loop(0, 4, lambda i, c: [log(flavour, i), c][1], None, unroll=unroll)
    )()
    assert sorted(log.take()) == [0, 1, 2, 3]


def test_ordered_calls_of_a_reversed_scan() -> None:
    log = Log()
    step = lambda c, i: ([log(FLAVOURS["ordered"], i), c][1], None)  # noqa: E731
    jax.jit(lambda: lax.scan(step, 0, jnp.arange(4), reverse=True))()
    assert log.take() == [3, 2, 1, 0]


def test_map_in_batches_and_associative_scan() -> None:
    def doubled(v: Any) -> Any:
        return call(lambda a: a * 2, v, v, vmap_method="broadcast_all")

    np.testing.assert_array_equal(jax.jit(lambda x: lax.map(doubled, x, batch_size=2))(X), 2 * X)
    add = lambda a, b: call(np.add, a, a, b, pure=True)  # noqa: E731
    np.testing.assert_array_equal(lax.associative_scan(add, X), np.cumsum(X))


@each_mode
def test_linear_solvers_with_ordered_calls(mode: Any) -> None:
    log = Log()

    def product(v: Any) -> Any:
        log(FLAVOURS["ordered"], 1)
        return v

    def solve(b: Any) -> Any:
        return lax.custom_linear_solve(product, b, lambda product, b: product(b))

    np.testing.assert_array_equal(mode(solve)(X), X)
    assert log.take() == [1]


def test_mutable_arrays() -> None:
    kept = jax.new_ref(X)

    @jax.jit
    def double() -> Any:
        kept[...] = call(lambda v: v * 2, X, kept[...])

    double()
    double()
    np.testing.assert_array_equal(kept[...], 4 * X)


@each_flavour
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_functions_that_arrays_are_reduced_by(flavour: Any, wrap: Any) -> None:
    # XLA ends the process where it has to compile JAX's own there.
    add = wrap(lambda a, b: flavour(np.add, a, a, b))
    indices = lax.ScatterDimensionNumbers((), (0,), (0,))
    for name, program in (
        ("reduce", lambda x: lax.reduce(x, 0.0, add, (0,))),
        ("reduce_window", lambda x: lax.reduce_window(x, 0.0, add, (2,), (1,), "VALID")),
        (
            "scatter",
            lambda x: lax.scatter_apply(
                x, jnp.array([[1]]), lambda v: add(v, v), indices, update_shape=(1,)
            ),
        ),
    ):
        with pytest.raises(NotImplementedError, match=rf"given to jax\.lax\.{name}, of which XLA"):
            jax.jit(program)(X)


# Branches whose only result is the token of ordered calls.
_ONLY_CALLS: dict[str, Callable[[Callable[[Any], None], Any], Any]] = {
    "cond": lambda tell, x: lax.cond(x[0] > 9, lambda: tell(-1), lambda: tell(0)),
    "one branch": lambda tell, x: lax.cond(x[0] < 9, lambda: tell(0), lambda: None),
    "switch": lambda tell, x: lax.switch(
        x[0].astype(int), [lambda n=n: tell(n) for n in (0, -1, -2)]
    ),
    "platforms": lambda tell, x: lax.platform_dependent(
        cpu=lambda: tell(0), cuda=lambda: tell(0), default=lambda: tell(-1)
    ),
    "nested": lambda tell, x: lax.cond(
        x[0] > 9, lambda: None, lambda: lax.cond(x[1] > 0, lambda: tell(0), lambda: tell(-1))
    ),
    "with a value": lambda tell, x: lax.cond(x[0] > 9, lambda y: None, lambda y: tell(y), x[0]),
}


@pytest.mark.parametrize("within", ["alone", "in a loop", "in a jitted function"])
@pytest.mark.parametrize("branches", _ONLY_CALLS)
def test_branches_that_only_make_ordered_calls(branches: str, within: str) -> None:
    log = Log()
    tell = functools.partial(log, FLAVOURS["ordered"])

    def step(x: Any) -> None:
        _ONLY_CALLS[branches](tell, x)
        jax.jit(lambda: tell(1))()

    def program(x: Any) -> Any:
        if within == "in a loop":
            lax.fori_loop(0, 2, lambda _, y: step(x) or y, 0)
        else:
            (step if within == "alone" else jax.jit(step))(x)
        tell(2)
        return x

    compiled = jax.jit(program)
    for _ in range(2):
        compiled(X)
        assert log.take() == [0, 1] * (2 if within == "in a loop" else 1) + [2]
