"""Every private name of JAX's that hostcall touches. No other module imports one.

A new JAX release is tried here first. Each name says what it is for, so that its successor can be
found.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import callback as _callback
from jax._src import core as _core
from jax._src import debugging as _debugging
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects
from jax._src import ffi as _ffi
from jax._src import sharding_impls as _sharding_impls
from jax._src import source_info_util as _source_info
from jax._src.export import _export
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir
from jax._src.lib.mlir import ir as _ir

# Nothing that mypy could check against.
LoweringContext = Any


class CallEffect(_effects.Effect):  # type: ignore[misc]
    """Of a call that has to run, once, whenever that is."""

    def __str__(self) -> str:
        return "HostCall"


class OrderedCallEffect(_effects.Effect):  # type: ignore[misc]
    """Of a call that has to run, once, after all such calls that stand before it."""

    def __str__(self) -> str:
        return "OrderedHostCall"


UNORDERED = CallEffect()
ORDERED = OrderedCallEffect()

for _kind in (CallEffect, OrderedCallEffect):
    _effects.lowerable_effects.add_type(_kind)
    _effects.control_flow_allowed_effects.add_type(_kind)
    # Not of rematerialization, which would run a call twice.
    _effects.custom_derivatives_allowed_effects.add_type(_kind)
    # JAX leaves out other effects of a loop that it differentiates, where no result needs them.
    _effects.partial_eval_kept_effects.add_type(_kind)
_effects.ordered_effects.add_type(OrderedCallEffect)
_effects.shardable_ordered_effects.add_type(OrderedCallEffect)


def is_ordered(effect: Any) -> bool:
    """Whether JAX threads a token through the programs that have the effect."""
    return bool(_effects.ordered_effects.contains(effect))


def is_lost_in_loops(effect: Any) -> bool:
    """Whether JAX leaves out calls with the effect where it differentiates a loop around them."""
    return not _effects.partial_eval_kept_effects.contains(effect)


def new_primitive(name: str, no_derivative: str) -> Any:
    """A primitive with several results, which runs as a program of its own outside of any other.

    Args:
      name: what JAX calls it.
      no_derivative: what to say to those who differentiate it.
    """
    primitive = _core.Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(_dispatch.apply_primitive, primitive))
    # Without it JAX does not tell the lowering which devices the program is for.
    _dispatch.prim_requires_devices_during_lowering.add(primitive)

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError(no_derivative)

    _ad.primitive_jvps[primitive] = refuse
    _ad.primitive_transposes[primitive] = refuse
    return primitive


def define_abstract(primitive: Any, rule: Callable[..., Any]) -> None:
    """Sets what a primitive's results and effects are, by a function of its parameters."""
    primitive.def_effectful_abstract_eval(lambda *_, **params: rule(**params))


def define_batching(primitive: Any, rule: Callable[..., Any]) -> None:
    """Sets what `jax.vmap` makes of a primitive: `rule(arguments, dimensions, **params)`."""
    _batching.primitive_batchers[primitive] = rule


def batched_as_pure_callback(primitive: Any, args: Any, dims: Any, **params: Any) -> Any:
    """The rule of `jax.pure_callback` and `jax.ffi.ffi_call`, by params `vmap_method`."""
    return _ffi.ffi_batching_rule(primitive, args, dims, **params)


def define_lowering(
    primitive: Any, rule: Callable[..., Any], elsewhere: Callable[..., Any]
) -> None:
    """Sets how a primitive is lowered for CPUs, and what is done on all other platforms."""
    # Not cached: two calls must not become one function, of which each has to know its own place.
    _mlir.register_lowering(primitive, rule, platform="cpu", cacheable=False)
    _mlir.register_lowering(primitive, elsewhere, cacheable=False)


def check_dtype(dtype: Any) -> None:
    """Raises a ValueError for a dtype that JAX, as it is set up, does not have."""
    wanted = np.dtype(dtype)
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise ValueError(
            f"a result is declared as {wanted.name}, which JAX only has with jax_enable_x64: write "
            'jax.config.update("jax_enable_x64", True) at the start of the program, or declare '
            f"{jax.dtypes.canonicalize_dtype(wanted).name}."
        )


def aval_of(shape: Sequence[Any], dtype: Any) -> Any:
    """What JAX knows of an array of this shape and dtype."""
    return _core.ShapedArray(shape, dtype)


def is_tracing() -> bool:
    """Whether JAX traces a function on this thread now."""
    return not _core.trace_state_clean()


def is_divided_by_xla(context: LoweringContext) -> bool:
    """Whether the program is for several devices, among which XLA divides its arrays."""
    axes = context.module_context.axis_context
    return isinstance(axes, _sharding_impls.ShardingContext) and axes.num_devices > 1


def keep_with_executable(context: LoweringContext, value: object) -> None:
    """Lets the executable own `value`, and never be stored for another process.

    JAX has this for its own callbacks. What `add_keepalive` keeps dies earlier: JAX's fast way
    into a program holds the executable alone.
    """
    context.module_context.add_host_callback(lambda: value)


def emit_call(
    context: LoweringContext,
    target: str,
    operands: Sequence[Any],
    attributes: dict[str, int | Sequence[int]],
    effect: Any | None,
    sharding: Any = None,
) -> Sequence[Any]:
    """Emits a custom call of the typed FFI, and returns its results.

    Args:
      context: of the lowering; its `avals_out` are those of the results.
      target: the name that the handler is registered under.
      operands: MLIR values.
      attributes: ints and lists of ints; both become 64-bit ones.
      effect: None where the call may be dropped. An ordered one adds a token, the last operand and
        the last result.
      sharding: as `jax.pure_callback` takes it.
    """
    place = _callback._callback_op_sharding(
        context.module_context.axis_context, sharding, context.avals_out
    )
    ordered = effect is not None and is_ordered(effect)
    inner = context
    if ordered:
        operands = [*operands, context.tokens_in.get(effect)]
        inner = dataclasses.replace(
            context,
            avals_in=[*context.avals_in, _core.abstract_token],
            avals_out=[*context.avals_out, _core.abstract_token],
        )
    lower = _ffi.build_ffi_lowering_function(
        target,
        has_side_effect=effect is not None,
        backend_config={name: _attribute(value) for name, value in attributes.items()},
    )
    op = lower(inner, *operands)
    if place is not None:
        _mlir.set_sharding(context.module_context, op, _with_token(place, ordered, context))
    results = list(op.results)
    if ordered:
        token = results.pop()
        tokens = context.tokens_in.update_tokens(_mlir.TokenSet({effect: token}))
        context.set_tokens_out(tokens)
    return results


def _with_token(place: Any, ordered: bool, context: LoweringContext) -> Any:
    """The sharding of the results with one for the token behind them."""
    if not ordered or not context.avals_out or not isinstance(place, _callback.SdyArrayList):
        return place
    ids = place.shardings[0].logical_device_ids
    token = _callback.SdyArray(mesh_shape=(), dim_shardings=(), logical_device_ids=ids)
    return _callback.SdyArrayList((*place.shardings, token))


def _attribute(value: int | Sequence[int]) -> Any:
    if isinstance(value, int):
        return _ir.IntegerAttr.get(_ir.IntegerType.get_signless(64), value)
    return _ir.DenseI64ArrayAttr.get(list(value))


@dataclasses.dataclass(frozen=True)
class JaxCallback:
    """One of JAX's own callbacks, as it stands in a program.

    Attributes:
      function: from flat arrays to flat results, as JAX calls it.
      user_function: what it calls of the user's.
      kind: what the user has called.
      effect: as in `emit_call`.
      sharding: as `jax.pure_callback` takes it.
    """

    function: Callable[..., Any]
    user_function: Any
    kind: str
    effect: Any | None
    sharding: Any = None


def _pure(**params: Any) -> JaxCallback:
    sharding = params.pop("sharding")
    function = functools.partial(_callback.pure_callback_impl, sharding=None, **params)
    user_function = params["callback"].callback_func
    return JaxCallback(function, user_function, "jax.pure_callback", None, sharding)


def _io(**params: Any) -> JaxCallback:
    sharding = params.pop("sharding")
    function = functools.partial(_callback.io_callback_impl, sharding=None, **params)
    effect = _callback._OrderedIOEffect if params["ordered"] else _callback._IOEffect
    user_function = params["callback"].callback_func
    return JaxCallback(function, user_function, "jax.experimental.io_callback", effect, sharding)


def _debug(**params: Any) -> JaxCallback:
    function = functools.partial(_debugging.debug_callback_impl, **params)
    return JaxCallback(function, params["callback"], "jax.debug.callback", params["effect"])


def _print(**params: Any) -> JaxCallback:
    function = functools.partial(_debugging.debug_print_impl, **params)
    ordered = params["ordered"]
    effect = _debugging.ordered_debug_effect if ordered else _debugging.debug_effect
    return JaxCallback(function, repr(params["fmt"]), "jax.debug.print", effect)


# How to read the parameters of each of JAX's primitives that call Python.
JAX_CALLBACKS: dict[Any, Callable[..., JaxCallback]] = {
    _callback.pure_callback_p: _pure,
    _callback.io_callback_p: _io,
    _debugging.debug_callback_p: _debug,
    _debugging.debug_print_p: _print,
}


def line_of(context: LoweringContext) -> str:
    """`file:line` of the user's code that has made what is being lowered, or ""."""
    frame = _source_info.user_frame(context.traceback)
    return "" if frame is None else f"{frame.file_name}:{frame.start_line}"


def export(jitted: Any, rules: dict[Any, Callable[..., Any]], target: str) -> Callable[..., Any]:
    """`jax.export.export` for CPUs, with lowering rules of our own.

    Args:
      jitted: what `jax.jit` has made.
      rules: a lowering rule for each primitive that is not to be lowered as JAX does it.
      target: of the custom calls that those emit.
    """
    return _export._export_internal(  # type: ignore[no-any-return]
        jitted,
        platforms=("cpu",),
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(target)],
        override_lowering_rules=tuple(rules.items()),
    )


def has_effects(exported: Any) -> bool:
    """Whether an exported function does more than to return its results."""
    return bool(exported.ordered_effects or exported.unordered_effects)


def has_ordered_effects(exported: Any) -> bool:
    """Whether a token goes through it."""
    return bool(exported.ordered_effects)


def run_in_tensorflow(exported: Any, tensors: Sequence[Any]) -> list[Any]:
    """The results of an exported function, an op of TensorFlow's, for flat tensors."""
    return list(_jax2tf()._run_exported_as_tf(tensors, exported))


def as_jax_tensor(value: Any) -> tuple[Any, Any]:
    """A tensor of a dtype that JAX has, as it is set up, and that dtype."""
    tensor, dtype = _jax2tf()._tfval_to_tensor_jax_dtype(value)
    return tensor, dtype


def _jax2tf() -> Any:
    from jax.experimental.jax2tf import jax2tf  # imports TensorFlow, which call() does not need

    return jax2tf
