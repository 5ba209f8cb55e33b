"""The primitive that JAX programs call Python with, and what JAX's transformations make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from hostcall.jax import _jax_private as private
from hostcall.jax import _packed
from hostcall.jax._functions import Function
from hostcall_runtime import prepared

TARGET = "hostcall"

_PLATFORMS = ("cpu", "cuda")

_NO_DERIVATIVE = (
    "hostcall.jax.call: JAX knows no derivative of a Python function. Give it one: wrap the call "
    "with jax.custom_jvp or jax.custom_vjp, or use a hostcall.callback that has a grad=."
)

jax.ffi.register_ffi_target(TARGET, prepared().handler(), platform="cpu", api_version=1)
# Needs no GPU: JAX keeps it until there is one.
jax.ffi.register_ffi_target(TARGET, prepared().cuda_handler(), platform="CUDA", api_version=1)

call_p = private.new_primitive("hostcall", _NO_DERIVATIVE)


def bind(
    function: Function,
    args: Sequence[Any],
    results: Sequence[jax.ShapeDtypeStruct],
    effect: Any | None,
    vmap_method: str | None,
) -> list[Any]:
    """The results of a call, a list of arrays or tracers.

    Args:
      function: what is called.
      args: its flat arguments.
      results: its flat results.
      effect: None for a pure function, else one of those in `_jax_private`.
      vmap_method: as in `jax.pure_callback`.
    """
    avals = tuple(private.aval_of(result.shape, result.dtype) for result in results)
    called: list[Any] = call_p.bind(
        *args, function=function, result_avals=avals, effect=effect, vmap_method=vmap_method
    )
    return called


def emit(
    context: Any,
    operands: Sequence[Any],
    number: int,
    effect: Any | None,
    sharding: Any = None,
) -> Sequence[Any]:
    """The custom call of one callback; csrc/runtime/handler.h says what its attributes mean."""
    attributes: dict[str, int | Sequence[int]] = {
        "callback": number,
        "dynamic_operands": (),
        "dynamic_results": (),
        "narrow_operands": _packed.pairs(context.avals_in),
        "narrow_results": _packed.pairs(context.avals_out),
    }
    avals_in, avals_out = _packed.wide(context.avals_in), _packed.wide(context.avals_out)
    wide = _packed.converted(context, operands, context.avals_in, avals_in)
    called = private.emit_call(
        context, TARGET, wide, avals_in, avals_out, attributes, effect, sharding
    )
    return _packed.converted(context, called, avals_out, context.avals_out)


def _abstract(result_avals: Any, effect: Any | None, **_: Any) -> Any:
    return result_avals, set() if effect is None else {effect}


def _lower(context: Any, *operands: Any, function: Function, **params: Any) -> Any:
    _check_platforms(private.platforms_of(context), function)
    if params["effect"] is not None and private.is_divided_by_xla(context):
        # XLA knows by the names of JAX's own callbacks that these are for one device alone.
        raise NotImplementedError(
            f"{function.description}: the program is for several devices, among which XLA divides "
            "its arrays, and the call would run on each of them. Say with jax.shard_map what each "
            "device calls it with; or, if it has no side effects, say pure=True (stateful=False of "
            "a hostcall.callback)."
        )
    target, number = function.register()
    private.keep_with_executable(context, target)
    return emit(context, operands, number, params["effect"])


def _check_platforms(platforms: Sequence[str], function: Function) -> None:
    elsewhere = [platform for platform in platforms if platform not in _PLATFORMS]
    if elsewhere:
        raise NotImplementedError(
            f"{function.description}: the program is for {', '.join(elsewhere)}, and only programs "
            "for CPUs and NVIDIA GPUs can make such calls. Run it there, with jax.jit under "
            'jax.default_device(jax.devices("cpu")[0]) say, or use jax.pure_callback.'
        )


def _batch(args: Any, dims: Any, **params: Any) -> Any:
    function, method = params["function"], params["vmap_method"]
    if params["effect"] is private.ORDERED:
        raise ValueError(
            f"jax.vmap of an ordered call, {function.description}: there is no one order of the "
            "calls of a batch. Use ordered=False (stateful=False of a hostcall.callback), or "
            "jax.lax.map or jax.lax.scan instead of vmap."
        )
    if method is None:
        raise NotImplementedError(
            f"jax.vmap of a call that does not say what becomes of it, {function.description}. "
            'Write vmap_method="sequential" (one call for each element), "expand_dims" or '
            '"broadcast_all" (one call with a batch dimension in front); they mean what they mean '
            "in jax.pure_callback."
        )
    return private.batched_as_pure_callback(call_p, args, dims, **params)


def _refuse_reducers(reducing: str, primitive: Any, **params: Any) -> None:
    if primitive is call_p:
        place = params["function"].description
    else:
        place = private.JAX_CALLBACKS[primitive](**params).kind
    raise NotImplementedError(
        f"{place}: it is called in a function that is given to jax.lax.{reducing}, of which XLA "
        "makes machine code that calls no Python. Call the function with the whole array, or with "
        "one element after the other in jax.lax.scan."
    )


def _refuse_batched(construct: str, function: Function, **_: Any) -> None:
    raise NotImplementedError(
        f"jax.vmap of a {construct} with {function.description}: the condition may differ from "
        "element to element, and jax.vmap lets all elements go all ways, so that the call would "
        "run for elements that it is not meant for. Use jax.lax.map or jax.lax.scan instead of "
        "vmap; or, if the function has no side effects, say pure=True (stateful=False of a "
        "hostcall.callback)."
    )


def _refuse_linearized(function: Function, **_: Any) -> None:
    raise NotImplementedError(
        f"jax.linearize or jax.grad of a jax.lax.while_loop with {function.description}: JAX would "
        "run the loop once more for the derivative, and make the call once more. Use jax.jvp or "
        "jax.jacfwd, or jax.lax.fori_loop with a known number of turns; or, if the function has no "
        "side effects, say pure=True (stateful=False of a hostcall.callback)."
    )


private.define_abstract(call_p, _abstract)
private.define_batching(call_p, _batch)
private.define_lowering(call_p, _lower)
private.guard_batched_conditions(call_p, _refuse_batched)
private.keep_conditions(call_p)
private.keep_in_derivatives(call_p, _refuse_linearized)
private.run_in_place()
private.guard_reducers((call_p, *private.JAX_CALLBACKS), _refuse_reducers)
