"""The table of ops: how XLA's kernels differ from TensorFlow's, and what is done about it.

`OPS` has a row for each op: the differences between the kernels, with the replacement that is
written in the op's place; the checks for values for which TensorFlow's kernel raises errors; and
what becomes of sizes that only the run knows. An op with a difference and no replacement goes to
the host.

`python -m tests.kernels compare` and `edges` found the differences on TensorFlow 2.21. A test has a
call that shows each of them, and fails when a kernel is mended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from hostcall._compiler.semantics import random_numbers, values
from hostcall._compiler.semantics.checks import CHECKS, Check
from hostcall._compiler.semantics.values import Writer
from hostcall._tf import features, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import NodeDef

# The nodes of a function by their names, if they are known.
Nodes: TypeAlias = Mapping[str, Any] | None
Condition: TypeAlias = Callable[[NodeDef, Nodes], bool]


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference of an XLA kernel, in a sentence, and whether a node may have it."""

    reason: str
    applies: Condition = lambda node, nodes: True  # noqa: ARG005 - as the others
    replacement: Callable[[Writer], str | tuple[str, ...]] | None = None
    of_graph: bool = False  # whether it counts only where graph mode's semantics are wanted


@dataclasses.dataclass(frozen=True)
class Op:
    """What is known of an op.

    Attributes:
      differences: the differences of XLA's kernel.
      checks: the checks for values for which TensorFlow's kernel raises errors.
      sizes: the name of its rule in `bounded/rules.py` for sizes that are only bounded, if it is
        proved right with them.
      is_bounded: whether its results always have such sizes.
      bounded_by: the operands for which they have if XLA does not know them when it compiles.
      is_of_shapes: whether XLA always knows its results when it compiles.
    """

    differences: tuple[Difference, ...] = ()
    checks: tuple[Check, ...] = ()
    sizes: str = ""
    is_bounded: bool = False
    bounded_by: tuple[int, ...] = ()
    is_of_shapes: bool = False


def _always(node: NodeDef, nodes: Nodes) -> bool:  # noqa: ARG001 - as the others
    return True


def _is(*dtypes: tf.DType, attr: str = "T") -> Condition:
    numbers: Collection[int] = {dtype.as_datatype_enum for dtype in dtypes}
    return lambda node, _: attr in node.attr and node.attr[attr].type in numbers


_FLOATS = (tf.half, tf.bfloat16, tf.float32, tf.float64)
_INTEGERS = (tf.int8, tf.int16, tf.int32, tf.int64)
_UNSIGNED = (tf.uint8, tf.uint16, tf.uint32, tf.uint64)
_COMPLEX = (tf.complex64, tf.complex128)
_is_float, _is_signed = _is(*_FLOATS), _is(*_INTEGERS)


def _is_cast(sources: Collection[tf.DType], targets: Collection[tf.DType]) -> Condition:
    source, target = _is(*sources, attr="SrcT"), _is(*targets, attr="DstT")
    return lambda node, nodes: source(node, nodes) and target(node, nodes)


def _may_leave_out(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether a StridedSliceGrad may have strides other than 1."""
    strides = _operand(node, 3, nodes)
    if strides is None or strides.op != "Const":
        return True
    return bool((tf.make_ndarray(strides.attr["value"].tensor) != 1).any())


def _may_be_square(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether the operands of a product may be the same value once XLA has simplified it."""
    if not _is_signed(node, nodes):
        return False
    first, second = defs.data_inputs(node)
    if nodes is None or _are_alike(first, second, nodes, _DEPTH):
        return True
    return not any(_is_of_sizes(value, nodes, _DEPTH) for value in (first, second))


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


# How many ops back two values are compared.
_DEPTH = 8
_SAME_ELEMENTS = frozenset(
    {"BroadcastTo", "EnsureShape", "ExpandDims", "Identity", "Reshape", "Squeeze"}
)


def _may_wrap(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether a product of integers may wrap around; one of sizes does not."""
    if not _is_signed(node, nodes):
        return False
    operand = _operand(node, 0, nodes)
    while operand is not None and operand.op in _SELECTING:
        operand = _operand(operand, 0, nodes)
    return operand is None or operand.op not in _OF_SIZES


# Ops of known numbers, and those whose results are some of their operand's elements.
_OF_SIZES = frozenset({"Const", "Rank", "Shape", "Size", "VariableShape"})
_SELECTING = frozenset({"Cast", "GatherV2", "Identity", "Slice", "StridedSlice"})
# Ops by which sizes are computed of others.
_COMPUTING = frozenset(
    {"AddV2", "ConcatV2", "FloorDiv", "FloorMod", "Maximum", "Minimum", "Mul", "Neg", "Pack"}
    | {"Prod", "Sub"}
)


def _is_power_of_two(node: NodeDef, nodes: Nodes) -> bool:
    exponent = _operand(node, 1, nodes)
    if not _is_signed(node, nodes) or exponent is None or exponent.op != "Const":
        return False
    value = tf.make_ndarray(exponent.attr["value"].tensor)
    return bool(value.ndim == 0 and value == 2)


def _may_be_large_power(node: NodeDef, nodes: Nodes) -> bool:
    """Return whether an integer's exponent may be 64 or more."""
    exponent = _operand(node, 1, nodes)
    if not _is_signed(node, nodes):
        return False
    if exponent is None or exponent.op != "Const":
        return True
    return bool((tf.make_ndarray(exponent.attr["value"].tensor) >= 64).any())


def _is_never_negative(number: int, zero: int) -> Condition:
    """Return a condition that a float is compared with 0, and one that is never less, or NaN."""

    def applies(node: NodeDef, nodes: Nodes) -> bool:
        if not _is_float(node, nodes):
            return False
        limit = _operand(node, zero, nodes)
        if limit is None or limit.op != "Const":
            return False
        if (tf.make_ndarray(limit.attr["value"].tensor).astype(float) != 0).any():
            return False
        value = _behind_shapes(node.input[number], nodes or {})
        source = (nodes or {}).get(defs.source(value))
        return source is not None and source.op in _NEVER_NEGATIVE

    return applies


# Ops whose results XLA knows not to be negative, perhaps by their operands.
_NEVER_NEGATIVE = frozenset(
    {"Abs", "ComplexAbs", "Exp", "Max", "Maximum", "Mul", "Pow", "Relu", "Relu6", "Rsqrt", "Select"}
    | {"SelectV2", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Square", "SquaredDifference", "Sum"}
)


def _is_of_onednn(node: NodeDef, nodes: Nodes) -> bool:
    # It takes tf.half on few processors only, which are not told from others here.
    is_of_its_dtypes = _is(tf.bfloat16, tf.float32)(node, nodes)
    return is_of_its_dtypes and features.VALUES.available and bool(features.uses_onednn())


def _is_unsorted(node: NodeDef, nodes: Nodes) -> bool:  # noqa: ARG001 - as the others
    return "sorted" in node.attr and not node.attr["sorted"].b


def _is_variable(position: int) -> Condition:
    """Return a condition that an operand is no constant."""

    def applies(node: NodeDef, nodes: Nodes) -> bool:
        operand = _operand(node, position, nodes)
        return operand is None or operand.op != "Const"

    return applies


def _operand(node: NodeDef, position: int, nodes: Nodes) -> Any:
    """Return the node that an operand comes from, if it is known."""
    return None if nodes is None else nodes.get(defs.source(node.input[position]))


def _of_graph(
    reason: str,
    applies: Condition = _always,
    replacement: Callable[[Writer], str | tuple[str, ...]] | None = None,
) -> Difference:
    return Difference(reason, applies, replacement, of_graph=True)


_CONJUGATE = Difference(
    "XLA leaves out the conjugate in the gradient of a complex number",
    _is(*_COMPLEX),
    values.safe_gradient,
)
_UNSAFE = Difference(
    "XLA gives NaN where the incoming gradient is zero and the derivative is infinite, not zero",
    _is_float,
    values.safe_gradient,
)
_NEAR_VALUES = Difference(
    "XLA compares the inputs in 16 bits, and takes the gradient of another one that is near"
)
_ZERO_POINT = Difference(
    "XLA rounds the zero point down where it lies halfway, and gives NaN for an empty range"
)
_PRECISION = Difference("XLA stops at the precision of float32", _is(tf.float64, tf.complex128))
_SKIPS_NAN = _of_graph("XLA skips elements that are NaN", _is_float, values.reduction)
_TAKES_OTHER = _of_graph(
    "XLA takes the first operand where the second is NaN", _is_float, values.extreme
)
_TAKES_NAN = _of_graph("XLA takes NaN for the extreme", _is_float, values.index_of_extreme)
_NO_PLACE = _of_graph("XLA puts NaN below all numbers", _is_float)
_SHIFTS = _of_graph(
    "XLA gives 0 or -1 for counts that are negative or no less than the number of bits",
    _always,
    values.shift,
)
_LOSES_NAN = _of_graph(
    "XLA gives 0.0 for a gradient that is infinite or NaN where none passes",
    _is_float,
    values.relu_gradient,
)
_NAN_IS_POSITIVE = "XLA takes a square, an absolute number, an exponential for at least 0, also NaN"
_WRAPS = Difference(
    "XLA takes the square of an integer for positive, also where it wraps around",
    _is_signed,
    values.opaque,
)
_PRODUCT_WRAPS = dataclasses.replace(_WRAPS, applies=_may_wrap)
_SMALL_IMAGE = Difference(
    "XLA computes in 16 bits which pixel is the nearest",
    _is(tf.half, tf.bfloat16),
    values.in_32_bits,
)
_LARGE_IMAGE = Difference(
    "XLA rounds places to 64 bits, and integers to 24",
    _is(tf.float64, tf.int32, tf.int64),
)
_KEEPS_NUMBER = _of_graph(
    "XLA gives numbers where an imaginary part is NaN", _is(*_COMPLEX), values.complex_nan
)
_LIMITS = _of_graph("XLA has other limits at 0, infinity and NaN")
_SINGULAR = _of_graph("XLA raises no error for singular matrices")

_DIFFERENCES: Mapping[str, tuple[Difference, ...]] = {
    "Abs": (
        Difference(
            "XLA takes the least integer for positive, since its absolute number should be",
            _is_signed,
            values.opaque,
        ),
    ),
    "AdjustHue": (Difference("XLA makes pixels whose channels are all negative nearly gray"),),
    "ArgMax": (_TAKES_NAN,),
    "ArgMin": (_TAKES_NAN,),
    "Atan": (_KEEPS_NUMBER,),
    "Bucketize": (_NO_PLACE,),
    "Cast": (
        Difference(
            "XLA compares the imaginary part with zero as well as the real part",
            _is_cast(_COMPLEX, [tf.bool]),
            values.complex_to_bool,
        ),
        _of_graph(
            "XLA moves numbers out of range into range, and makes NaN 0",
            _is_cast([*_FLOATS, *_COMPLEX], [*_INTEGERS, *_UNSIGNED]),
            values.cast,
        ),
        _of_graph(
            "XLA makes 0.0 of the product of a condition that is false with NaN and infinity",
            _is_cast([tf.bool], _FLOATS),
            values.bool_to_float,
        ),
    ),
    "ClipByValue": (
        _of_graph(
            "XLA takes limits that are NaN for the result, and the upper one of two that cross",
            _is(*_FLOATS, *_INTEGERS, *_UNSIGNED),
            values.clip,
        ),
    ),
    "ComplexAbs": (
        _of_graph(
            "XLA gives a number where the imaginary part is NaN", _always, values.complex_absolute
        ),
    ),
    "ConjugateTranspose": (
        Difference(
            "XLA makes complex numbers of real ones, whose halves are taken for the result",
            _is(tf.float32, tf.float64),
        ),
    ),
    "CumulativeLogsumexp": (_of_graph("XLA loses NaN and infinity, and numbers beside them"),),
    "Cumprod": (_PRODUCT_WRAPS,),
    "EluGrad": (_of_graph("XLA gives NaN where an output is NaN", _is_float, values.elu_gradient),),
    "FakeQuantWithMinMaxVars": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsGradient": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsPerChannel": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsPerChannelGradient": (_ZERO_POINT,),
    "FloorDiv": (
        _of_graph(
            "XLA does not round the quotient of 16 bits",
            _is(tf.bfloat16),
            values.floor_division,
        ),
    ),
    "GreaterEqual": (_of_graph(_NAN_IS_POSITIVE, _is_never_negative(0, 1), values.at_least_zero),),
    "Igamma": (_LIMITS,),
    "Igammac": (_LIMITS,),
    "InTopKV2": (
        Difference(
            "XLA takes a target that is no class for one with the score 0, and finds targets "
            "beside scores that are not finite",
            _always,
            values.in_top_k,
        ),
    ),
    "LeftShift": (_SHIFTS,),
    "LessEqual": (_of_graph(_NAN_IS_POSITIVE, _is_never_negative(1, 0), values.at_least_zero),),
    "Log": (_KEEPS_NUMBER,),
    "Log1p": (_KEEPS_NUMBER,),
    "MatrixInverse": (_SINGULAR,),
    "MatrixSolve": (_SINGULAR,),
    "Max": (_SKIPS_NAN,),
    "MaxPool": (
        _of_graph(
            "XLA gives -infinity, not the least number, for windows of nothing above it",
            _is(tf.half, tf.float32, tf.float64),
            values.pool,
        ),
    ),
    "MaxPool3DGradGrad": (_NEAR_VALUES,),
    "MaxPoolGradGrad": (_NEAR_VALUES,),
    "MaxPoolGradGradV2": (_NEAR_VALUES,),
    "Maximum": (_TAKES_OTHER,),
    "Mean": (
        Difference("XLA adds up in 32 bits, and the sum wraps around", _is(tf.int32, tf.uint32)),
    ),
    "Min": (_SKIPS_NAN,),
    "Minimum": (_TAKES_OTHER,),
    "MirrorPadGrad": (
        _of_graph("XLA raises no error for paddings that are too large", _is_variable(1)),
    ),
    "Mul": (
        Difference(
            "XLA takes the square of an integer for positive, also where it wraps around",
            _may_be_square,
            values.opaque,
        ),
    ),
    "Pow": (
        Difference(
            "XLA takes the square of an integer for positive, also where it wraps around",
            _is_power_of_two,
            values.square,
        ),
        Difference("XLA takes the exponent of an integer modulo 64", _may_be_large_power),
    ),
    "Prod": (_PRODUCT_WRAPS,),
    "Polygamma": (_LIMITS,),
    "ReciprocalGrad": (_CONJUGATE, _UNSAFE),
    "Relu6Grad": (_LOSES_NAN,),
    "ReluGrad": (_LOSES_NAN,),
    "ResizeBilinear": (
        Difference("XLA takes a wrong pixel at some sizes, where a sample falls on a pixel"),
    ),
    "ResizeBilinearGrad": (
        Difference(
            "XLA adds to a wrong pixel at some sizes, and reads foreign memory but for float32",
            lambda node, _: not protos.is_true(node, "align_corners"),
        ),
    ),
    "ResizeNearestNeighbor": (_SMALL_IMAGE, _LARGE_IMAGE),
    "RightShift": (_SHIFTS,),
    "RsqrtGrad": (_CONJUGATE, _UNSAFE),
    "SelfAdjointEigV2": (
        Difference(
            "XLA gives real eigenvalues where complex ones are expected, and foreign memory",
            _is(*_COMPLEX),
        ),
        _PRECISION,
        _of_graph("XLA raises no error for matrices that hold NaN"),
    ),
    "SeluGrad": (
        Difference(
            "XLA takes the slope of negative numbers where the result is zero",
            _always,
            values.selu_gradient,
        ),
    ),
    "Sign": (
        _of_graph("XLA gives -0.0 for -0.0", _is_float, values.sign),
        _KEEPS_NUMBER,
    ),
    "Softmax": (
        _of_graph("XLA makes all of a row NaN where a number is", _is_of_onednn, values.softmax),
    ),
    "Sqrt": (_KEEPS_NUMBER,),
    "SqrtGrad": (_CONJUGATE, _UNSAFE),
    "Square": (_WRAPS,),
    "SquaredDifference": (_WRAPS,),
    "StridedSliceGrad": (
        Difference(
            "XLA makes the result too large where the slice is empty and has a stride",
            _may_leave_out,
            values.cut_to_shape,
        ),
    ),
    "Svd": (_PRECISION,),
    "TopKV2": (
        _of_graph("XLA sorts the results, also without sorted=True", _is_unsorted),
        _of_graph("XLA takes -0.0 for less than 0.0", _is_float, values.top_k),
    ),
    "UpperBound": (_NO_PLACE,),
    **{
        op: (_of_graph(row.reason, random_numbers.differ, row.replacement),)
        for op, row in random_numbers.ROWS.items()
    },
    "Zeta": (_LIMITS,),
}

# The rules for sizes that are only bounded in a program, of ops that are proved right with them.
_KEPT = "Cast CheckNumerics Identity IdentityN PreventGradient Snapshot StopGradient"
_ELEMENTWISE = """
Abs Acos Acosh AddN Angle Asin Asinh Atan Atan2 Atanh BesselI0e BesselI1e BitwiseAnd BitwiseOr
BitwiseXor Ceil ClipByValue Complex Conj Cos Cosh Digamma Div DivNoNan Elu EluGrad Equal Erf Erfc
Erfinv Exp Expm1 Floor Greater GreaterEqual Imag Inv Invert IsFinite IsInf IsNan LeakyRelu
LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr MulNoNan
Ndtri NextAfter NotEqual Pow Real RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad
RightShift Rint Round Rsqrt RsqrtGrad SelectV2 Selu Sigmoid SigmoidGrad Sign Sin Sinh Softplus
SoftplusGrad Softsign SoftsignGrad Sqrt SqrtGrad Square SquaredDifference Tan Tanh TanhGrad
TruncateDiv TruncateMod Xdivy Xlogy
"""
_REDUCTIONS = "All Any Max Mean Min Sum"
_SCATTERS = """
TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
"""
_SEGMENTS = "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum"

_SIZES: Mapping[str, str] = {
    **dict.fromkeys(_KEPT.split(), "kept"),
    **dict.fromkeys(_ELEMENTWISE.split(), "elementwise"),
    **dict.fromkeys(_REDUCTIONS.split(), "reduction"),
    **dict.fromkeys(_SCATTERS.split(), "scatter"),
    **dict.fromkeys(_SEGMENTS.split(), "segments"),
    "AddV2": "added",
    "FloorDiv": "divided",
    "FloorMod": "remainder",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mul": "multiplied",
    "Neg": "negated",
    "Sub": "subtracted",
    "ArgMax": "arg_reduction",
    "ArgMin": "arg_reduction",
    "BatchMatMulV2": "matmul",
    "BiasAdd": "bias_add",
    "BiasAddGrad": "bias_add_grad",
    "Bitcast": "bitcast",
    "BroadcastGradientArgs": "gradient_axes",
    "BroadcastTo": "broadcast_to",
    "ConcatOffset": "concat_offset",
    "ConcatV2": "concat",
    "Cumprod": "along_axis",
    "Cumsum": "along_axis",
    "DynamicStitch": "stitched",
    "DynamicPartition": "partition",
    "EnsureShape": "ensure_shape",
    "ExpandDims": "expand_dims",
    "Fill": "filled",
    "GatherNd": "gather_nd",
    "GatherV2": "gather",
    "InvertPermutation": "inverted",
    "L2Loss": "scalar",
    "LogSoftmax": "like_first",
    "MatMul": "matmul",
    "NonMaxSuppressionV3": "suppression",
    "OneHot": "one_hot",
    "Pack": "pack",
    "Pad": "pad",
    "PadV2": "pad",
    "Prod": "product_reduction",
    "Range": "counted",
    "Rank": "rank",
    "Reshape": "reshape",
    "ReverseV2": "along_any_axis",
    "ScatterNd": "scatter_nd",
    "Select": "select",
    "Shape": "shapes",
    "ShapeN": "shapes",
    "Size": "size",
    "Slice": "slice_",
    "Softmax": "like_first",
    "SoftmaxCrossEntropyWithLogits": "cross_entropy",
    "SparseSoftmaxCrossEntropyWithLogits": "sparse_cross_entropy",
    "Split": "split",
    "SplitV": "split_by_sizes",
    "Squeeze": "squeeze",
    "StridedSlice": "strided_slice",
    "StridedSliceGrad": "strided_slice_grad",
    "Tile": "tile",
    "TopKV2": "top",
    "Transpose": "transpose",
    "Unique": "unique",
    "UniqueV2": "unique",
    "Unpack": "unpack",
    "Where": "where",
    "ZerosLike": "zeros_like",
}

# Ops whose results have bounded sizes whatever their operands are.
_ALWAYS_BOUNDED = """
DynamicPartition NonMaxSuppressionV3 Unique UniqueV2 Where XlaSetDynamicDimensionSize
"""
# Ops whose results have bounded sizes if XLA does not know one of these operands when it compiles.
# XLA wants to know an operand of other ops too, and bounds their sizes as well if it finds a bound
# of that operand.
_BOUNDED_BY: Mapping[str, tuple[int, ...]] = {
    "Slice": (1, 2),
    "StridedSlice": (1, 2),
    "TopKV2": (1,),
}
# Ops whose results XLA always knows when it compiles.
_OF_SHAPES = "Rank Shape ShapeN Size"


def _row(name: str) -> Op:
    return Op(
        _DIFFERENCES.get(name, ()),
        CHECKS.get(name, ()),
        _SIZES.get(name, ""),
        name in _ALWAYS_BOUNDED.split(),
        _BOUNDED_BY.get(name, ()),
        name in _OF_SHAPES.split(),
    )


OPS: Mapping[str, Op] = {
    name: _row(name)
    for name in sorted({*_DIFFERENCES, *CHECKS, *_SIZES, *_BOUNDED_BY, *_ALWAYS_BOUNDED.split()})
}
# The ops with differences, and those of them that may have to go to the host.
DIFFERENT = frozenset(name for name, op in OPS.items() if op.differences)
FOR_HOST = frozenset(
    name for name, op in OPS.items() if any(d.replacement is None for d in op.differences)
)
