"""Tests that our callbacks keep the promises of JAX's own where programs are differentiated."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hostcall.jax
from tests.support.jax.flavours import FLAVOURS, Log, each_effect, each_flavour
from tests.support.jax.helpers import X, assert_same, each_mode, struct

call = hostcall.jax.call


def pure(function: Any, x: Any) -> Any:
    return call(function, x, x, pure=True, vmap_method="broadcast_all")


@jax.custom_vjp
def sin(x: Any) -> Any:
    return pure(np.sin, x)


sin.defvjp(lambda x: (sin(x), x), lambda x, upstream: (upstream * pure(np.cos, x),))


@each_flavour
@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f: jax.jvp(f, (X,), (X,)),
        lambda f: jax.linearize(f, X),
        lambda f: jax.vjp(f, X)[1](X),
        lambda f: jax.linear_transpose(f, X)(X),
        lambda f: jax.jit(jax.jacrev(f))(X),
        lambda f: jax.grad(lambda x: f(x).sum())(X),
    ],
    ids=["jvp", "linearize", "vjp", "transpose", "jacobian", "gradient"],
)
def test_there_is_no_derivative(flavour: Any, differentiate: Any) -> None:
    message = r"no derivative of a Python function.* jax\.custom_vjp, or use a hostcall\.callback"
    with pytest.raises(ValueError, match=message):
        differentiate(lambda x: flavour(np.sin, x, x))


@each_mode
@each_flavour
def test_calls_that_no_derivative_goes_through(mode: Any, flavour: Any) -> None:
    def program(x: Any) -> Any:
        of_constant = flavour(lambda v: v + np.float32(1), struct([]), lax.stop_gradient(x))
        of_integer = flavour(lambda v: v, struct([], np.int32), x.astype(jnp.int32))
        return x * of_constant * of_integer

    assert float(mode(jax.grad(program))(2.5)) == 7


@each_mode
def test_a_gradient_of_the_users_in_other_transformations(mode: Any) -> None:
    cos, sines = np.cos(X), np.sin(X)
    np.testing.assert_allclose(mode(jax.vmap(jax.grad(sin)))(X), cos, rtol=1e-6)
    np.testing.assert_allclose(mode(jax.jacrev(sin))(X), np.diag(cos), rtol=1e-6)
    twice = jax.grad(lambda x: lax.scan(lambda c, _: (sin(c), None), x, length=2)[0].sum())
    np.testing.assert_allclose(mode(twice)(X), np.cos(sines) * cos, rtol=1e-6)
    branch = jax.grad(lambda x: lax.cond(x[0] < 1, sin, jnp.cos, x).sum())
    np.testing.assert_allclose(mode(branch)(X), cos, rtol=1e-6)


def test_calls_in_a_derivative_of_the_users() -> None:
    log = Log()
    tell = functools.partial(log, FLAVOURS["ordered"])

    @jax.custom_jvp
    def told(x: Any) -> Any:
        tell(x)
        return x

    @told.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        tell(*primals, *tangents)
        return primals[0], tangents[0]

    @jax.custom_vjp
    def backwards(x: Any) -> Any:
        return x

    backwards.defvjp(lambda x: (x, None), lambda _, upstream: [tell(upstream), (upstream,)][1])

    jax.jit(told)(2.0)
    jax.jvp(jax.jit(told), (2.0,), (3.0,))
    jax.jit(jax.grad(lambda x: backwards(x) ** 2))(4.0)
    assert log.take() == [2, (2, 3), 8]


@each_mode
def test_rematerialization_repeats_pure_calls(mode: Any) -> None:
    program = jax.checkpoint(lambda x: sin(sin(x)))
    expected = np.cos(np.sin(1)) * np.cos(1)
    np.testing.assert_allclose(mode(jax.grad(program))(1.0), expected, rtol=1e-6)


@each_effect
def test_rematerialization_of_effects(flavour: Any) -> None:
    log = Log()

    @jax.checkpoint
    def program(x: Any, y: Any) -> Any:
        log(flavour, y)
        return jnp.sin(x)

    jax.jit(program)(1.0, 2.0).block_until_ready()
    assert log.take() == [2]
    with pytest.raises(
        NotImplementedError, match=r"Effects not supported in (partial-eval|AD of) .* pure=True"
    ):
        jax.grad(program)(1.0, 2.0)


@each_effect
def test_forward_derivatives_of_loops_repeat_nothing(flavour: Any) -> None:
    log = Log()
    tell = functools.partial(log, flavour)

    def program(x: Any) -> Any:
        below = lambda carry: [tell(carry[0]), carry[0] < 2][1]  # noqa: E731
        body = lambda carry: [tell(10 + carry[0]), (carry[0] + 1, jnp.sin(carry[1]))][1]  # noqa: E731
        return lax.while_loop(below, body, (0, x))[1]

    for derivative in (lambda x: jax.jvp(program, (x,), (x,)), jax.jit(jax.jacfwd(program))):
        derivative(1.0)
        assert sorted(log.take()) == [0, 1, 2, 10, 11]


@each_effect
def test_derivatives_of_loops_take_no_call_out_of_them(flavour: Any) -> None:
    log = Log()

    def iteration(x: Any) -> Any:
        log(flavour)  # nothing of the iteration goes in
        return jnp.sin(x)

    loops = [
        lambda x: lax.fori_loop(0, 3, lambda _, x: iteration(x), x),
        lambda x: lax.scan(lambda c, _: (iteration(c), x), x, length=3)[0],
        lambda x: lax.map(
            lambda row: lax.cond(x > 9, jnp.cos, iteration, row), jnp.stack([x] * 3)
        ).sum(),
    ]
    for loop in loops:
        for derivative in (
            *(jax.jit(jax.grad(loop)), jax.jacrev(loop), jax.jit(jax.jacfwd(loop))),
            lambda x, f=loop: jax.linearize(f, x)[1](x),
        ):
            derivative(1.0)
            assert len(log.take()) == 3


@each_mode
@each_effect
def test_a_derivative_that_runs_a_loop_once_more(mode: Any, flavour: Any) -> None:
    def program(x: Any) -> Any:
        body = lambda c: [flavour(lambda: None, None), (c[0] + 1, jnp.sin(c[1]))][1]  # noqa: E731
        return lax.while_loop(lambda c: c[0] < 2, body, (0, x))[1]

    with pytest.raises(NotImplementedError, match=r"jax\.linearize .* jax\.jacfwd"):
        mode(lambda x: jax.linearize(program, x)[1](x))(1.0)
    with pytest.raises(NotImplementedError, match=r"jax\.grad of a jax\.lax\.while_loop"):
        mode(jax.grad(program))(1.0)
    # Where no derivative goes through it, it runs once, as everything else does.
    beside = jax.grad(lambda x: x * program(lax.stop_gradient(x)))
    np.testing.assert_allclose(mode(beside)(1.0), np.sin(np.sin(1)), rtol=1e-6)


@each_effect
def test_effects_are_shown_by_what_is_traced(flavour: Any) -> None:
    jaxpr = jax.make_jaxpr(lambda x: flavour(np.sin, x, x))(X)
    assert {str(effect).removeprefix("Ordered") for effect in jaxpr.effects} == {"HostCall"}
    assert not jax.make_jaxpr(lambda x: call(np.sin, x, x, pure=True))(X).effects


@each_flavour
def test_tracing_alone_calls_nothing(flavour: Any) -> None:
    log: list[Any] = []
    program = jax.jit(lambda x: flavour(log.append, struct([2], np.int32), x))
    assert jax.eval_shape(program, X).shape == (2,)
    jax.make_jaxpr(program)(X)
    program.lower(X).compile()
    assert log == []


def test_evaluating_what_was_traced() -> None:
    batched = jax.vmap(lambda x: call(lambda v: v * 2, x, x, vmap_method="sequential"))
    jaxpr = jax.make_jaxpr(batched)(X)
    np.testing.assert_array_equal(jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)[0], 2 * X)


def test_calls_while_a_program_is_traced() -> None:
    @jax.jit
    def program(x: Any) -> Any:
        with jax.ensure_compile_time_eval():
            constant = call(lambda v: v + 1, X, X)
        assert isinstance(constant, jax.Array)
        return x * constant

    np.testing.assert_array_equal(program(X), X * (X + 1))


@each_flavour
@pytest.mark.parametrize("within", [jax.disable_jit, jax.checking_leaks])
def test_without_jit_and_without_leaks_of_tracers(within: Any, flavour: Any) -> None:
    def step(carry: Any, x: Any) -> Any:
        return flavour(lambda c, v: c + v, carry, carry, x), None

    with within():
        assert float(jax.jit(lambda x: lax.scan(step, jnp.float32(0), x)[0])(X)) == 6


Tell = Callable[[Any], None]


def plain(log: Tell, x: Any) -> Any:
    y = x * x
    log(y)
    return (y * y).sum()


def of_what_no_result_needs(log: Tell, x: Any) -> Any:
    log(jnp.sin(x))
    return x.sum()


def in_a_scan(log: Tell, x: Any) -> Any:
    def step(carry: Any, each: Any) -> Any:
        log(carry * each)
        return jnp.sin(carry) * each, carry

    carry, every = lax.scan(step, jnp.ones(()), x)
    return carry + every.sum()


def in_a_loop(log: Tell, x: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        log(x + i)
        return jnp.sin(x)

    return lax.fori_loop(0, 3, body, x).sum()


def in_a_branch(log: Tell, x: Any) -> Any:
    def taken(x: Any) -> Any:
        log(2 * x)
        return x**3

    def left(x: Any) -> Any:
        log(3 * x)
        return x

    return lax.cond(x[0] < 1, taken, left, x).sum()


def in_an_inner_program(log: Tell, x: Any) -> Any:
    @jax.jit
    def inner(x: Any) -> Any:
        log(x)
        return jnp.cos(x)

    return inner(inner(x)).sum()


def beside_a_derivative_of_the_users(log: Tell, x: Any) -> Any:
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
    "for each element": lambda note, value: call(note, (), value, vmap_method="sequential"),
}
ONCE = ["call", "in order"]


def check(differentiate: Any, mode: Any, program: Any, ways: Iterable[str]) -> Any:
    """Compare our ways to call with JAX's, and return what the calls have seen."""
    seen, returned = seen_and_returned(differentiate, mode, program, by_jax)
    for way in ways:
        ours, got = seen_and_returned(differentiate, mode, program, OURS[way])
        assert ours == seen, way
        assert_same(got, returned)
    return seen


@pytest.mark.parametrize("name", ["grad", "jvp", "hessian"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_is_made_as_often_as_jaxs(name: str, program: Any) -> None:
    check(DERIVATIVES[name], jax.jit, program, ONCE)


@each_mode
@pytest.mark.parametrize("name", ["grad", "linearized"])
def test_each_kind_of_call(mode: Any, name: str) -> None:
    check(DERIVATIVES[name], mode, plain, OURS)


def test_calls_for_the_elements_of_a_batch() -> None:
    def square(log: Tell, x: Any) -> Any:
        log(x * x)
        return x * x

    seen = check(lambda f: jax.vmap(jax.grad(f)), jax.jit, square, ["for each element"])
    assert seen == [[0.0], [1.0], [4.0], [9.0]]


def test_calls_beside_a_derivative_of_the_users() -> None:
    check(jax.grad, jax.jit, beside_a_derivative_of_the_users, ONCE)
