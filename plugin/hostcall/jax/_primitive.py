"""The primitive that JAX programs call Python with, and what JAX's transformations make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from hostcall import _control
from hostcall.jax import _jax_private as private
from hostcall.jax._functions import Function

TARGET = "hostcall"

# FFI element types that XLA packs, two in a byte: they are passed in a wider one.
NARROW = {"int4": (21, "int8"), "uint4": (22, "uint8")}

_NO_DERIVATIVE = (
    "hostcall.jax.call: JAX knows no derivative of a Python function. Give it one: wrap the call "
    "with jax.custom_jvp or jax.custom_vjp, or use a hostcall.callback that has a grad=."
)

jax.ffi.register_ffi_target(
    TARGET, _control.prepared_runtime().handler(), platform="cpu", api_version=1
)

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
    narrow_args = [str(arg.dtype) for arg in args]
    narrow_results = [str(result.dtype) for result in results]
    wide = [arg.astype(_wide(arg.dtype)) for arg in args]
    called = call_p.bind(
        *wide,
        function=function,
        result_avals=tuple(private.aval_of(r.shape, _wide(r.dtype)) for r in results),
        narrow_operands=_narrow_pairs(narrow_args),
        narrow_results=_narrow_pairs(narrow_results),
        effect=effect,
        vmap_method=vmap_method,
    )
    return [value.astype(r.dtype) for value, r in zip(called, results, strict=True)]


def _wide(dtype: Any) -> Any:
    return NARROW.get(str(dtype), (0, dtype))[1]


def _narrow_pairs(names: Sequence[str]) -> tuple[int, ...]:
    return tuple(n for i, name in enumerate(names) if name in NARROW for n in (i, NARROW[name][0]))


def emit(
    context: Any,
    operands: Sequence[Any],
    number: int,
    effect: Any | None,
    narrow_operands: Sequence[int] = (),
    narrow_results: Sequence[int] = (),
    sharding: Any = None,
) -> Sequence[Any]:
    """The custom call of one callback; csrc/runtime/handler.h says what its attributes mean."""
    attributes: dict[str, int | Sequence[int]] = {
        "callback": number,
        "dynamic_operands": (),
        "dynamic_results": (),
        "narrow_operands": narrow_operands,
        "narrow_results": narrow_results,
    }
    return private.emit_call(context, TARGET, operands, attributes, effect, sharding)


def _abstract(result_avals: Any, effect: Any | None, **_: Any) -> Any:
    return result_avals, set() if effect is None else {effect}


def _lower(context: Any, *operands: Any, function: Function, **params: Any) -> Any:
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
    return lower_to(number, context, *operands, **params)


def lower_to(number: int, context: Any, *operands: Any, **params: Any) -> Any:
    """Lowers a call to one of the runtime's callback with this number, whoever keeps that."""
    narrow = params["narrow_operands"], params["narrow_results"]
    return emit(context, operands, number, params["effect"], *narrow)


def _lower_elsewhere(context: Any, *_: Any, function: Function, **__: Any) -> Any:
    platforms = ", ".join(context.module_context.platforms)
    raise NotImplementedError(
        f"hostcall.jax.call: {function.description} is called in a program for {platforms}, and "
        "callbacks run on CPUs. Run the program there, with jax.jit under "
        'jax.default_device(jax.devices("cpu")[0]), or use jax.pure_callback.'
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


private.define_abstract(call_p, _abstract)
private.define_batching(call_p, _batch)
private.define_lowering(call_p, _lower, _lower_elsewhere)
