"""Which shapes ops demand of what they take: any other is an error of TensorFlow's kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from hostcall._tf import op_kinds, resources
from hostcall._tf.types import Operation

UNKNOWN = tf.TensorShape(None)

# Those whose first result has the shape of their first input, which may not be their only one.
ELEMENTWISE = frozenset(
    {
        *("Abs", "Acos", "Acosh", "Angle", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil"),
        *("CheckNumerics", "CheckNumericsV2", "ComplexAbs", "Conj", "Cos", "Cosh", "Digamma"),
        *("Elu", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Floor", "Identity", "Imag", "Inv"),
        *("Invert", "IsFinite", "IsInf", "IsNan", "LeakyRelu", "Lgamma", "Log", "Log1p"),
        *("LogicalNot", "Ndtri", "Neg", "OnesLike", "PreventGradient", "Real", "Reciprocal"),
        *("Relu", "Relu6", "Rint", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Sinh"),
        *("Snapshot", "Softplus", "Softsign", "Sqrt", "Square", "StopGradient", "Tan", "Tanh"),
        "ZerosLike",
    }
)
_KEEP_SHAPE = ELEMENTWISE | {
    *("Cumprod", "Cumsum", "DebugIdentityV2", "EnsureShape", "LogSoftmax", "ReverseV2", "Roll"),
    "Softmax",
}

# The values that variables of known shape take. They are compared when the op runs.
_ASSIGNMENTS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_OPTIMIZERS = "ResourceApply"
_STEPS = frozenset({"grad", "delta"})

_RESHAPE = "Reshape"


class Taken(NamedTuple):
    """A tensor that an op of a graph takes.

    Attributes:
      op: the op.
      number: of the op's input.
      results: the shapes of the op's results.
    """

    op: Operation
    number: int
    results: Sequence[tf.TensorShape]


def concern(op: Operation) -> bool:
    """Whether an op may demand anything."""
    kind = op.type
    known = kind in _KEEP_SHAPE or kind in _RULES or kind in _ASSIGNMENTS
    return known or kind == _RESHAPE or kind.startswith(_OPTIMIZERS)


def keeps_shape(taken: Taken) -> bool:
    """Whether a tensor has the shape of the op's first result, whatever that is."""
    return taken.number == 0 and taken.op.type in _KEEP_SHAPE


def shape_of(taken: Taken) -> tf.TensorShape:
    """The shape that an op demands of a tensor that it takes, as far as it is known."""
    if keeps_shape(taken):
        return taken.results[0]
    rule = _RULES.get(taken.op.type)
    return _of_new_value(taken) if rule is None else rule(taken)


def count_of(taken: Taken) -> int | None:
    """The number of elements that it demands, or None where it takes any."""
    if taken.op.type != _RESHAPE or taken.number != 0:
        return None
    count: int | None = taken.results[0].num_elements()
    return count


def _of_new_value(taken: Taken) -> tf.TensorShape:
    """Of what is assigned to a variable, added to it or taken for a step of an optimizer."""
    op, index = taken.op, taken.number
    if op.type in _ASSIGNMENTS:
        checks = op.type != "AssignVariableOp" or op.get_attr("validate_shape")
        return resources.shape_of_variable(op.inputs[0]) if index == 1 and checks else UNKNOWN
    if op.type.startswith(_OPTIMIZERS) and index > 0:
        arguments = op_kinds.op_def(op.type).input_arg
        if len(arguments) == len(op.inputs) and arguments[index].name in _STEPS:
            return resources.shape_of_variable(op.inputs[0])
    return UNKNOWN


def _of_stacked(taken: Taken) -> tf.TensorShape:
    axis = taken.op.get_attr("axis")
    if not _has_axis(taken.results[0], axis):
        return UNKNOWN
    sizes = taken.results[0].as_list()
    del sizes[axis]
    return tf.TensorShape(sizes)


def _of_unstacked(taken: Taken) -> tf.TensorShape:
    merged = UNKNOWN
    for result in taken.results:
        if not merged.is_compatible_with(result):
            return UNKNOWN
        merged = merged.merge_with(result)
    if merged.rank is None:
        return UNKNOWN
    sizes = merged.as_list()
    axis = taken.op.get_attr("axis")
    sizes.insert(axis if axis >= 0 else len(sizes) + 1 + axis, len(taken.results))
    return tf.TensorShape(sizes)


def _of_joined(taken: Taken) -> tf.TensorShape:
    parts, axis = list(taken.op.inputs[:-1]), _constant(taken.op.inputs[-1])
    if axis is None or not _has_axis(taken.results[0], axis) or taken.number >= len(parts):
        return UNKNOWN
    del parts[taken.number]
    sizes = taken.results[0].as_list()
    for part in parts:
        size = part.shape[axis] if _has_axis(part.shape, axis) else None
        sizes[axis] = None if None in (size, sizes[axis]) else sizes[axis] - size
    return UNKNOWN if (sizes[axis] or 0) < 0 else tf.TensorShape(sizes)


def _of_gathered(taken: Taken) -> tf.TensorShape:
    """Of what is gathered from, or of the indices; the result has the sizes of both."""
    op, result = taken.op, taken.results[0]
    axis = _constant(op.inputs[2])
    if axis is None or op.get_attr("batch_dims") or result.rank is None or taken.number > 1:
        return UNKNOWN
    other = op.inputs[1 - taken.number].shape.rank
    if other is None:
        return UNKNOWN
    count = result.rank + 1 - other if taken.number == 1 else other  # of dimensions of the indices
    rank = result.rank + 1 - count  # of what is gathered from
    if count < 0 or not -rank <= axis < rank:
        return UNKNOWN
    axis %= rank
    sizes = result.as_list()
    if taken.number == 1:
        return tf.TensorShape(sizes[axis : axis + count])
    return tf.TensorShape([*sizes[:axis], None, *sizes[axis + count :]])


def _of_loop_variable(taken: Taken) -> tf.TensorShape:
    """The invariant, which is as good as `set_shape`: TensorFlow does not look at it either."""
    invariants = taken.op.get_attr("output_shapes")
    return tf.TensorShape(invariants[taken.number]) if invariants else UNKNOWN


def _has_axis(shape: tf.TensorShape, axis: int) -> bool:
    """Whether a shape has this dimension; `set_shape` may say anything."""
    return shape.rank is not None and -shape.rank <= axis < shape.rank


def _constant(tensor: tf.Tensor) -> int | None:
    value = tf.get_static_value(tensor)
    return None if value is None else int(value)


_RULES: dict[str, Callable[[Taken], tf.TensorShape]] = {
    "AddN": lambda taken: taken.results[0],
    "IdentityN": lambda taken: taken.results[taken.number],
    "Pack": _of_stacked,
    "Unpack": _of_unstacked,
    "ConcatV2": _of_joined,
    "GatherV2": _of_gathered,
    "While": _of_loop_variable,
    "StatelessWhile": _of_loop_variable,
}
