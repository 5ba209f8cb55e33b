"""The custom calls for errors of values: `@hostcall_raise` and `@hostcall_any`.

A program that TensorFlow has exported raises the errors that TensorFlow's kernels raise for values,
such as an index out of range. `@hostcall_raise` takes failures. A tensor<i32> is 0 while all is
well, else the number of an error in the text `errors`; each tensor<i1> is true for an error, of
which those of the first one, the second and so on come first in the text. The first failure is
raised.
`@hostcall_any` finds out whether any value is "outside" [0, limit), "equal" to the limit or
"at_least" the limit, and takes less time than a reduction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir.jaxlib_names import attribute_of, is_token

_NUMBER = "tensor<i32>"
_FOUND = "tensor<i1>"
_SEARCHED = ("i32", "i64")
# Errors in the text `errors`: a number, a status code and a message, each.
_NEXT = "\x1e"
_ERROR = re.compile(r"[1-9]\d{0,8}:([1-9]|1[0-6]):.*", re.DOTALL | re.ASCII)
_DIRECTIONS = {"outside": "GE", "equal": "EQ", "at_least": "GE"}


def problems_of(op: ir.Operation) -> Iterator[str]:
    """Yield what is wrong with an op, if it is one of these calls."""
    target = custom_calls.target_of(op)
    if target not in (custom_calls.RAISE, custom_calls.ANY):
        return
    version = attribute_of(op, "api_version")
    if not isinstance(version, ir.IntegerAttr) or version.value != 4:
        yield "api_version has to be 4 : i32, that of typed FFI calls"
        return
    yield from _check_raise(op) if target == custom_calls.RAISE else _check_any(op)


def _check_raise(op: ir.Operation) -> Iterator[str]:
    operands, results = [value.type for value in op.operands], custom_calls.result_types(op)
    failures = [str(type_) for type_ in operands if not is_token(type_)]
    tokens = [*operands[len(failures) :], *results]
    is_right = failures and {*failures} <= {_NUMBER, _FOUND} and len(tokens) in (0, 2)
    if not is_right or len(results) > 1 or not all(map(is_token, tokens)):
        yield f"it has to take {_NUMBER}s or {_FOUND}s, and may take and return a token behind them"
    if not custom_calls.has_side_effect(op):
        yield "a call that raises errors has to have has_side_effect = true"
    errors = _text_of(op, "errors")
    if errors is None or not all(map(_ERROR.fullmatch, errors.split(_NEXT))):
        yield "backend_config has to be {errors = ...}, a number, a code and a message of each"
    elif failures.count(_FOUND) > len(errors.split(_NEXT)):
        yield f"errors has to have an error for each {_FOUND}"


def _check_any(op: ir.Operation) -> Iterator[str]:
    types = [value.type for value in op.operands]
    element = custom_calls.element_of(types[0]) if types else ""
    is_right = element in _SEARCHED and custom_calls.is_array(types[0])
    results = [str(type_) for type_ in custom_calls.result_types(op)]
    if not is_right or [*map(str, types[1:])] != [f"tensor<{element}>"] or results != [_FOUND]:
        yield f"it has to take an array of i32 or i64 and one such number, and to return a {_FOUND}"
    if _text_of(op, "kind") not in _DIRECTIONS:
        yield f"backend_config has to be {{kind = ...}}, one of {', '.join(_DIRECTIONS)}"


def _text_of(op: ir.Operation, name: str) -> str | None:
    """Return the text that alone is in the configuration of a call; None if it is not there."""
    config = custom_calls.config_of(op)
    text = config.get(name)
    return str(text.value) if isinstance(text, ir.StringAttr) and len(config) == 1 else None


def write_searches(module: ir.Module) -> None:
    """Write each `@hostcall_any` as ops of StableHLO, which all devices have."""
    for op in custom_calls.walk(module):
        if custom_calls.target_of(op) == custom_calls.ANY:
            with ir.InsertionPoint(op), op.location:
                traversal.replace(op, [_reduction(op)])


def _reduction(op: ir.Operation) -> ir.Value:
    values, limit = op.operands
    kind = str(_text_of(op, "kind"))
    if kind == "outside":  # a negative number is a large one without a sign
        values, limit = _unsigned(values), _unsigned(limit)
    type_ = ir.RankedTensorType(values.type)
    limits = stablehlo.broadcast_in_dim(type_, limit, ir.DenseI64ArrayAttr.get([]))
    direction = stablehlo.ComparisonDirectionAttr.get(_DIRECTIONS[kind])
    found = stablehlo.compare(values, limits, direction)
    scalar = ir.Type.parse(_FOUND)
    no = custom_calls.constant(np.zeros((), np.bool_), scalar)
    reduce = stablehlo.ReduceOp([scalar], [found], [no], [*range(type_.rank)])
    block = reduce.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.or_(*block.arguments)])
    return reduce.results[0]


def _unsigned(value: ir.Value) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    element = ir.Type.parse(f"u{custom_calls.element_of(type_)}")
    return stablehlo.convert(ir.RankedTensorType.get(type_.shape, element), value)


def drop(module: ir.Module) -> None:
    """Drop the errors of a program, and what was computed for them alone."""
    with module.context, ir.Location.unknown():
        write_searches(module)
        for op in custom_calls.walk(module):
            if custom_calls.target_of(op) == custom_calls.RAISE:
                _drop_error(op)
        traversal.drop_unused(module)


def _drop_error(op: ir.Operation) -> None:
    last = op.operands[len(op.operands) - 1]  # the token, if it takes one
    for result in op.results:
        if isinstance(result.type, ir.TupleType):
            for use in [*result.uses]:
                traversal.replace(use.owner.operation, [last])
        else:
            result.replace_all_uses_with(last)
    op.erase()
