"""Conditions: which nodes have a difference between the kernels of XLA and of TensorFlow.

`_compiler/ops.py` says which difference has which condition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import NodeDef

# The nodes of a function by their names.
Nodes: TypeAlias = Mapping[str, Any]
Condition: TypeAlias = Callable[[NodeDef, Nodes], bool]

FLOATS = (tf.half, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.int8, tf.int16, tf.int32, tf.int64)
UNSIGNED = (tf.uint8, tf.uint16, tf.uint32, tf.uint64)
COMPLEX = (tf.complex64, tf.complex128)


def always(node: NodeDef, nodes: Nodes) -> bool:  # noqa: ARG001 - as the others
    return True


def has_dtype(*dtypes: tf.DType, attr: str = "T") -> Condition:
    numbers: Collection[int] = {dtype.as_datatype_enum for dtype in dtypes}
    return lambda node, _: attr in node.attr and node.attr[attr].type in numbers


is_float, is_signed = has_dtype(*FLOATS), has_dtype(*INTEGERS)


def is_cast(sources: Collection[tf.DType], targets: Collection[tf.DType]) -> Condition:
    source, target = has_dtype(*sources, attr="SrcT"), has_dtype(*targets, attr="DstT")
    return lambda node, nodes: source(node, nodes) and target(node, nodes)


def may_leave_out(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether a StridedSliceGrad may have strides other than 1."""
    strides = _constant(node, 3, nodes)
    return strides is None or bool((strides != 1).any())


def may_be_square(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether the operands of a product may be the same value once XLA has simplified it."""
    if not is_signed(node, nodes):
        return False
    first, second = defs.data_inputs(node)
    if _are_alike(first, second, nodes, _DEPTH):
        return True
    return not any(_is_of_sizes(value, nodes, _DEPTH) for value in (first, second))


def has_given_indices(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether indices of a DynamicStitch may be passed to the program."""
    indices = node.input[: node.attr["N"].i]
    return any(_is_given(value, nodes) for value in indices)


def may_lack_channels(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether the sizes of a convolution's input hold a zero, or may be passed."""
    sizes = _constant(node, 0, nodes)
    return _is_given(node.input[0], nodes) if sizes is None else not sizes[1:].all()


def _is_given(value: str, nodes: Nodes) -> bool:
    """Return whether a value may be an argument, or follow from one and not only its sizes."""
    return not _is_of_sizes(value, nodes, _DEPTH)


def _is_of_sizes(value: str, nodes: Mapping[str, Any], depth: int) -> bool:
    """Return whether a value is computed of sizes and constants alone."""
    node = nodes.get(defs.source(value))
    if node is None or not depth:
        return False
    if node.op in _OF_SIZES:
        return True
    kept = _SELECTING | _SAME_ELEMENTS | _COMPUTING
    inputs = defs.data_inputs(node)
    return node.op in kept and all(_is_of_sizes(each, nodes, depth - 1) for each in inputs)


def _are_alike(first: str, second: str, nodes: Mapping[str, Any], depth: int) -> bool:
    """Return whether two values may be the same, computed once or twice."""
    one, other = (_behind_shapes(value, nodes) for value in (first, second))
    if one == other or not depth:
        return True
    node, like = (nodes.get(defs.source(value)) for value in (one, other))
    if node is None or like is None:  # an argument of the function is not another one
        return False
    if node.op != like.op or len(node.input) != len(like.input):
        return False
    if node.op == "Const":
        return bool(node.attr["value"].tensor == like.attr["value"].tensor)
    inputs = zip(node.input, like.input, strict=True)
    return all(_are_alike(*pair, nodes, depth - 1) for pair in inputs)


def _behind_shapes(value: str, nodes: Mapping[str, Any]) -> str:
    """Return the value whose elements, perhaps in another shape, a value has."""
    node = nodes.get(defs.source(value))
    while node is not None and node.op in _SAME_ELEMENTS:
        value = node.input[0]
        node = nodes.get(defs.source(value))
    return value


# The most ops before two values that are compared.
_DEPTH = 8
_SAME_ELEMENTS = frozenset(
    {"BroadcastTo", "EnsureShape", "ExpandDims", "Identity", "Reshape", "Squeeze"}
)


def may_wrap(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether a product of integers may wrap around; one of sizes does not."""
    if not is_signed(node, nodes):
        return False
    operand = _operand(node, 0, nodes)
    while operand is not None and operand.op in _SELECTING:
        operand = _operand(operand, 0, nodes)
    return operand is None or operand.op not in _OF_SIZES


# Ops of known numbers, and those whose results are some of their operand's elements.
_OF_SIZES = op_kinds.SHAPE_OPS | {"Const", "VariableShape"}
_SELECTING = frozenset({"Cast", "GatherV2", "Identity", "Slice", "StridedSlice"})
# Ops by which sizes are computed of others.
_COMPUTING = frozenset(
    {"AddV2", "ConcatV2", "FloorDiv", "FloorMod", "Maximum", "Minimum", "Mul", "Neg", "Pack"}
    | {"Prod", "Range", "Sub"}
)


def is_power_of_two(node: NodeDef, nodes: Nodes) -> bool:
    exponent = _constant(node, 1, nodes)
    if not is_signed(node, nodes) or exponent is None:
        return False
    return bool(exponent.ndim == 0 and exponent == 2)


def may_be_large_power(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether an integer's exponent may be 64 or more."""
    if not is_signed(node, nodes):
        return False
    exponent = _constant(node, 1, nodes)
    return exponent is None or bool((exponent >= 64).any())


def is_never_negative(number: int, zero: int) -> Condition:
    """Return a condition that a float is compared with 0, and one that is never less, or NaN."""

    def applies(node: NodeDef, nodes: Nodes) -> bool:
        if not is_float(node, nodes):
            return False
        limit = _constant(node, zero, nodes)
        if limit is None or (limit.astype(float) != 0).any():
            return False
        source = nodes.get(defs.source(_behind_shapes(node.input[number], nodes)))
        return source is not None and source.op in _NEVER_NEGATIVE

    return applies


# Ops whose results XLA knows not to be negative, perhaps by their operands.
_NEVER_NEGATIVE = frozenset(
    {"Abs", "ComplexAbs", "Exp", "Max", "Maximum", "Mul", "Pow", "Relu", "Relu6", "Rsqrt", "Select"}
    | {"SelectV2", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Square", "SquaredDifference", "Sum"}
)


def is_of_onednn(node: NodeDef, nodes: Nodes) -> bool:  # noqa: ARG001 - as the others
    return op_kinds.is_of_onednn(node)


def ends_at_least(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether no maximum of TensorFlow's kernel is below the least finite number."""
    # oneDNN's least number is float32's, for 16 bits too, which hold it as -infinity.
    is_narrow = has_dtype(tf.half, tf.bfloat16)(node, nodes)
    return is_float(node, nodes) and not (is_narrow and op_kinds.is_of_onednn(node))


def is_unsorted(node: NodeDef, nodes: Nodes) -> bool:  # noqa: ARG001 - as the others
    return "sorted" in node.attr and not node.attr["sorted"].b


def has_variable_paddings(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether the paddings of an op are not a constant."""
    return _constant(node, 1, nodes) is None


def _constant(node: NodeDef, position: int, nodes: Nodes) -> np.ndarray | None:
    return defs.constant(_operand(node, position, nodes))


def _operand(node: NodeDef, position: int, nodes: Nodes) -> NodeDef | None:
    """Return the node that an operand comes from; None for an argument of the function."""
    return nodes.get(defs.source(node.input[position]))
