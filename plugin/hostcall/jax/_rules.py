"""What JAX's transformations and its compiler make of a call: the rules of its primitive."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import dispatch as _dispatch
from jax._src import ffi as _ffi
from jax.interpreters import ad, batching, mlir

from hostcall._functions.native import entries
from hostcall._functions.vmap_methods import MAP, OF_BATCHES
from hostcall.jax import (
    _disk_cache,
    _effects,
    _joint,
    _lowering,
    _names,
    _native,
    _reducers,
    _sub_byte,
    _values,
)
from hostcall.jax._functions import Function, divided
from hostcall.jax._primitive import call_p
from hostcall_runtime import _patching, prepared

TARGET = "hostcall"

_PLATFORMS = ("cpu", "cuda")

_NO_DERIVATIVE = (
    "hostcall.jax.call: JAX knows no derivative of a Python function. Give it one: wrap the call "
    "with jax.custom_jvp or jax.custom_vjp, or use a hostcall.callback that has a grad=."
)


def register() -> None:
    """Registers the rules, and the handler that compiled programs call.

    These are entries of hostcall's own primitive, which no other program has. They stay where
    hostcall is disabled.
    """
    jax.ffi.register_ffi_target(TARGET, prepared().handler(), platform="cpu", api_version=1)
    joint = prepared().joint_handler()
    jax.ffi.register_ffi_target(_joint.TARGET, joint, platform="cpu", api_version=1)
    native = prepared().native_handler()
    jax.ffi.register_ffi_target(entries.TARGET, native, platform="cpu", api_version=1)
    for name, handler in prepared().early_handlers().items():
        jax.ffi.register_ffi_target(name, handler, platform="cpu", api_version=1)
    # Needs no GPU: JAX keeps it until there is one.
    jax.ffi.register_ffi_target(TARGET, prepared().cuda_handler(), platform="CUDA", api_version=1)
    call_p.def_effectful_abstract_eval(_abstract)
    # Without it JAX does not tell the lowering which devices the program is for.
    _dispatch.prim_requires_devices_during_lowering.add(call_p)
    # Not cached: two calls must not become one function, of which each has to know its own place.
    mlir.register_lowering(call_p, _lower, cacheable=False)
    if _names.has(_names.VMAP):
        batching.primitive_batchers[call_p] = _batch
    if _names.has(_names.DERIVATIVES):
        ad.primitive_jvps[call_p] = _differentiate
        ad.primitive_transposes[call_p] = _refuse_derivative


def emit(
    context: Any,
    operands: Sequence[Any],
    callback_id: int,
    effect: Any | None,
    sharding: Any = None,
    place: _joint.Place | None = None,
) -> Sequence[Any]:
    """The custom call of one callback; csrc/runtime/handler.h says what its attributes mean."""
    attributes: dict[str, int | Sequence[int]] = {
        "callback": callback_id,
        "dynamic_operands": (),
        "dynamic_results": (),
        "sub_byte_operands": _sub_byte.pairs(context.avals_in),
        "sub_byte_results": _sub_byte.pairs(context.avals_out),
    }
    avals_in, avals_out = _sub_byte.wide(context.avals_in), _sub_byte.wide(context.avals_out)
    wide = _sub_byte.converted(context, operands, context.avals_in, avals_in)
    target = TARGET
    if place is not None:
        target, wide = _joint.TARGET, [place.shard, *wide]
        avals_in = [_values.aval_of((), np.int32), *avals_in]
        attributes |= {"shards": place.shards, "devices": place.devices}
    called = _lowering.emit_call(
        context, target, wide, avals_in, avals_out, attributes, effect, sharding
    )
    return _sub_byte.converted(context, called, avals_out, context.avals_out)


def _abstract(*_: Any, result_avals: Any, effect: Any | None, **__: Any) -> Any:
    return result_avals, set() if effect is None else {effect}


def _lower(
    context: Any, *operands: Any, function: Function, joint: Any, **params: Any
) -> Sequence[Any]:
    platforms, effect = _lowering.platforms_of(context), params["effect"]
    _check_platforms(platforms, function)
    if not _patching.are_installed() or not _names.has(_names.REDUCERS):
        _check_without_patches(function, effect)
    together = _joint.can_be_made(platforms)
    if _lowering.is_divided_by_xla(context):
        # XLA knows by the names of JAX's own callbacks that these are for one device alone.
        if effect is not None and joint is None:
            raise _joint.nothing_said(function.description)
        if together:
            bound = functools.partial(call_p.bind, function=function, joint=(), **params)
            return _joint.lower_for_all(context, operands, bound)
    place = _joint.place_of(context, joint) if together else None
    if joint is not None and not together and _lowering.has_several_devices(context):
        raise _joint.not_together(function.description, platforms)
    if function.is_native and platforms == ("cpu",) and not _lowering.has_several_devices(context):
        return _native.lower(context, operands, function, effect)
    target, callback_id = function.register(
        effect is _effects.ORDERED, _disk_cache.identity(function, context)
    )
    if _lowering.has_several_devices(context):
        target.host_function = _joint.marking(target.host_function)
    _lowering.own_with_executable(context, target, callback_id)
    return emit(context, operands, callback_id, effect, place=place)


def _check_without_patches(function: Function, effect: Any | None) -> None:
    """Refuses what XLA would end the process for, or leave out, as JAX's rules are not wrapped."""
    reduction = _lowering.enclosing_reduction()
    if reduction is not None:
        raise _reducers.refusal(function.description, reduction)
    if effect is _effects.UNORDERED and _lowering.is_in_condition():
        raise NotImplementedError(
            f"{function.description}: it has a side effect and is called in the condition of a "
            "loop, which XLA leaves out where it knows the number of iterations. hostcall is "
            "disabled, and does not change that: call hostcall.enable() before the program is "
            "compiled."
        )


def _check_platforms(platforms: Sequence[str], function: Function) -> None:
    elsewhere = [platform for platform in platforms if platform not in _PLATFORMS]
    if elsewhere:
        raise NotImplementedError(
            f"{function.description}: the program is for {', '.join(elsewhere)}, and only programs "
            "for CPUs and NVIDIA GPUs can make such calls. Run it there, with jax.jit under "
            'jax.default_device(jax.devices("cpu")[0]) say, or use jax.pure_callback.'
        )


def _differentiate(primals: Any, _: Any, **params: Any) -> Any:
    """Makes a call without results as it is, since there is nothing to have a derivative."""
    if params["result_avals"]:
        raise ValueError(_NO_DERIVATIVE)
    return call_p.bind(*primals, **params), []


def _refuse_derivative(*_: Any, **__: Any) -> Any:
    raise ValueError(_NO_DERIVATIVE)


def _batch(args: Any, dims: Any, **params: Any) -> Any:
    function, method = params["function"], params["vmap_method"]
    if params["effect"] is _effects.ORDERED and method not in OF_BATCHES:
        raise ValueError(
            f"jax.vmap of an ordered call, {function.description}: there is no one order of the "
            "calls of a batch. Use ordered=False (stateful=False of a hostcall.callback), one call "
            'for the batch (vmap_method="expand_dims" or "broadcast_all"), or jax.lax.map or '
            "jax.lax.scan instead of vmap."
        )
    if method is None:
        raise NotImplementedError(
            f"jax.vmap of a call that does not say what becomes of it, {function.description}. "
            'Write vmap_method="sequential" (one call for each element), "expand_dims" or '
            '"broadcast_all" (one call with a batch dimension in front); they mean what they mean '
            "in jax.pure_callback."
        )
    if method == MAP:
        return _divide(args, dims, **params)
    return _ffi.ffi_batching_rule(call_p, args, dims, **params)


def _divide(args: Any, dims: Any, *, function: Function, result_avals: Any, **params: Any) -> Any:
    """One call for the batch, which an executor divides."""
    (size,) = {a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None}
    batched = [
        jnp.expand_dims(a, 0) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(args, dims, strict=True)
    ]
    called = call_p.bind(
        *batched,
        function=divided(function, tuple(dim is not None for dim in dims)),
        result_avals=tuple(_values.aval_of((size, *a.shape), a.dtype) for a in result_avals),
        **params,
    )
    return called, [0] * len(called)
