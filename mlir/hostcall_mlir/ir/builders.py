"""Ops that a program gets beside its own: constants, and true sizes of arrays of bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import jaxlib_names as private


def constant(value: np.ndarray, type_: ir.Type) -> ir.Value:
    """A constant at the current insertion point.

    Args:
      value: of the type's shape and dtype.
      type_: of a tensor.
    """
    element = ir.RankedTensorType(type_).element_type
    if isinstance(element, ir.IntegerType) and 1 < element.width < 8:
        # MLIR keeps such numbers in bytes, and takes no array of them.
        wide, stored = ("i8", np.int8) if element.is_signless else ("ui8", np.uint8)
        wide_type = ir.RankedTensorType.get(value.shape, ir.Type.parse(wide))
        return converted(constant(value.astype(stored), wide_type), type_)
    if value.dtype.kind == "V":  # of ml_dtypes, which Python's buffers know nothing of
        value = value.view({1: np.uint8, 2: np.uint16}[value.dtype.itemsize])
    return _create("constant", type_, [], {"value": private.elements_attribute(value, element)})


def converted(value: ir.Value, type_: ir.Type) -> ir.Value:
    """A value with another element type."""
    return _create("convert", type_, [value], {})


def true_size(value: ir.Value, dim: int) -> ir.Value:
    """The size that a dimension has at run time, a tensor<i32>."""
    return _create("get_dimension_size", _scalar(), [value], {"dimension": _number(dim)})


def padded(value: ir.Value) -> ir.Value:
    """A value of the bounds' sizes; what lies behind the true ones is arbitrary."""
    for dim, bound in private.bounds_of(value.type).items():
        size = constant(np.array(bound, np.int32), _scalar())
        type_ = _with_size(ir.RankedTensorType(value.type), dim, bound)
        value = with_size(value, dim, size, type_)
    return value


def with_size(value: ir.Value, dim: int, size: ir.Value, type_: ir.Type) -> ir.Value:
    """A value with another true size of a dimension, a tensor<i32>; `type_` is its type then."""
    return _create("set_dimension_size", type_, [value, size], {"dimension": _number(dim)})


def element(value: ir.Value, index: int) -> ir.Value:
    """One of the values of a tuple."""
    type_ = ir.TupleType(value.type).get_type(index)
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), index)
    return _create("get_tuple_element", type_, [value], {"index": number})


def _with_size(type_: ir.RankedTensorType, dim: int, size: int) -> ir.Type:
    shape = [*type_.shape]
    shape[dim] = size
    left = private.bounds_of(type_)
    del left[dim]
    encoding = private.bounds_attribute(left, type_.rank) if left else None
    return ir.RankedTensorType.get(shape, type_.element_type, encoding)


def _scalar() -> ir.Type:
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))


def _number(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _create(
    name: str, type_: ir.Type, operands: Sequence[ir.Value], attributes: Mapping[str, ir.Attribute]
) -> ir.Value:
    return ir.Operation.create(
        f"stablehlo.{name}", [type_], operands, attributes=dict(attributes)
    ).result
