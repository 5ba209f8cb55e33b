"""The rules of the call primitive: JAX's transformations, and calls of native code."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import dispatch as _dispatch
from jax._src import ffi as _ffi
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as _partial_eval

from hostcall._functions import native_code, specs
from hostcall._functions.native_code import FfiHandler, Native, NativeEntry, contradiction
from hostcall._functions.options import MAP, OF_BATCHES, SEQUENTIAL
from hostcall._functions.specs import ArraySpec
from hostcall.jax import _compilation, _lowering, _names, _primitive, _processes, _sharding
from hostcall.jax._control_flow import refusal
from hostcall.jax._functions import JaxFunction
from hostcall.jax._primitive import fire_and_forget_p
from hostcall_runtime import _interception, _patching, _trees, prepared


def _lower_native(
    context: _lowering.LoweringContext,
    operands: Sequence[Any],
    function: JaxFunction,
    effect: Any | None,
) -> Sequence[Any]:
    """Lower a call of native code to its custom call, or raise a TypeError if it does not fit."""
    code: Any = function.function
    _check(code, function, context)
    if isinstance(code.code, FfiHandler):
        registered(code.code)  # XLA checks its version
    name = function.given_name or _interception.name_of(code)
    ordered = effect is _primitive.ORDERED
    site = _interception.CallSite(name, function.description, code, ordered=ordered)
    entry = NativeEntry(code, function.description, site, origin=function)
    _lowering.own_with_executable(context, entry, entry.callback_id)
    return _lowering.emit_call(
        context,
        native_code.TARGET,
        operands,
        context.avals_in,
        context.avals_out,
        {"callback": entry.callback_id},
        effect,
    )


def _check(code: Native, function: JaxFunction, context: _lowering.LoweringContext) -> None:
    inputs = [specs.spec_of_array(aval) for aval in context.avals_in]
    declared = _trees.leaves(code.structure(jax.tree.unflatten(function.in_tree, inputs)))
    results = [ArraySpec(tuple(aval.shape), aval.dtype) for aval in context.avals_out]
    plain = [*map(specs.plain, declared)]
    wrong = code.complaint(inputs, declared)
    if not wrong and plain != results:
        wrong = contradiction(plain, results)
    if wrong:
        raise TypeError(f"hostcall.native: {wrong} This is {function.description}.")


TARGET = "hostcall"
_PLATFORMS = ("cpu", "cuda")

_NO_DERIVATIVE = (
    "{function}: JAX knows no derivative of a Python function. Give it one: wrap the call with "
    "jax.custom_jvp or jax.custom_vjp, or use a hostcall.callback that has a grad=."
)


def register() -> None:
    """Register the rules and the handlers that programs call; they stay, as `_patches` says."""
    for target, handler in prepared().handlers().items():
        jax.ffi.register_ffi_target(target, handler, platform="cpu", api_version=1)
    # This needs no GPU: JAX keeps the handler until there is one.
    jax.ffi.register_ffi_target(TARGET, prepared().cuda_handler(), platform="CUDA", api_version=1)
    for primitive in _primitive.CALLS:
        _register(primitive)
    if _names.has(_names.DERIVATIVES):
        ad.primitive_transposes[fire_and_forget_p] = _without_cotangents
    if _names.has(_names.REMATERIALIZATION):
        _partial_eval.partial_eval_jaxpr_custom_rules[fire_and_forget_p] = _stage


def _register(primitive: Any) -> None:
    primitive.def_effectful_abstract_eval(_abstract)
    # Without this entry JAX does not tell the lowering the devices of the program.
    _dispatch.prim_requires_devices_during_lowering.add(primitive)
    # Not cached, because two calls must not become one function: each must know its own place.
    mlir.register_lowering(primitive, _lower, cacheable=False)
    if _names.has(_names.VMAP):
        batching.primitive_batchers[primitive] = _batch
    if _names.has(_names.DERIVATIVES):
        ad.primitive_jvps[primitive] = _differentiate
        ad.primitive_transposes[primitive] = _refuse_derivative


def emit(
    context: Any,
    operands: Sequence[Any],
    callback_id: int,
    effect: Any | None,
    sharding: Any = None,
    place: _sharding.Place | None = None,
) -> Sequence[Any]:
    """Emit the custom call of one callback; csrc/runtime/handler.h defines its attributes."""
    attributes: dict[str, int | Sequence[int]] = {
        "callback": callback_id,
        "dynamic_operands": (),
        "dynamic_results": (),
        "sub_byte_operands": _lowering.pairs(context.avals_in),
        "sub_byte_results": _lowering.pairs(context.avals_out),
    }
    avals_in, avals_out = _lowering.wide(context.avals_in), _lowering.wide(context.avals_out)
    wide = _lowering.converted(context, operands, context.avals_in, avals_in)
    target = TARGET
    if place is not None:
        target, wide = _sharding.TARGET, [place.shard, *wide]
        avals_in = [jax.core.ShapedArray((), np.int32), *avals_in]
        attributes |= {"shards": place.shards, "devices": place.devices}
    call = target, wide, avals_in, avals_out, attributes, effect
    if place is not None and place.spread is not None:
        called = _processes.emit_call(context, place.spread, *call)
    else:
        called = _lowering.emit_call(context, *call, sharding)
    return _lowering.converted(context, called, avals_out, context.avals_out)


def _abstract(
    *_: Any, function: JaxFunction, result_avals: Any, effect: Any | None, **__: Any
) -> tuple[object, object]:
    return result_avals, _primitive.effects_of(function, effect)


def _lower(
    context: Any, *operands: Any, function: JaxFunction, joint: Any, **params: Any
) -> Sequence[Any]:
    platforms, effect = _lowering.platforms_of(context), params["effect"]
    _lowering.check_not_for_export(context, function.description)
    _check_platforms(platforms, function)
    if not _patching.are_installed() or not _names.has(_names.REDUCERS):
        _check_without_patches(function, effect)
    together = _sharding.can_be_made(platforms)
    is_divided = _lowering.is_divided_by_xla(context)
    if is_divided and together:
        # XLA recognizes only JAX's own callbacks, by name, as calls for one device alone.
        all_of_them = joint or _primitive.Joint()
        bound = functools.partial(
            _primitive.of(function).bind, function=function, joint=all_of_them, **params
        )
        return _sharding.lower_for_all(context, operands, bound)
    runs_once = effect is not None and function.options.call_log is None
    is_joint = joint is not None and _lowering.has_several_devices(context)
    if not together and (is_joint or (is_divided and runs_once)):
        raise _sharding.not_together(function.description, platforms)
    place = _sharding.place_of(context, joint) if together else None
    if function.is_native and platforms == ("cpu",) and not _lowering.has_several_devices(context):
        return _lower_native(context, operands, function, effect)
    target, callback_id = function.register_entry(
        effect is _primitive.ORDERED, _compilation.identity(function, context)
    )
    if _lowering.has_several_devices(context):
        target.host_function = _sharding.marking(target.host_function)
    _lowering.own_with_executable(context, target, callback_id)
    return emit(context, operands, callback_id, effect, place=place)


def _check_without_patches(function: JaxFunction, effect: Any | None) -> None:
    """Refuse calls that would make XLA end the process, or drop them, without wrapped rules."""
    reduction = _lowering.enclosing_reduction()
    if reduction is not None:
        raise refusal(function.description, reduction)
    if effect is _primitive.UNORDERED and _lowering.is_in_condition():
        raise NotImplementedError(
            f"{function.description}: it has a side effect and is called in the condition of a "
            "loop, which XLA leaves out where it knows the number of iterations. hostcall is "
            "disabled, and does not change that: call hostcall.enable() before the program is "
            "compiled."
        )


def _check_platforms(platforms: Sequence[str], function: JaxFunction) -> None:
    elsewhere = [platform for platform in platforms if platform not in _PLATFORMS]
    if elsewhere:
        raise NotImplementedError(
            f"{function.description}: the program is for {', '.join(elsewhere)}, and only programs "
            "for CPUs and NVIDIA GPUs can make such calls. Run it there, for example with "
            'jax.jit under jax.default_device(jax.devices("cpu")[0]), or use jax.pure_callback.'
        )


def _differentiate(
    primals: Any, _: Any, *, function: JaxFunction, **params: Any
) -> tuple[object, list[object]]:
    """Make a call without results as it is, since it needs no derivative; refuse any other."""
    if params["result_avals"]:
        raise ValueError(_NO_DERIVATIVE.format(function=function.description))
    return _primitive.of(function).bind(*primals, function=function, **params), []


def _refuse_derivative(*_: Any, function: JaxFunction, **__: Any) -> NoReturn:
    raise ValueError(_NO_DERIVATIVE.format(function=function.description))


def _without_cotangents(_: Any, *args: Any, **__: Any) -> list[None]:
    """Leave a fire-and-forget call out of a transposed program, as JAX does its own."""
    return [None for _ in args]


def _stage(
    is_saveable: Any, unknown: Sequence[bool], instantiated: Sequence[bool], equation: Any
) -> tuple[object, ...]:
    """Make a fire-and-forget call in the first run, in the rematerialized one, or in both."""
    # As JAX for `jax.debug.callback`: in both, unless the policy saves what is computed.
    if any(unknown):
        pairs = zip(equation.invars, instantiated, strict=True)
        return None, equation, [], [], [value for value, is_there in pairs if not is_there]
    avals = [value.aval for value in equation.invars]
    if is_saveable(equation.primitive, *avals, **equation.params) and not all(instantiated):
        return equation, None, [], [], []
    return equation, equation, [], [], []


def _batch(args: object, dims: Any, *, function: JaxFunction, **params: Any) -> object:
    method, has_results = params["vmap_method"], bool(params["result_avals"])
    if method is None and (params["effect"] is not None or not has_results):
        method = params["vmap_method"] = SEQUENTIAL  # each element has its effect, as in JAX
    is_ordered = params["effect"] is _primitive.ORDERED
    if is_ordered and has_results and method not in OF_BATCHES:
        raise ValueError(
            f"jax.vmap of an ordered call, {function.description}: the calls of a batch have no "
            "order of their own, and the program goes on with their results. Use ordered=False "
            "(stateful=False of a hostcall.callback), one call for the batch "
            '(vmap_method="expand_dims" or "broadcast_all"), or jax.lax.map or jax.lax.scan '
            "instead of vmap."
        )
    if method is None:
        raise NotImplementedError(
            f"jax.vmap of a pure call that does not say how, {function.description}. "
            'Write vmap_method="sequential" (one call for each element), "expand_dims" or '
            '"broadcast_all" (one call with a batch dimension in front); they mean what they mean '
            "in jax.pure_callback."
        )
    if method == MAP:
        return _divide(args, dims, function=function, **params)
    primitive = _primitive.of(function)
    return _ffi.ffi_batching_rule(primitive, args, dims, function=function, **params)


def _divide(
    args: Any, dims: Any, *, function: JaxFunction, result_avals: Any, **params: Any
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Make one call for the batch, which an executor divides."""
    (size,) = {a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None}
    batched = [
        jnp.expand_dims(a, 0) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(args, dims, strict=True)
    ]
    axes = jax.tree.unflatten(function.in_tree, [None if dim is None else 0 for dim in dims])
    called = _primitive.of(function).bind(
        *batched,
        function=function.divided(axes),
        result_avals=tuple(jax.core.ShapedArray((size, *a.shape), a.dtype) for a in result_avals),
        **params,
    )
    return called, [0] * len(called)


_numbers = itertools.count(1)
_NAME = b"xla._CUSTOM_CALL_TARGET"
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

# The exception for each of XLA's errors, by the first word of the message.
_EXCEPTIONS = {
    "INVALID_ARGUMENT": ValueError,
    "RESOURCE_EXHAUSTED": MemoryError,
    "UNIMPLEMENTED": NotImplementedError,
}


def check_handler(capsule: object) -> int:
    """Return the address of a handler. JAX's XLA checks its version at the first call."""
    name = _name_of(capsule)
    if name not in (None, _NAME):
        raise TypeError(
            f"hostcall.native: the capsule is named {name.decode()!r}. One with a handler of XLA's "
            f'FFI has no name, as that of jax.ffi.pycapsule, or is named "{_NAME.decode()}".'
        )
    return int(_pointer_of(capsule, name))


def run_handler(
    native: Native, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> None:
    """Run a jitted program that calls the handler of native code, which writes the results."""
    assert isinstance(native.code, FfiHandler)
    structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in results]
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
        try:
            returned = jax.block_until_ready(_program(native.code, structs)(*inputs))
        except jax.errors.JaxRuntimeError as error:
            status, _, message = str(error).partition(": ")
            raise _EXCEPTIONS.get(status, RuntimeError)(message) from error
    for array, value in zip(results, returned, strict=True):
        array[...] = value


def registered(handler: FfiHandler) -> str:
    """Return the target by which JAX's programs find a handler; register it at the first call."""
    target: str | None = handler.programs.get("target")
    if target is None:
        target = f"hostcall_handler_{next(_numbers)}"
        jax.ffi.register_ffi_target(target, handler.capsule, platform="cpu", api_version=1)
        handler.programs["target"] = target
    return target


def _program(handler: FfiHandler, structs: list[jax.ShapeDtypeStruct]) -> Callable[..., Any]:
    """Return the jitted program that calls a handler for these results."""
    target = registered(handler)
    key = tuple((struct.shape, struct.dtype) for struct in structs)
    if key not in handler.programs:
        called = jax.ffi.ffi_call(target, structs, has_side_effect=True)
        attributes = handler.values
        handler.programs[key] = jax.jit(lambda *arrays: called(*arrays, **attributes))
    program: Callable[..., Any] = handler.programs[key]
    return program
