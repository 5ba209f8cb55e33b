"""Ops that XLA computes wrong, and replacements for some of them.

`WRONG_KERNELS` lists the ops, and `TABLE` the replacements. The ops without one go to the host.

`python -m tests.kernels compare` found them on TensorFlow 2.21. tests/kernels/known.py has a call
that shows each error, and a test fails when a kernel is mended.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from hostcall._compiler.function_edits import FunctionEdits, NodeWriter
from hostcall._tf import function_defs as defs
from hostcall._tf.types import Functions, NodeDef

_PARTS_OF_COMPLEX = {
    tf.complex64.as_datatype_enum: tf.float32.as_datatype_enum,
    tf.complex128.as_datatype_enum: tf.float64.as_datatype_enum,
}
# The constants of tf.nn.selu.
_SCALE, _SCALE_ALPHA = 1.0507009873554805, 1.7580993408473768


class Writer(NodeWriter):
    """A writer of the nodes that replace one node; their dtype is by default that of the node."""

    def __init__(self, node: NodeDef) -> None:
        super().__init__(f"{node.name}/hostcall", node.device)
        self.node = node
        self.inputs = defs.data_inputs(node)

    def add(self, op: str, *inputs: str, **types: int) -> str:
        """Add a node with attributes `types`, or else the node's `T`; return its first result."""
        return super().add(op, *inputs, **(types or {"T": self.node.attr["T"].type}))

    def again(self, *inputs: str) -> str:
        """Add the same op with other operands; return its result."""
        value = self.add(self.node.op, *inputs)
        for name, attribute in self.node.attr.items():
            self.nodes[-1].attr[name].CopyFrom(attribute)
        return value


def _abs(writer: Writer) -> str:
    (x,) = writer.inputs
    return writer.add("Maximum", x, writer.add("Neg", x))


def _complex_to_bool(writer: Writer) -> str:
    complex_type = writer.node.attr["SrcT"].type
    (x,), real = writer.inputs, _PARTS_OF_COMPLEX[complex_type]
    part = writer.add("Real", x, T=complex_type, Tout=real)
    return writer.add("Cast", part, SrcT=real, DstT=defs.BOOL)


def _safe_gradient(writer: Writer) -> str:
    """Write a gradient that is zero where the incoming gradient is, whatever the derivative."""
    y, gradient = writer.inputs
    is_complex = writer.node.attr["T"].type in _PARTS_OF_COMPLEX
    found = functools.partial(_gradient_of_complex, writer) if is_complex else writer.again
    zeros = writer.add("ZerosLike", gradient)
    is_zero = writer.add("Equal", gradient, zeros)
    return writer.add("SelectV2", is_zero, zeros, found(y, gradient))


def _gradient_of_complex(writer: Writer, y: str, gradient: str) -> str:
    """Write the gradient with a conjugate; it is right by the kernels of XLA and of TensorFlow."""
    y = writer.add("Conj", y)
    dtype = writer.node.attr["T"].type
    if writer.node.op == "SqrtGrad":
        half = writer.add("Mul", gradient, writer.constant(0.5, dtype))
        return writer.add("RealDiv", half, y)
    square = writer.add("Mul", y, y)
    if writer.node.op == "ReciprocalGrad":
        return writer.add("Neg", writer.add("Mul", gradient, square))
    cube = writer.add("Mul", square, y)
    return writer.add("Mul", writer.add("Mul", gradient, writer.constant(-0.5, dtype)), cube)


def _selu_gradient(writer: Writer) -> str:
    gradients, outputs = writer.inputs
    dtype = writer.node.attr["T"].type
    is_negative = writer.add("Less", outputs, writer.constant(0.0, dtype))
    slope = writer.add("AddV2", outputs, writer.constant(_SCALE_ALPHA, dtype))
    slope = writer.add("SelectV2", is_negative, slope, writer.constant(_SCALE, dtype))
    return writer.add("Mul", gradients, slope)


def _cut_to_shape(writer: Writer) -> str:
    shape, *rest = writer.inputs
    index = writer.node.attr["Index"].type
    begin = writer.add("ZerosLike", shape, T=index)
    dtype = writer.node.attr["T"].type
    return writer.add("Slice", writer.again(shape, *rest), begin, shape, T=dtype, Index=index)


def _in_top_k(writer: Writer) -> str:
    """Write a result that is false where the target is no class or a score is not finite."""
    scores, targets, _ = writer.inputs
    dtype = writer.node.attr["T"].type
    one, two = writer.constant([1], defs.INT32, [1]), writer.constant([2], defs.INT32, [1])
    shape = writer.add("Shape", scores, T=defs.FLOAT, out_type=dtype)
    classes = writer.add("StridedSlice", shape, one, two, one, T=dtype, Index=defs.INT32)
    writer.nodes[-1].attr["shrink_axis_mask"].i = 1
    is_finite = writer.add("IsFinite", scores, T=defs.FLOAT)
    conditions = [
        writer.add("GreaterEqual", targets, writer.constant(0, dtype)),
        writer.add("Less", targets, classes),
        writer.add("All", is_finite, one, Tidx=defs.INT32),
    ]
    found, no = writer.again(*writer.inputs), writer.constant(False, defs.BOOL)
    for condition in conditions:
        found = writer.add("SelectV2", condition, found, no, T=defs.BOOL)
    return found


def _ones_like(writer: Writer) -> str:
    dtype = writer.node.attr["T"].type
    zeros = writer.add("ZerosLike", *writer.inputs)
    return writer.add("Cast", writer.add("Equal", zeros, zeros), SrcT=defs.BOOL, DstT=dtype)


TABLE: Mapping[str, Callable[[Writer], str]] = {
    "Abs": _abs,
    "Cast": _complex_to_bool,
    "InTopKV2": _in_top_k,
    "ReciprocalGrad": _safe_gradient,
    "RsqrtGrad": _safe_gradient,
    "SeluGrad": _selu_gradient,
    "SqrtGrad": _safe_gradient,
    "StridedSliceGrad": _cut_to_shape,
}


def replace(functions: Functions) -> set[str]:
    """Replace the ops that XLA gets wrong by those of `TABLE`; return the changed functions."""
    return _replace(functions, TABLE, lambda node, nodes: bool(reason(node, nodes)))


def replace_ones_like(functions: Functions) -> set[str]:
    """Replace `OnesLike` by ops that respect bounded sizes: see `replace`."""
    # XLA fills the padding with ones, too, and makes the bound the size of the result. The
    # replacement is one where zero equals zero, which has the true size.
    return _replace(functions, {"OnesLike": _ones_like}, _always)


def _replace(
    functions: Functions, table: Mapping[str, Callable[[Writer], str]], applies: Condition
) -> set[str]:
    changed = set()
    for name, function in functions.items():
        found = defs.nodes_of(function, table)
        nodes = {node.name: node for node in function.node_def} if found else {}
        edits = FunctionEdits(function)
        for node in found:
            if applies(node, nodes):
                _put(edits, node, table[node.op])
        if edits.write():
            changed.add(name)
    return changed


def _put(edits: FunctionEdits, node: NodeDef, write: Callable[[Writer], str]) -> None:
    """Put the replacement in front of a node, which passes it on under its old name."""
    writer = Writer(node)
    result = write(writer)
    ((name, (dtype,)),) = defs.output_types(node, {}).items()
    controls = [value for value in node.input if value.startswith("^")]
    edits.before(node.name, writer.nodes)
    edits.change(f"{node.name}:{name}:0", f"{node.name}:output:0")
    node.op = "Identity"
    node.attr.clear()
    node.attr["T"].type = dtype
    node.input[:] = [result, *controls]


# The nodes of a function by their names, if they are known.
Nodes: TypeAlias = Mapping[str, Any] | None
Condition: TypeAlias = Callable[[NodeDef, Nodes], bool]


@dataclasses.dataclass(frozen=True)
class WrongKernel:
    """An error of an XLA kernel, in a sentence, and whether a node may have it."""

    reason: str
    applies: Condition


def reason(node: NodeDef, nodes: Nodes = None) -> str:
    """Return the error of XLA's kernel for a node, "" if none; `nodes` rule out right ones."""
    found = (entry for entry in WRONG_KERNELS.get(node.op, ()) if entry.applies(node, nodes))
    return next((entry.reason for entry in found), "")


def _always(node: NodeDef, nodes: Nodes) -> bool:  # noqa: ARG001 - as the others
    return True


def _error(reason: str, applies: Condition = _always) -> tuple[WrongKernel, ...]:
    return (WrongKernel(reason, applies),)


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
    """Return whether a StridedSliceGrad may have strides other than 1."""
    strides = _operand(node, 3, nodes)
    if strides is None or strides.op != "Const":
        return True
    return bool((tf.make_ndarray(strides.attr["value"].tensor) != 1).any())


def _operand(node: NodeDef, position: int, nodes: Nodes) -> Any:
    """Return the node that an operand comes from, if it is known."""
    return None if nodes is None else nodes.get(defs.source(node.input[position]))


# Common ops that are not products.
_NEVER_SQUARES = frozenset({"AddV2", "Const", "Neg", "Sub"})
_INTEGERS = _is(tf.int8, tf.int16, tf.int32, tf.int64)
_COMPLEX = _is(tf.complex64, tf.complex128, attr="SrcT")

_CONJUGATE = _error(
    "XLA leaves out the conjugate in the gradient of a complex number",
    _is(tf.complex64, tf.complex128),
)
_UNSAFE = _error(
    "XLA gives NaN where the incoming gradient is zero and the derivative is infinite, not zero",
    _is(tf.half, tf.bfloat16, tf.float32, tf.float64),
)
_NEAR_VALUES = _error(
    "XLA compares the inputs in 16 bits, and takes the gradient of another one that is near"
)
_ZERO_POINT = _error(
    "XLA rounds the zero point down where it lies halfway, and gives NaN for an empty range"
)
_PRECISION = _error("XLA stops at the precision of float32", _is(tf.float64, tf.complex128))

WRONG_KERNELS: dict[str, tuple[WrongKernel, ...]] = {
    "Abs": _error(
        "XLA takes the square of an integer for positive, also where it wraps around",
        _may_be_of_square,
    ),
    "AdjustHue": _error("XLA makes pixels whose channels are all negative nearly gray"),
    "Cast": _error(
        "XLA compares the imaginary part with zero as well as the real part", _is_complex_to_bool
    ),
    "ConjugateTranspose": _error(
        "XLA makes complex numbers of real ones, whose halves are taken for the result",
        _is(tf.float32, tf.float64),
    ),
    "FakeQuantWithMinMaxVars": _ZERO_POINT,
    "FakeQuantWithMinMaxVarsGradient": _ZERO_POINT,
    "FakeQuantWithMinMaxVarsPerChannel": _ZERO_POINT,
    "FakeQuantWithMinMaxVarsPerChannelGradient": _ZERO_POINT,
    "InTopKV2": _error(
        "XLA takes a target that is no class for one with the score 0, and finds targets beside "
        "scores that are not finite"
    ),
    "MaxPool3DGradGrad": _NEAR_VALUES,
    "MaxPoolGradGrad": _NEAR_VALUES,
    "MaxPoolGradGradV2": _NEAR_VALUES,
    "Mean": _error("XLA adds up in 32 bits, and the sum wraps around", _is(tf.int32, tf.uint32)),
    "ReciprocalGrad": _CONJUGATE + _UNSAFE,
    "ResizeBilinear": _error(
        "XLA takes a wrong pixel at some sizes, where a sample falls on a pixel"
    ),
    "ResizeBilinearGrad": _error(
        "XLA adds to a wrong pixel at some sizes, and reads foreign memory but for float32",
        lambda node, _: not node.attr["align_corners"].b,
    ),
    "RsqrtGrad": _CONJUGATE + _UNSAFE,
    "SelfAdjointEigV2": _error(
        "XLA gives real eigenvalues where complex ones are expected, and foreign memory",
        _is(tf.complex64, tf.complex128),
    )
    + _PRECISION,
    "SeluGrad": _error("XLA takes the slope of negative numbers where the result is zero"),
    "SqrtGrad": _CONJUGATE + _UNSAFE,
    "StridedSliceGrad": _error(
        "XLA makes the result too large where the slice is empty and has a stride",
        _may_leave_out,
    ),
    "Svd": _PRECISION,
}
