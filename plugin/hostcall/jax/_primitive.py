"""The primitives that stand for calls in JAX programs, and searches for calls in jaxprs.

JAX drops, repeats and moves an equation unless it has an effect. JAX distinguishes effects by their
class, so hostcall has three classes: one for calls that run once, one for fire-and-forget calls,
which run as often as those of `jax.debug.callback`, and one for the order, which both can have.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects
from jax._src.core import Primitive, jaxprs_in_params

from hostcall.jax import _drift, _names, _values
from hostcall.jax._functions import JaxFunction
from hostcall_runtime import _patching


def _described(name: str) -> str:
    """Return the text that JAX's messages show for an effect."""
    what = f"{name} (a hostcall.jax.call that says neither pure=True nor wait=False"
    if not _names.has(_names.CONTROL_FLOW):
        return f"{what}; hostcall does not know how this version of JAX treats branches and loops)"
    if not _patching.are_installed():
        return f"{what}; hostcall is disabled: call hostcall.enable())"
    return f"{what})"


class _Effect(_effects.Effect):  # type: ignore[misc]
    name: str

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return _described(self.name)


class CallEffect(_Effect):
    """The effect of a call that must run once."""

    name = "HostCall"


class FireAndForgetEffect(_Effect):
    """The effect of a call that runs at least once, and again where JAX computes again."""

    name = "FireAndForgetHostCall"


class OrderedCallEffect(_Effect):
    """The second effect of a call that runs after all earlier ordered calls in the program."""

    name = "OrderedHostCall"


UNORDERED = CallEffect()
ORDERED = OrderedCallEffect()
_FIRE_AND_FORGET = FireAndForgetEffect()

KINDS = (CallEffect, FireAndForgetEffect, OrderedCallEffect)


def register() -> None:
    """Register the properties of hostcall's effects with JAX; they stay, as `_patches` says."""
    # `_patches` allows branches and loops.
    for kind in KINDS:
        _effects.lowerable_effects.add_type(kind)
        _effects.custom_derivatives_allowed_effects.add_type(kind)
        # Otherwise JAX drops a call from a loop that it differentiates if no result needs the call.
        _effects.partial_eval_kept_effects.add_type(kind)
    _effects.ordered_effects.add_type(OrderedCallEffect)
    _effects.shardable_ordered_effects.add_type(OrderedCallEffect)
    if _names.has(_names.REMATERIALIZATION):
        # Not a `CallEffect`: `jax.checkpoint` (rematerialization) would run such a call twice.
        _effects.remat_allowed_effects.add_type(FireAndForgetEffect)
        _effects.remat_allowed_effects.add_type(OrderedCallEffect)


def is_ordered(effect: object) -> bool:
    """Return whether JAX passes a token through programs that have the effect."""
    return bool(_effects.ordered_effects.contains(effect))


def is_lost_in_loops(effect: object) -> bool:
    """Return whether JAX drops calls with the effect from loops that it differentiates."""
    return not _effects.partial_eval_kept_effects.contains(effect)


def _primitive(name: str) -> Primitive:
    made = Primitive(name)
    made.multiple_results = True
    # Outside of any program it runs as a program of its own.
    made.def_impl(functools.partial(_dispatch.apply_primitive, made))
    return made


call_p = _primitive("hostcall")
fire_and_forget_p = _primitive("hostcall_fire_and_forget")
CALLS = (call_p, fire_and_forget_p)


def of(function: JaxFunction) -> Primitive:
    """Return the primitive of a function's calls."""
    return call_p if function.options.call_log is None else fire_and_forget_p


def effects_of(function: JaxFunction, effect: Any | None) -> set[_Effect]:
    """Return the effects of an equation, for its effect, which is None for a pure function."""
    if effect is None:
        return set()
    own = UNORDERED if function.options.call_log is None else _FIRE_AND_FORGET
    return {own, ORDERED} if effect is ORDERED else {own}


@dataclasses.dataclass(frozen=True)
class Joint:
    """The mesh axes that divide the arrays of a joint call, and the device that the user named."""

    axes: tuple[str, ...] = ()
    device: Any | None = None  # whose process makes the call


def bind(
    function: JaxFunction,
    args: Sequence[Any],
    results: Sequence[jax.ShapeDtypeStruct],
    effect: Any | None,
    vmap_method: str | None,
    joint: Joint | None = None,
) -> list[Any]:
    """Make a call, and return its flat results as a list of arrays or tracers."""
    arrays = [*map(_values.data_of, args)]
    params = params_of(function, results, effect, vmap_method, joint)
    called: list[Any] = _drift.varying_as(arrays, of(function).bind(*arrays, **params))
    return [_values.array_of(v, result.dtype) for v, result in zip(called, results, strict=True)]


def params_of(
    function: JaxFunction,
    results: Sequence[jax.ShapeDtypeStruct],
    effect: Any | None,
    vmap_method: str | None,
    joint: Joint | None = None,
) -> dict[str, Any]:
    """Return the parameters of an equation."""
    # The effect is None for a pure function, else `UNORDERED` or `ORDERED`. `joint` is
    # None without `sharding=`.
    data = [_values.struct_of_data(result) for result in results]
    avals = tuple(jax.core.ShapedArray(struct.shape, struct.dtype) for struct in data)
    return {
        "function": function,
        "result_avals": avals,
        "effect": effect,
        "vmap_method": vmap_method,
        "joint": joint,
    }


# JAX's Jaxpr or ClosedJaxpr. JAX's package has no types.
Jaxpr = Any

_holds_call: weakref.WeakKeyDictionary[Jaxpr, bool] = weakref.WeakKeyDictionary()


def have_effectful_calls(jaxprs: Iterable[Jaxpr]) -> bool:
    """Return whether jaxprs hold calls with an effect, at any depth: JAX collects their effects."""
    return any(isinstance(effect, _Effect) for jaxpr in jaxprs for effect in jaxpr.effects)


def have_calls_that_run_once(jaxprs: Iterable[Jaxpr]) -> bool:
    """Return whether jaxprs hold calls with an effect that are not fire-and-forget."""
    return any(isinstance(effect, CallEffect) for jaxpr in jaxprs for effect in jaxpr.effects)


def call_that_runs_once(jaxprs: Iterable[Jaxpr]) -> str:
    """Return the text for messages of the first such call, in jaxprs that have one."""
    calls = (equation.params for equation in equations(jaxprs) if equation.primitive is call_p)
    found = (params["function"] for params in calls if params["effect"] is not None)
    return next((function.description for function in found), "a hostcall.jax.call")


def holds_call(jaxpr: Jaxpr) -> bool:
    """Return whether a jaxpr holds a call, pure or not, at any depth."""
    known = _holds_call.get(jaxpr)
    if known is None:
        known = any(
            equation.primitive in CALLS or any(map(holds_call, jaxprs_in_params(equation.params)))
            for equation in jaxpr.eqns
        )
        _holds_call[jaxpr] = known
    return known


def equations(jaxprs: Iterable[Jaxpr]) -> Iterator[Any]:
    """Yield the equations of jaxprs, and of all jaxprs in them."""
    for jaxpr in jaxprs:
        for equation in jaxpr.eqns:
            yield equation
            yield from equations(jaxprs_in_params(equation.params))
