"""The primitive that stands for a call in JAX programs, and the jaxprs that hold it.

JAX drops, repeats and moves an equation of a program unless the equation has an effect. JAX tells
effects apart by their class, so hostcall has two classes of its own: one for calls that run once,
and one for calls that also keep their order.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects
from jax._src.core import Primitive, jaxprs_in_params

from hostcall.jax import _names, _values
from hostcall.jax._functions import Function
from hostcall_runtime import _patching


def _described(name: str) -> str:
    """What JAX's messages say of an effect."""
    what = f"{name} (a hostcall.jax.call that does not say pure=True"
    if not _names.has(_names.CONTROL_FLOW):
        return f"{what}; hostcall does not know how this version of JAX treats branches and loops)"
    if not _patching.are_installed():
        return f"{what}; hostcall is disabled: call hostcall.enable())"
    return f"{what})"


class CallEffect(_effects.Effect):  # type: ignore[misc]
    """The effect of a call that has to run once."""

    def __str__(self) -> str:
        return "HostCall"

    def __repr__(self) -> str:
        return _described("HostCall")


class OrderedCallEffect(_effects.Effect):  # type: ignore[misc]
    """The effect of a call that has to run once, after all such calls before it in the program."""

    def __str__(self) -> str:
        return "OrderedHostCall"

    def __repr__(self) -> str:
        return _described("OrderedHostCall")


UNORDERED = CallEffect()
ORDERED = OrderedCallEffect()


def register() -> None:
    """Tells JAX what programs with calls may do.

    These are entries of hostcall's own classes, which no other program has. They stay where
    hostcall is disabled. `jax.checkpoint` (rematerialization) is not among them: it would run a
    call twice. Nor are branches and loops: see `_patches`.
    """
    for kind in (CallEffect, OrderedCallEffect):
        _effects.lowerable_effects.add_type(kind)
        _effects.custom_derivatives_allowed_effects.add_type(kind)
        # Otherwise JAX leaves the call out of a loop that it differentiates if no result needs it.
        _effects.partial_eval_kept_effects.add_type(kind)
    _effects.ordered_effects.add_type(OrderedCallEffect)
    _effects.shardable_ordered_effects.add_type(OrderedCallEffect)


def is_of_call(effect: object) -> bool:
    """Whether an effect is one of hostcall's."""
    return isinstance(effect, CallEffect | OrderedCallEffect)


def is_ordered(effect: object) -> bool:
    """Whether JAX passes a token through the programs that have the effect."""
    return bool(_effects.ordered_effects.contains(effect))


def is_lost_in_loops(effect: object) -> bool:
    """Whether JAX leaves out calls with the effect where it differentiates a loop around them."""
    return not _effects.partial_eval_kept_effects.contains(effect)


# Has several results. Outside of any program it runs as a program of its own.
call_p = Primitive("hostcall")
call_p.multiple_results = True
call_p.def_impl(functools.partial(_dispatch.apply_primitive, call_p))


def bind(
    function: Function,
    args: Sequence[Any],
    results: Sequence[jax.ShapeDtypeStruct],
    effect: Any | None,
    vmap_method: str | None,
    joint: tuple[str, ...] | None = None,
) -> list[Any]:
    """The results of a call, a list of arrays or tracers.

    Args:
      function: what is called.
      args: its flat arguments.
      results: its flat results.
      effect: None for a pure function, else one of those in `_effects`.
      vmap_method: as in `jax.pure_callback`.
      joint: of a call that devices make together, the mesh axes that its arrays are divided along;
        None where nobody says so. See `_joint`.
    """
    data = [_values.struct_of_data(result) for result in results]
    avals = tuple(_values.aval_of(struct.shape, struct.dtype) for struct in data)
    called: list[Any] = call_p.bind(
        *map(_values.data_of, args),
        function=function,
        result_avals=avals,
        effect=effect,
        vmap_method=vmap_method,
        joint=joint,
    )
    return [_values.of_data(v, result.dtype) for v, result in zip(called, results, strict=True)]


# JAX's Jaxpr or ClosedJaxpr: its package has no types.
Jaxpr = Any

_holds_call: weakref.WeakKeyDictionary[Jaxpr, bool] = weakref.WeakKeyDictionary()


def have_effectful_calls(jaxprs: Iterable[Jaxpr]) -> bool:
    """Whether calls with an effect stand in jaxprs, at any depth: JAX collects their effects."""
    return any(is_of_call(effect) for jaxpr in jaxprs for effect in jaxpr.effects)


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
