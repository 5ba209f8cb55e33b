"""The effects of calls, by which JAX keeps and orders them.

JAX drops, repeats and moves an equation of a program unless the equation has an effect. JAX tells
effects apart by their class, so hostcall has two classes of its own: one for calls that run once,
and one for calls that also keep their order.
"""

from __future__ import annotations

from jax._src import effects as _effects

from hostcall.jax import _names
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
