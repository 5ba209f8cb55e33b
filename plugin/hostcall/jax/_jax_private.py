"""Every private name of JAX's that hostcall touches. No other module imports one.

A new JAX release is tried here first. Each name says what it is for, so that its successor can be
found.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from jax._src.interpreters import partial_eval as _partial_eval
from jax._src.interpreters import pxla as _pxla
from jax._src.lax import lax as _lax
from jax._src.lax import slicing as _slicing
from jax._src.lax import windowed_reductions as _windowed
from jax._src.lax.control_flow import conditionals as _conditionals
from jax._src.lax.control_flow import loops as _loops
from jax._src.lib import _jax as _jaxlib
from jax._src.lib.mlir import ir as _ir
from jax._src.lib.mlir.dialects import hlo as _hlo

from hostcall_runtime._places import PLACES

# Nothing that mypy could check against.
LoweringContext = Any


class CallEffect(_effects.Effect):  # type: ignore[misc]
    """Of a call that has to run, once, whenever that is."""

    def __str__(self) -> str:
        return "HostCall"

    def __repr__(self) -> str:  # in JAX's messages
        return "HostCall (a hostcall.jax.call that does not say pure=True)"


class OrderedCallEffect(_effects.Effect):  # type: ignore[misc]
    """Of a call that has to run, once, after all such calls that stand before it."""

    def __str__(self) -> str:
        return "OrderedHostCall"

    def __repr__(self) -> str:  # in JAX's messages
        return "OrderedHostCall (a hostcall.jax.call that does not say pure=True)"


# Those whose functions, which the user may give them, become part of their machine code.
_REDUCING = (
    *(_lax.reduce_p, _windowed.reduce_window_p, _windowed.select_and_scatter_p),
    _slicing.scatter_p,
)

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


def guard_batched_conditions(primitive: Any, refuse: Callable[..., None]) -> None:
    """Has calls with effects refused where `jax.vmap` would run them for too many elements.

    Where a condition differs from element to element, all branches run for all elements, and a loop
    runs for all of them until the last one has ended. JAX refuses io_callback there, by its name.

    Args:
      primitive: of the calls.
      refuse: called with what stands around a call, and the call's parameters.
    """
    batch_cond = _batching.fancy_primitive_batchers[_conditionals.cond_p]
    batch_while = _batching.fancy_primitive_batchers[_loops.while_p]

    def cond(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
        found = _effectful(primitive, params["branches"])
        # A branch for each platform is chosen when the program is compiled.
        if found is not None and dims[0] is not None and "branches_platforms" not in params:
            refuse("branch", **found)
        return batch_cond(axis, args, dims, **params)

    def loop(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
        found = _effectful(primitive, (params["cond_jaxpr"], params["body_jaxpr"]))
        if found is not None and _is_condition_batched(axis, dims, **params):
            refuse("loop", **found)
        return batch_while(axis, args, dims, **params)

    _batching.fancy_primitive_batchers[_conditionals.cond_p] = cond
    _batching.fancy_primitive_batchers[_loops.while_p] = loop


def keep_conditions(primitive: Any) -> None:
    """Has calls in the condition of a loop run where XLA knows without it when the loop ends, too.

    XLA then leaves out the condition, side effects or not. What comes of it is carried through the
    loop instead, which JAX does with ordered effects only.

    Args:
      primitive: of the calls.
    """
    entry = _mlir._lowerings[_loops.while_p]

    def lower(context: LoweringContext, *args: Any, **params: Any) -> Any:
        condition = params["cond_jaxpr"]
        is_kept = _effects.ordered_effects.filter_in(condition.effects)
        if is_kept or _effectful(primitive, [condition]) is None:
            return entry.rule(context, *args, **params)
        carrying = functools.partial(_loop_that_carries_its_condition, **params)
        return _mlir.lower_fun(carrying)(context, *args)

    _mlir.register_lowering(_loops.while_p, lower, inline=entry.inline)


def _loop_that_carries_its_condition(
    *args: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> list[Any]:
    """The results of a loop, by one more that has nothing to compute in its condition."""
    first = cond_nconsts + body_nconsts
    of_cond, of_body, start = args[:cond_nconsts], args[cond_nconsts:first], args[first:]

    def goes_on(carry: Sequence[Any]) -> Any:
        return _core.jaxpr_as_fun(cond_jaxpr)(*of_cond, *carry)[0]

    def body(carried: Any) -> Any:
        carry = _core.jaxpr_as_fun(body_jaxpr)(*of_body, *carried[1])
        return goes_on(carry), carry

    carried = (goes_on(start), list(start))
    return list(jax.lax.while_loop(lambda carried: carried[0], body, carried)[1])


def keep_in_derivatives(primitive: Any, refuse: Callable[..., None]) -> None:
    """Has calls with effects run as often beside a derivative of a loop as without one.

    What nothing of a turn goes into, JAX takes out of a `scan` that it linearizes, and calls once
    for all turns. A `while_loop` it runs once more.

    Args:
      primitive: of the calls.
      refuse: called with the parameters of a call that would run once more.
    """
    hoist = _loops._scan_known_hoisting
    partially = _partial_eval.custom_partial_eval_rules[_loops.while_p]

    def hoist_no_calls(known: Any, consts: Any, residuals: int) -> Any:
        if _effectful(primitive, [known]) is None:
            return hoist(known, consts, residuals)
        return known, consts, [False] * residuals, []

    def loop(trace: Any, *tracers: Any, **params: Any) -> Any:
        found = _effectful(primitive, (params["cond_jaxpr"], params["body_jaxpr"]))
        if found is not None and len({tracer.is_known() for tracer in tracers}) > 1:
            refuse(**found)
        return partially(trace, *tracers, **params)

    _loops._scan_known_hoisting = hoist_no_calls
    _partial_eval.custom_partial_eval_rules[_loops.while_p] = loop


def _effectful(primitive: Any, jaxprs: Iterable[Any]) -> dict[str, Any] | None:
    """The parameters of the first call with an effect in the programs."""
    equations = (e for e in _equations(jaxprs) if e.primitive is primitive)
    return next((dict(e.params) for e in equations if e.params["effect"] is not None), None)


def _equations(jaxprs: Iterable[Any]) -> Iterator[Any]:
    """Those of the programs and of all in them."""
    for jaxpr in jaxprs:
        for equation in jaxpr.eqns:
            yield equation
            yield from _equations(_core.jaxprs_in_params(equation.params))


def _is_condition_batched(
    axis: Any, dims: Any, cond_nconsts: int, cond_jaxpr: Any, body_nconsts: int, body_jaxpr: Any
) -> bool:
    """Whether elements of a batch may leave a loop at different times."""
    batched = [dim is not None for dim in dims]
    first = cond_nconsts + body_nconsts
    of_cond, of_body, carry = batched[:cond_nconsts], batched[cond_nconsts:first], batched[first:]
    for _ in carry:  # what one turn makes a batch of is one in the next turn
        _, carry = _batching.batch_jaxpr(body_jaxpr, axis, of_body + carry, instantiate=carry)
    _, (condition,) = _batching.batch_jaxpr(cond_jaxpr, axis, of_cond + carry, instantiate=False)
    return bool(condition)


def define_lowering(primitive: Any, rule: Callable[..., Any]) -> None:
    """Sets how a primitive is lowered, on all platforms alike."""
    # Not cached: two calls must not become one function, of which each has to know its own place.
    _mlir.register_lowering(primitive, rule, cacheable=False)


def platforms_of(context: LoweringContext) -> tuple[str, ...]:
    """What the program is for, or the part of it that is being lowered."""
    return tuple(_mlir._platforms_for_eqn(context))


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


def is_jitted(function: Any) -> bool:
    """Whether a function is one that `jax.jit` has made."""
    return hasattr(function, "trace") and hasattr(function, "lower")


def is_tracing() -> bool:
    """Whether JAX traces a function on this thread now."""
    return not _core.trace_state_clean()


def is_divided_by_xla(context: LoweringContext) -> bool:
    """Whether the program is for several devices, among which XLA divides its arrays."""
    axes = context.module_context.axis_context
    return isinstance(axes, _sharding_impls.ShardingContext) and axes.num_devices > 1


class _Kept:
    """What an executable owns; JAX takes it for a callback of its own, and never calls it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __call__(self) -> object:
        return self.value


def keep_with_executable(context: LoweringContext, value: object) -> None:
    """Lets the executable own `value`, run as `_Waiting` says, and never be stored.

    JAX has this for its own callbacks. What `add_keepalive` keeps dies earlier: JAX's fast way
    into a program holds the executable alone.
    """
    context.module_context.add_host_callback(_Kept(value))


# Of the calls of programs, from numbers on that no thread has as its own.
_streams = itertools.count(1 << 40)


class _Waiting(_pxla.ExecuteReplicated):  # type: ignore[misc]
    """What runs a program with calls on CPUs: on the thread that calls it, and to its end.

    A call may run JAX programs, and each program under way has one of XLA's few places, also
    while it waits for another one. Were such a program put behind others, those behind it could
    take all places while its call waits for one, for ever, and so could XLA's few threads be.
    XLA runs a program with callbacks at once where nothing is left to wait for. So this waits
    before XLA would, and counts the program as the first one of a stream of its own.
    """

    __slots__ = ()

    def __call__(self, *args: Any) -> Any:
        stream = _jaxlib.get_execution_stream_id()
        _jaxlib.set_execution_stream_id(next(_streams))
        try:
            with PLACES.taken():
                return super().__call__(*args)
        finally:
            _jaxlib.set_execution_stream_id(stream)

    def _add_tokens_to_inputs(self, input_bufs: Any) -> Any:
        buffers = super()._add_tokens_to_inputs(input_bufs)
        jax.block_until_ready(buffers)
        return buffers

    def _handle_token_bufs(self, token_bufs: Any, sharded_token: Any) -> None:
        # On several devices, and where another thread still reads what was given away, XLA does not
        # run it at once. Of one that fails JAX must not keep the tokens.
        sharded_token.block_until_ready()
        super()._handle_token_bufs(token_bufs, sharded_token)


def run_in_place() -> None:
    """Has programs with calls run by `_Waiting`, those with a call of ours and no others."""
    build = _pxla.UnloadedMeshExecutable.build_unsafe_call

    def build_waiting(self: Any) -> Any:
        run = build(self)
        if self.backend.platform == "cpu" and any(
            isinstance(callback, _Kept) for callback in self.host_callbacks
        ):
            run.__class__ = _Waiting
            run.has_unordered_effects = True  # or JAX would run pure ones without asking Python
        return run

    _pxla.UnloadedMeshExecutable.build_unsafe_call = build_waiting


def convert(context: LoweringContext, value: Any, aval: Any) -> Any:
    """An MLIR value as one of `aval`, of another dtype."""
    return _hlo.convert(_mlir.aval_to_ir_type(context.module_context, aval), value)


def emit_call(
    context: LoweringContext,
    target: str,
    operands: Sequence[Any],
    avals_in: Sequence[Any],
    avals_out: Sequence[Any],
    attributes: dict[str, int | Sequence[int]],
    effect: Any | None,
    sharding: Any = None,
) -> Sequence[Any]:
    """Emits a custom call of the typed FFI, and returns its results.

    Args:
      context: of the lowering.
      target: the name that the handler is registered under.
      operands: MLIR values.
      avals_in: what they are.
      avals_out: what the results are.
      attributes: ints and lists of ints; both become 64-bit ones.
      effect: None where the call may be dropped. An ordered one adds a token, the last operand and
        the last result.
      sharding: as `jax.pure_callback` takes it.
    """
    place = _callback._callback_op_sharding(
        context.module_context.axis_context, sharding, avals_out
    )
    ordered = effect is not None and is_ordered(effect)
    tokens = [_core.abstract_token] if ordered else []
    if ordered:
        operands = [*operands, context.tokens_in.get(effect)]
    inner = dataclasses.replace(
        context, avals_in=[*avals_in, *tokens], avals_out=[*avals_out, *tokens]
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
        context.set_tokens_out(context.tokens_in.update_tokens(_mlir.TokenSet({effect: token})))
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


def guard_reducers(primitives: Iterable[Any], refuse: Callable[..., None]) -> None:
    """Has callbacks refused in functions that arrays are reduced by, where XLA ends the process.

    Args:
      primitives: of the callbacks.
      refuse: called with the name of the reduction, the callback's primitive and its parameters.
    """
    for reducing in _REDUCING:
        entry = _mlir._lowerings[reducing]
        guarded = functools.partial(_lower_guarded, entry.rule, reducing, primitives, refuse)
        _mlir.register_lowering(reducing, guarded, inline=entry.inline)


def _lower_guarded(
    rule: Callable[..., Any],
    reducing: Any,
    primitives: Iterable[Any],
    refuse: Callable[..., None],
    *args: Any,
    **params: Any,
) -> Any:
    for equation in _equations(_core.jaxprs_in_params(params)):
        if equation.primitive in primitives:
            refuse(reducing.name, equation.primitive, **equation.params)
    return rule(*args, **params)


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
