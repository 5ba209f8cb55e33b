"""The lowering of a call to a custom call in MLIR."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import jax
from jax._src import callback as _callback
from jax._src import core as _core
from jax._src import ffi as _ffi
from jax._src.interpreters import mlir as _mlir
from jax._src.lib.mlir import ir as _ir
from jax._src.lib.mlir.dialects import hlo as _hlo
from jax.interpreters import mlir

from hostcall._functions.native_code import NativeEntry
from hostcall.jax import _drift, _primitive
from hostcall_runtime import Target
from hostcall_runtime._errors import NotExportableError
from hostcall_runtime._registry import DTYPES

# JAX's LoweringRuleContext. JAX's package has no types.
LoweringContext = Any

# The operations that XLA compiles together with a function of the user's.
_REDUCING = {"reduce", "reduce_window", "scatter", "select_and_scatter"}


def platforms_of(context: LoweringContext) -> tuple[str, ...]:
    """Return the platforms of the program, or of the part of it that is being lowered."""
    return tuple(_mlir._platforms_for_eqn(context))


def is_divided_by_xla(context: LoweringContext) -> bool:
    """Return whether XLA divides the program's arrays among several devices."""
    axes = context.module_context.axis_context
    return isinstance(axes, mlir.ShardingContext) and axes.num_devices > 1


def has_several_devices(context: LoweringContext) -> bool:
    """Return whether the program is for several devices, whether or not XLA divides its arrays."""
    axes = context.module_context.axis_context
    if isinstance(axes, mlir.SPMDAxisContext):
        return bool(axes.mesh.size > 1)
    return is_divided_by_xla(context)


def enclosing_reduction() -> str | None:
    """Return the reduction whose function is being lowered, such as "reduce_window", or None."""
    names = (op.name.removeprefix("stablehlo.") for op, _ in _enclosing_ops())
    return next((name for name in names if name in _REDUCING), None)


def is_in_condition() -> bool:
    """Return whether the condition of a loop is being lowered."""
    return any(op.name == "stablehlo.while" and region == 0 for op, region in _enclosing_ops())


def _enclosing_ops() -> Iterator[tuple[Any, int]]:
    """Yield the operations around the insertion point, innermost first, each with its region."""
    block = _ir.InsertionPoint.current.block
    while block is not None:
        op = block.owner.operation
        yield op, list(op.regions).index(block.region)
        block = op.block if _drift.parent_of(op) is not None else None


_EXPORT = (
    "Export the program with hostcall, which writes down where functions are found:\n\n"
    "    hostcall.export(hostcall.jax.to_tf(program), spec).save(folder)\n"
    "    program = hostcall_mlir.load(folder)"
)


def check_not_for_export(context: LoweringContext, called: str) -> None:
    """Raise a NotExportableError for a call in a program that `jax.export` or `jax2tf` takes."""
    # Where JAX does not tell the lowering, it raises an error of its own.
    if getattr(context.module_context.lowering_parameters, "for_export", False):
        raise NotExportableError(
            f"{called}: neither jax.export nor jax2tf takes a program that calls Python, since no "
            "other process has this function. In TensorFlow, in this process, call "
            f"hostcall.jax.to_tf(program). {_EXPORT}"
        )


class Owned:
    """An object that an executable owns. JAX takes it for its own callback, and never calls it."""

    def __init__(
        self, target: Target | NativeEntry, callback_id: int, several_devices: bool
    ) -> None:
        self.target = target
        self.callback_id = callback_id
        self.several_devices = several_devices

    def __call__(self) -> object:
        return self.target

    def __reduce__(self) -> NoReturn:
        raise NotExportableError(
            "a compiled program that calls Python cannot be serialized: it knows the function by a "
            "number of this process, which no other process has. This is "
            f"{self.target.origin.description}. Compile the program in the process that runs it. "
            f"{_EXPORT}"
        )


def own_with_executable(
    context: LoweringContext, target: Target | NativeEntry, callback_id: int
) -> None:
    """Give a target to the executable that the program becomes, which owns it from then on."""
    # JAX does this for its own callbacks. Objects of `add_keepalive` die earlier: JAX's fast path
    # into a program holds the executable alone.
    context.module_context.add_host_callback(
        Owned(target, callback_id, has_several_devices(context))
    )


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
    """Emit a custom call of the typed FFI, and return its results."""
    # Attributes become 64-bit ones. XLA may drop a call without an effect. An ordered effect adds a
    # token, the last operand and result. The sharding is as `jax.pure_callback` takes it.
    place = _callback._callback_op_sharding(
        context.module_context.axis_context, sharding, avals_out
    )
    ordered = effect is not None and _primitive.is_ordered(effect)
    tokens = [_core.abstract_token] if ordered else []
    if ordered:
        operands = [*operands, context.tokens_in.get(effect)]
    inner = dataclasses.replace(
        context, avals_in=[*avals_in, *tokens], avals_out=[*avals_out, *tokens]
    )
    lower = _ffi.build_ffi_lowering_function(
        target,
        has_side_effect=effect is not None,
        backend_config={
            name: _ir.IntegerAttr.get(_ir.IntegerType.get_signless(64), value)
            if isinstance(value, int)
            else _ir.DenseI64ArrayAttr.get(list(value))
            for name, value in attributes.items()
        },
    )
    op = lower(inner, *operands)
    if place is not None:
        _drift.set_sharding(context.module_context, op, _with_token(place, ordered, avals_out))
    results = list(op.results)
    if ordered:
        token = results.pop()
        context.set_tokens_out(context.tokens_in.update_tokens(mlir.TokenSet({effect: token})))
    return results


def _with_token(place: Any, ordered: bool, avals_out: Sequence[Any]) -> object:
    """Return the sharding of the results, with one more for the token behind them."""
    if not ordered or not avals_out or not isinstance(place, _callback.SdyArrayList):
        return place
    ids = place.shardings[0].logical_device_ids
    token = _callback.SdyArray(mesh_shape=(), dim_shardings=(), logical_device_ids=ids)
    return _callback.SdyArrayList((*place.shardings, token))


# The buffer dtype of each sub-byte dtype, which holds the same values.
_WIDE = {
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
    "float4_e2m1fn": "float8_e4m3fn",
}

_CODES = {name: code for code, _, name in DTYPES}  # the runtime's codes of the dtypes


def pairs(avals: Sequence[Any]) -> tuple[int, ...]:
    """Return the attribute `sub_byte_operands` or `sub_byte_results`: indices and dtype codes."""
    names = [str(aval.dtype) for aval in avals]
    return tuple(n for i, name in enumerate(names) if name in _WIDE for n in (i, _CODES[name]))


def wide(avals: Sequence[Any]) -> list[Any]:
    """Return the abstract values of the buffers that the call takes or returns."""
    dtypes = [_WIDE.get(str(aval.dtype), aval.dtype) for aval in avals]
    return [
        jax.core.ShapedArray(aval.shape, dtype) for aval, dtype in zip(avals, dtypes, strict=True)
    ]


def converted(
    context: Any, values: Sequence[Any], old: Sequence[Any], new: Sequence[Any]
) -> list[Any]:
    """Convert MLIR values of the abstract values `old` to the abstract values `new`."""
    return [
        value
        if aval.dtype == other.dtype
        else _hlo.convert(_drift.type_of(context.module_context, other), value)
        for value, aval, other in zip(values, old, new, strict=True)
    ]
