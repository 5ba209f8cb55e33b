"""Calls without results in programs that are differentiated: made as `jax.debug.callback` is."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.jax.helpers import X, assert_same, each_mode

Log = Callable[[Any], None]


def plain(log: Log, x: Any) -> Any:
    y = x * x
    log(y)
    return (y * y).sum()


def of_what_no_result_needs(log: Log, x: Any) -> Any:
    log(jnp.sin(x))
    return x.sum()


def in_a_scan(log: Log, x: Any) -> Any:
    def step(carry: Any, each: Any) -> Any:
        log(carry * each)
        return jnp.sin(carry) * each, carry

    carry, every = lax.scan(step, jnp.ones(()), x)
    return carry + every.sum()


def in_a_loop(log: Log, x: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        log(x + i)
        return jnp.sin(x)

    return lax.fori_loop(0, 3, body, x).sum()


def in_a_branch(log: Log, x: Any) -> Any:
    def taken(x: Any) -> Any:
        log(2 * x)
        return x**3

    def left(x: Any) -> Any:
        log(3 * x)
        return x

    return lax.cond(x[0] < 1, taken, left, x).sum()


def in_an_inner_program(log: Log, x: Any) -> Any:
    @jax.jit
    def inner(x: Any) -> Any:
        log(x)
        return jnp.cos(x)

    return inner(inner(x)).sum()


def beside_a_derivative_of_the_users(log: Log, x: Any) -> Any:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        log(x)
        return jnp.cos(x)

    def forward(x: Any) -> Any:
        log(2 * x)
        return f(x), x

    f.defvjp(forward, lambda x, upstream: (x * upstream,))
    return f(x).sum()


PROGRAMS = [plain, of_what_no_result_needs, in_a_scan, in_a_loop, in_a_branch, in_an_inner_program]
DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": jax.grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),)),
    "hessian": jax.hessian,
    "linearized": lambda f: lambda x: jax.linearize(f, x)[1](jnp.ones_like(x)),
}


def seen_and_returned(differentiate: Any, mode: Any, program: Any, by: Any) -> Any:
    seen: list[list[float]] = []

    def note(value: Any) -> None:
        seen.append(np.atleast_1d(np.asarray(value, np.float32)).tolist())

    returned = mode(differentiate(lambda x: program(lambda value: by(note, value), x)))(X)
    jax.block_until_ready(returned)
    jax.effects_barrier()
    hostcall.barrier()
    return sorted(seen), returned


def by_jax(note: Any, value: Any) -> None:
    jax.debug.callback(note, value)


OURS: dict[str, Callable[[Any, Any], Any]] = {
    "call": lambda note, value: hostcall.jax.call(note, (), value),
    "in order": lambda note, value: hostcall.jax.call(note, None, value, ordered=True),
    "without waiting": lambda note, value: hostcall.jax.call(note, (), value, wait=False),
    "callback": lambda note, value: hostcall.callback(note, result=[])(value),
}
ONCE = ["call", "in order"]


def check(differentiate: Any, mode: Any, program: Any, ways: Iterable[str]) -> None:
    seen, returned = seen_and_returned(differentiate, mode, program, by_jax)
    for way in ways:
        ours, got = seen_and_returned(differentiate, mode, program, OURS[way])
        assert ours == seen, way
        assert_same(got, returned)


@pytest.mark.parametrize("name", ["grad", "jvp", "hessian"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_is_made_as_often_as_jaxs(name: str, program: Any) -> None:
    check(DERIVATIVES[name], jax.jit, program, ONCE)


@each_mode
@pytest.mark.parametrize("name", ["grad", "linearized"])
def test_each_kind_of_call(mode: Any, name: str) -> None:
    check(DERIVATIVES[name], mode, plain, OURS)


def test_calls_beside_a_derivative_of_the_users() -> None:
    check(jax.grad, jax.jit, beside_a_derivative_of_the_users, ONCE)


def test_calls_for_the_elements_of_a_batch() -> None:
    def log(note: Any, value: Any) -> None:
        hostcall.jax.call(note, (), value, vmap_method="sequential")

    def of_elements(f: Any) -> Any:
        return jax.vmap(jax.grad(f))

    def square(log: Log, x: Any) -> Any:
        log(x * x)
        return x * x

    seen, returned = seen_and_returned(of_elements, jax.jit, square, by_jax)
    assert seen == [[0.0], [1.0], [4.0], [9.0]]
    ours, got = seen_and_returned(of_elements, jax.jit, square, log)
    assert ours == seen
    assert_same(got, returned)


def test_a_result_still_has_no_derivative() -> None:
    with pytest.raises(ValueError, match="JAX knows no derivative of a Python function"):
        jax.grad(lambda x: hostcall.jax.call(np.sum, jax.ShapeDtypeStruct([], x.dtype), x))(X)
