"""Calls of functions that take tokens alone, which XLA in jaxlib 0.11 and 0.12 cannot compile.

It puts the body of a function in the place of a call. Where the call has no operands but a token,
that ends the process, or fails in a later pass, with ordered host calls of JAX's own as well. So
such a function gets a number beside the token, for which it has no use.
"""

from __future__ import annotations

import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import builders, custom_calls, side_effects
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.passes.inlining import is_private


def with_numbers(module: ir.Module) -> ir.Module | None:
    """A copy of a module whose functions take more than tokens; None where they do, or XLA can."""
    if not private.FAILS_FOR_TOKENS_ALONE or not _taking_tokens(module):
        return None
    copy = private.copy_of(module)
    with copy.context, ir.Location.unknown():
        functions = _taking_tokens(copy)
        number = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        for op in custom_calls.walk(copy):
            if side_effects.callee_of(op) in functions:
                _give_number(op, number)
        for function in functions.values():
            _take_number(function, number)
    return copy


def _taking_tokens(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions that only others of the module call, and with tokens alone."""
    found = {}
    for name, function in side_effects.functions(module).items():
        types = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
        if types and all(map(private.is_token, types)) and is_private(function):
            found[name] = function
    return found


def _give_number(call: ir.Operation, number: ir.Type) -> None:
    with call.location, ir.InsertionPoint(call):
        new = ir.Operation.create(
            call.name,
            results=[result.type for result in call.results],
            operands=[*call.operands, builders.constant(np.zeros((), np.int32), number)],
            attributes={name: call.attributes[name] for name in call.attributes},
        )
    for old, result in zip(call.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    call.erase()


def _take_number(function: ir.Operation, number: ir.Type) -> None:
    attributes = function.attributes
    type_ = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
    taken = ir.FunctionType.get([*type_.inputs, number], type_.results)
    attributes["function_type"] = ir.TypeAttr.get(taken)
    if private.attribute_of(function, "arg_attrs") is not None:
        of_arguments = [*ir.ArrayAttr(attributes["arg_attrs"]), ir.DictAttr.get({})]
        attributes["arg_attrs"] = ir.ArrayAttr.get(of_arguments)
    function.regions[0].blocks[0].add_argument(number, function.location)
