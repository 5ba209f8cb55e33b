"""Native code in JAX programs for one CPU, which call it without Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from hostcall._functions import nests, specs
from hostcall._functions.native import entries
from hostcall._functions.native.entries import NativeEntry
from hostcall._functions.native.ffi_handlers import FfiHandler
from hostcall._functions.native.native_code import NativeCode, contradiction
from hostcall._functions.specs import ArraySpec
from hostcall.jax import _effects, _handlers, _lowering
from hostcall.jax._functions import Function
from hostcall_runtime import _interception


def lower(
    context: _lowering.LoweringContext,
    operands: Sequence[Any],
    function: Function,
    effect: Any | None,
) -> Sequence[Any]:
    """The custom call of native code.

    Raises:
      TypeError: when the code does not take the operands or make the results.
      jax.errors.JaxRuntimeError: for a handler of another version of XLA's FFI than JAX's.
    """
    code: Any = function.function
    _check(code, function, context)
    if isinstance(code.code, FfiHandler):
        _handlers.registered(code.code)  # XLA looks at its version
    name = function.given_name or _interception.name_of(code)
    ordered = effect is _effects.ORDERED
    site = _interception.Site(name, function.description, code, ordered=ordered)
    entry = NativeEntry(code, function.description, site, origin=function)
    _lowering.own_with_executable(context, entry, entry.callback_id)
    return _lowering.emit_call(
        context,
        entries.TARGET,
        operands,
        context.avals_in,
        context.avals_out,
        {"callback": entry.callback_id},
        effect,
    )


def _check(code: NativeCode, function: Function, context: _lowering.LoweringContext) -> None:
    inputs = [specs.of_array(aval) for aval in context.avals_in]
    declared = nests.flatten(code.structure(jax.tree.unflatten(function.in_tree, inputs)))
    results = [ArraySpec(tuple(aval.shape), aval.dtype) for aval in context.avals_out]
    plain = [*map(specs.plain, declared)]
    wrong = code.complaint(inputs, declared)
    if not wrong and plain != results:
        wrong = contradiction(plain, results)
    if wrong:
        raise TypeError(f"hostcall.native: {wrong} This is {function.description}.")
