"""The ops that XLA computes otherwise than TensorFlow does, beyond rounding.

Found by `python -m tests.kernels compare` on TensorFlow 2.21. tests/kernels/known.py has a call for
each that shows it, and a test fails when a kernel is mended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from hostcall._tf import function_defs as defs
from hostcall._tf.types import NodeDef

# The nodes of a function by their names, where they are known.
Nodes: TypeAlias = Mapping[str, Any] | None
Condition: TypeAlias = Callable[[NodeDef, Nodes], bool]


@dataclasses.dataclass(frozen=True)
class WrongKernel:
    """What XLA computes otherwise.

    Attributes:
      reason: what goes wrong, in a sentence.
      applies: whether it may go wrong in a node, as far as its attributes and operands tell.
    """

    reason: str
    applies: Condition


def reason(node: NodeDef, nodes: Nodes = None) -> str:
    """Say what XLA computes otherwise in a node; "" where it is right.

    Args:
      node: its NodeDef.
      nodes: those of its function, by name. Without, some are taken for wrong that are right.
    """
    found = (entry for entry in WRONG_KERNELS.get(node.op, ()) if entry.applies(node, nodes))
    return next((entry.reason for entry in found), "")


def _always(node: NodeDef, nodes: Nodes) -> bool:  # noqa: ARG001 - as the others
    return True


def _is(*dtypes: tf.DType, attr: str = "T") -> Condition:
    numbers: Collection[int] = {dtype.as_datatype_enum for dtype in dtypes}
    return lambda node, _: node.attr[attr].type in numbers


def _is_complex_to_bool(node: NodeDef, nodes: Nodes) -> bool:
    return _COMPLEX(node, nodes) and _is(tf.bool, attr="DstT")(node, nodes)


def _may_be_of_square(node: NodeDef, nodes: Nodes) -> bool:
    if not _INTEGERS(node, nodes):
        return False
    operand = _operand(node, 0, nodes)
    return operand is None or operand.op not in _NEVER_SQUARES


def _may_leave_out(node: NodeDef, nodes: Nodes) -> bool:
    """Whether a StridedSliceGrad has strides other than 1."""
    strides = _operand(node, 3, nodes)
    if strides is None or strides.op != "Const":
        return True
    return bool((tf.make_ndarray(strides.attr["value"].tensor) != 1).any())


def _operand(node: NodeDef, position: int, nodes: Nodes) -> Any:
    """The node that an operand comes from, if it is known."""
    return None if nodes is None else nodes.get(defs.source(node.input[position]))


# What is no product, and stands before most others.
_NEVER_SQUARES = frozenset({"AddV2", "Const", "Neg", "Sub"})
_INTEGERS = _is(tf.int8, tf.int16, tf.int32, tf.int64)
_COMPLEX = _is(tf.complex64, tf.complex128, attr="SrcT")

_CONJUGATE = WrongKernel(
    "XLA leaves out the conjugate in the gradient of a complex number",
    _is(tf.complex64, tf.complex128),
)
_UNSAFE = WrongKernel(
    "XLA gives NaN where the incoming gradient is zero and the derivative is infinite, not zero",
    _is(tf.half, tf.bfloat16, tf.float32, tf.float64),
)
_NEAR_VALUES = WrongKernel(
    "XLA compares the inputs in 16 bits, and takes the gradient of another one that is near",
    _always,
)
_ZERO_POINT = WrongKernel(
    "XLA rounds the zero point down where it lies halfway, and gives NaN for an empty range",
    _always,
)
_PRECISION = WrongKernel(
    "XLA stops at the precision of float32",
    _is(tf.float64, tf.complex128),
)

WRONG_KERNELS: dict[str, tuple[WrongKernel, ...]] = {
    "Abs": (
        WrongKernel(
            "XLA takes the square of an integer for positive, also where it wraps around",
            _may_be_of_square,
        ),
    ),
    "AdjustHue": (
        WrongKernel("XLA makes pixels whose channels are all negative nearly gray", _always),
    ),
    "Cast": (
        WrongKernel(
            "XLA compares the imaginary part with zero as well as the real part",
            _is_complex_to_bool,
        ),
    ),
    "ConjugateTranspose": (
        WrongKernel(
            "XLA makes complex numbers of real ones, whose halves are taken for the result",
            _is(tf.float32, tf.float64),
        ),
    ),
    "FakeQuantWithMinMaxVars": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsGradient": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsPerChannel": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsPerChannelGradient": (_ZERO_POINT,),
    "MaxPool3DGradGrad": (_NEAR_VALUES,),
    "MaxPoolGradGrad": (_NEAR_VALUES,),
    "MaxPoolGradGradV2": (_NEAR_VALUES,),
    "Mean": (
        WrongKernel("XLA adds up in 32 bits, and the sum wraps around", _is(tf.int32, tf.uint32)),
    ),
    "ReciprocalGrad": (_CONJUGATE, _UNSAFE),
    "ResizeBilinear": (
        WrongKernel(
            "XLA takes a wrong pixel at some sizes, where a sample falls on a pixel", _always
        ),
    ),
    "ResizeBilinearGrad": (
        WrongKernel(
            "XLA adds to a wrong pixel at some sizes, and reads foreign memory but for float32",
            lambda node, _: not node.attr["align_corners"].b,
        ),
    ),
    "RsqrtGrad": (_CONJUGATE, _UNSAFE),
    "SelfAdjointEigV2": (
        WrongKernel(
            "XLA gives real eigenvalues where complex ones are expected, and foreign memory",
            _is(tf.complex64, tf.complex128),
        ),
        _PRECISION,
    ),
    "SeluGrad": (
        WrongKernel("XLA takes the slope of negative numbers where the result is zero", _always),
    ),
    "SqrtGrad": (_CONJUGATE, _UNSAFE),
    "StridedSliceGrad": (
        WrongKernel(
            "XLA makes the result too large where the slice is empty and has a stride",
            _may_leave_out,
        ),
    ),
    "Svd": (_PRECISION,),
}
