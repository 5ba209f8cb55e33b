"""Calls in branches, loops and reducers: JAX's rules, wrapped so that each call runs once.

Each wrapper passes jaxprs without such calls straight to JAX's rule, with the same arguments. XLA
ends the process when a reducer makes a call; the lowering refuses the call instead.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax._src import core as _core
from jax._src.interpreters import batching as _batching
from jax.interpreters import mlir

from hostcall.jax._primitive import (
    CALLS,
    call_that_runs_once,
    equations,
    have_calls_that_run_once,
    have_effectful_calls,
)

Rule = Callable[..., Any]


def batched_branches(stock: Rule) -> Rule:
    """Wrap `jax.vmap` of `cond`: refuse calls, as all branches run for all elements."""

    @functools.wraps(stock)
    def rule(axis: Any, args: object, dims: Any, **params: Any) -> object:
        branches = params["branches"]
        # JAX chooses among the branches for platforms when it compiles the program.
        is_batched = dims[0] is not None and "branches_platforms" not in params
        if is_batched and have_calls_that_run_once(branches):
            raise _not_in_batch("branch", call_that_runs_once(branches))
        return stock(axis, args, dims, **params)

    return rule


def batched_loop(stock: Rule) -> Rule:
    """Wrap `jax.vmap` of `while_loop`: refuse calls, since its body runs until all elements end."""

    @functools.wraps(stock)
    def rule(axis: Any, args: object, dims: Any, **params: Any) -> object:
        jaxprs = params["cond_jaxpr"], params["body_jaxpr"]
        if have_calls_that_run_once(jaxprs) and _is_condition_batched(axis, dims, **params):
            raise _not_in_batch("loop", call_that_runs_once(jaxprs))
        return stock(axis, args, dims, **params)

    return rule


def linearized_loop(stock: Rule) -> Rule:
    """Wrap the derivative of `while_loop`: refuse calls, since JAX runs the loop once more."""

    @functools.wraps(stock)
    def rule(trace: Any, *tracers: Any, **params: Any) -> object:
        jaxprs = params["cond_jaxpr"], params["body_jaxpr"]
        if have_calls_that_run_once(jaxprs) and len({tracer.is_known() for tracer in tracers}) > 1:
            raise _not_twice(call_that_runs_once(jaxprs))
        return stock(trace, *tracers, **params)

    return rule


def scan_without_hoisting(stock: Rule) -> Rule:
    """Wrap the derivative of `scan`: a call stays in the loop, and runs in each iteration."""

    @functools.wraps(stock)
    def hoist(known: Any, consts: Any, residuals: int, *stacked: int) -> object:
        if have_effectful_calls([known]):  # JAX 0.11 and later never hoist stacked ones
            return known, consts, [False] * residuals, []
        return stock(known, consts, residuals, *stacked)

    return hoist


def loop_with_its_condition(entry: Any) -> object:
    """Wrap the lowering of `while_loop` for a call in its condition."""
    # XLA drops the condition, side effects or not, if it knows the number of iterations. So the
    # loop carries the condition's value. JAX itself does so for ordered effects, but lets the
    # elements of a batch that have left the loop go on in it.
    stock = entry.rule

    @functools.wraps(stock)
    def lower(context: Any, *args: Any, **params: Any) -> object:
        if not have_effectful_calls([params["cond_jaxpr"]]):
            return stock(context, *args, **params)
        carrying = functools.partial(_loop_that_carries_its_condition, **params)
        return mlir.lower_fun(carrying)(context, *args)

    return dataclasses.replace(entry, rule=lower)


def _loop_that_carries_its_condition(
    *args: Any,
    cond_jaxpr: jax.extend.core.ClosedJaxpr,
    body_jaxpr: jax.extend.core.ClosedJaxpr,
    cond_nconsts: int,
    body_nconsts: int,
) -> list[Any]:
    """Return the results of a loop, run as one whose condition only reads a carried value."""
    first = cond_nconsts + body_nconsts
    of_cond, of_body, start = args[:cond_nconsts], args[cond_nconsts:first], args[first:]

    def go_on(carry: Sequence[Any]) -> jax.Array:  # a value for each element of a batch
        return _core.jaxpr_as_fun(cond_jaxpr)(*of_cond, *carry)[0]

    def body(carried: Any) -> tuple[jax.Array, object]:
        going_on, old = carried
        carry = _core.jaxpr_as_fun(body_jaxpr)(*of_body, *old)
        if going_on.shape:
            carry = [_chosen(going_on, *pair) for pair in zip(carry, old, strict=True)]
        return go_on(carry), carry

    carried = (go_on(start), list(start))
    return list(jax.lax.while_loop(lambda carried: carried[0].any(), body, carried)[1])


def _chosen(which: Any, new: Any, old: Any) -> jax.Array:
    """Return the new value for the elements of a batch that go on, and else the old one."""
    return lax.select(lax.broadcast_in_dim(which, new.shape, range(which.ndim)), new, old)


def _is_condition_batched(
    axis: Any,
    dims: Any,
    cond_nconsts: int,
    cond_jaxpr: jax.extend.core.ClosedJaxpr,
    body_nconsts: int,
    body_jaxpr: jax.extend.core.ClosedJaxpr,
) -> bool:
    """Return whether elements of a batch may leave a loop at different times."""
    batched = [dim is not None for dim in dims]
    first = cond_nconsts + body_nconsts
    of_cond, of_body, carry = batched[:cond_nconsts], batched[cond_nconsts:first], batched[first:]
    for _ in carry:  # a value that one iteration batches is batched in the next one
        _, carry = _batching.batch_jaxpr(body_jaxpr, axis, of_body + carry, instantiate=carry)
    _, (condition,) = _batching.batch_jaxpr(cond_jaxpr, axis, of_cond + carry, instantiate=False)
    return bool(condition)


def _not_in_batch(construct: str, called: str) -> NotImplementedError:
    return NotImplementedError(
        f"jax.vmap of a {construct} with {called}: the condition may differ from "
        "element to element, and jax.vmap lets all elements go all ways, so that the call would "
        "run for elements that it is not meant for. Use jax.lax.map or jax.lax.scan instead of "
        "vmap; or, if the function has no side effects, say pure=True (stateful=False of a "
        "hostcall.callback)."
    )


def _not_twice(called: str) -> NotImplementedError:
    return NotImplementedError(
        f"jax.linearize or jax.grad of a jax.lax.while_loop with {called}: JAX would "
        "run the loop once more for the derivative, and make the call once more. Use jax.jvp or "
        "jax.jacfwd, or jax.lax.fori_loop with a known number of iterations; or, if the function "
        "has no side effects, say pure=True (stateful=False of a hostcall.callback)."
    )


# The primitives of JAX that compile a function of the user's into their own code.
REDUCERS = (lax.reduce_p, lax.reduce_window_p, lax.select_and_scatter_p, lax.scatter_p)


def guarded(reducer: Any, entry: Any) -> object:
    """Wrap JAX's lowering rule of a reducer so that it refuses calls in the reducer's function."""
    stock = entry.rule

    @functools.wraps(stock)
    def lower(context: Any, *args: Any, **params: Any) -> object:
        called = (e for e in equations(_core.jaxprs_in_params(params)) if e.primitive in CALLS)
        if (call := next(called, None)) is not None:
            raise refusal(call.params["function"].description, reducer.name)
        return stock(context, *args, **params)

    return dataclasses.replace(entry, rule=lower)


def check_reducers(jaxpr: Any, kinds: dict[Any, str]) -> None:
    """Raise an error that names the user's call if a reducer of a jaxpr holds one of `kinds`."""
    for reducer in equations([jaxpr]):
        if reducer.primitive in REDUCERS:
            for equation in equations(_core.jaxprs_in_params(reducer.params)):
                if equation.primitive in kinds:
                    raise refusal(kinds[equation.primitive], reducer.primitive.name)


def refusal(called: str, reducer: str) -> NotImplementedError:
    """Return the error of a call in a function that is given to `jax.lax.<reducer>`."""
    return NotImplementedError(
        f"{called}: it is called in a function that is given to jax.lax.{reducer}, of which XLA "
        "makes machine code that calls no Python. Call the function with the whole array, or with "
        "one element after the other in jax.lax.scan."
    )
