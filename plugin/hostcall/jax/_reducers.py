"""Calls in the functions that arrays are reduced by, of which XLA makes machine code.

XLA ends the process where it meets a call there. The lowering refuses it instead.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from jax import lax
from jax._src.core import jaxprs_in_params

from hostcall.jax._jaxprs import equations, holds_call
from hostcall.jax._primitive import call_p

# The primitives of JAX that take a function of the user's which becomes a part of their own code.
REDUCERS = (lax.reduce_p, lax.reduce_window_p, lax.select_and_scatter_p, lax.scatter_p)


def guarded(reducer: Any, entry: Any) -> Any:
    """JAX's lowering rule of a reducer, which refuses calls in the reducer's function."""
    stock = entry.rule

    @functools.wraps(stock)
    def lower(context: Any, *args: Any, **params: Any) -> Any:
        if any(map(holds_call, jaxprs_in_params(params))):
            function = _first_call(params)["function"]
            raise refusal(function.description, reducer.name)
        return stock(context, *args, **params)

    return dataclasses.replace(entry, rule=lower)


def check(jaxpr: Any, kinds: dict[Any, str]) -> None:
    """Raises for a primitive in `kinds`, with what the user has called, in a reducer of a jaxpr."""
    for reducer in equations([jaxpr]):
        if reducer.primitive in REDUCERS:
            for equation in equations(jaxprs_in_params(reducer.params)):
                if equation.primitive in kinds:
                    raise refusal(kinds[equation.primitive], reducer.primitive.name)


def refusal(called: str, reducer: str) -> NotImplementedError:
    """The error of a call in a reducer's function.

    Args:
      called: the function and the call, for the message.
      reducer: the name of the reducer in `jax.lax`.
    """
    return NotImplementedError(
        f"{called}: it is called in a function that is given to jax.lax.{reducer}, of which XLA "
        "makes machine code that calls no Python. Call the function with the whole array, or with "
        "one element after the other in jax.lax.scan."
    )


def _first_call(params: dict[str, Any]) -> dict[str, Any]:
    found = (e for e in equations(jaxprs_in_params(params)) if e.primitive is call_p)
    return dict(next(found).params)
