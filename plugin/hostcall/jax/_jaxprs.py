"""Which jaxprs hold calls of hostcall's. Wrapped rules of JAX leave all others to JAX at once."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from jax._src.core import jaxprs_in_params

from hostcall.jax import _effects
from hostcall.jax._primitive import call_p

# JAX's Jaxpr or ClosedJaxpr: its package has no types.
Jaxpr = Any

_holds_call: weakref.WeakKeyDictionary[Jaxpr, bool] = weakref.WeakKeyDictionary()


def have_effectful_calls(jaxprs: Iterable[Jaxpr]) -> bool:
    """Whether calls with an effect stand in jaxprs, at any depth: JAX collects their effects."""
    return any(_effects.is_of_call(effect) for jaxpr in jaxprs for effect in jaxpr.effects)


def effectful_call(jaxprs: Iterable[Jaxpr]) -> str:
    """What messages say of the first call with an effect, in jaxprs that have one."""
    calls = (equation.params for equation in equations(jaxprs) if equation.primitive is call_p)
    found = (params["function"] for params in calls if params["effect"] is not None)
    return next((function.description for function in found), "a hostcall.jax.call")


def holds_call(jaxpr: Jaxpr) -> bool:
    """Whether a call, also a pure one, stands in a jaxpr, at any depth."""
    known = _holds_call.get(jaxpr)
    if known is None:
        known = any(
            equation.primitive is call_p or any(map(holds_call, jaxprs_in_params(equation.params)))
            for equation in jaxpr.eqns
        )
        _holds_call[jaxpr] = known
    return known


def equations(jaxprs: Iterable[Jaxpr]) -> Iterator[Any]:
    """The equations of jaxprs, and of all jaxprs in them."""
    for jaxpr in jaxprs:
        for equation in jaxpr.eqns:
            yield equation
            yield from equations(jaxprs_in_params(equation.params))
