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
import functools
from collections.abc import Callable, Mapping

import tensorflow as tf

from hostcall._compiler.semantics import conditions as when
from hostcall._compiler.semantics import random_numbers, slices, values
from hostcall._compiler.semantics.checks import CHECKS, Check
from hostcall._compiler.semantics.conditions import Condition
from hostcall._compiler.semantics.values import Writer
from hostcall._tf.graph import op_kinds, protos


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference of an XLA kernel, in a sentence, and whether a node may have it."""

    reason: str
    applies: Condition = when.always
    replacement: Callable[[Writer], str | tuple[str, ...]] | None = None
    of_graph: bool = False  # whether it counts only where graph mode's semantics are wanted


@dataclasses.dataclass(frozen=True)
class Op:
    """What is known of an op.

    Attributes:
      differences: the differences of XLA's kernel.
      checks: the checks for values for which TensorFlow's kernel raises errors.
      sizes: the name of its rule in `sizes/rules.py` for sizes that are only bounded, if it is
        proved right with them.
      is_bounded: whether its results always have such sizes.
      bounded_by: the operands for which they have if XLA does not know them when it compiles.
    """

    differences: tuple[Difference, ...] = ()
    checks: tuple[Check, ...] = ()
    sizes: str = ""
    is_bounded: bool = False
    bounded_by: tuple[int, ...] = ()


_of_graph = functools.partial(Difference, of_graph=True)
_CONJUGATE = Difference(
    "XLA leaves out the conjugate in the gradient of a complex number",
    when.has_dtype(*when.COMPLEX),
    values.safe_gradient,
)
_UNSAFE = Difference(
    "XLA gives NaN where the incoming gradient is zero and the derivative is infinite, not zero",
    when.is_float,
    values.safe_gradient,
)
_NEAR_VALUES = Difference(
    "XLA compares the inputs in 16 bits, and takes the gradient of another one that is near"
)
_ZERO_POINT = Difference(
    "XLA rounds the zero point down where it lies halfway, and gives NaN for an empty range"
)
_PRECISION = Difference(
    "XLA stops at the precision of float32", when.has_dtype(tf.float64, tf.complex128)
)
_SKIPS_NAN = _of_graph("XLA skips elements that are NaN", when.is_float, values.reduction)
_TAKES_OTHER = _of_graph(
    "XLA takes the first operand where the second is NaN", when.is_float, values.extreme
)
_TAKES_NAN = _of_graph("XLA takes NaN for the extreme", when.is_float, values.index_of_extreme)
_NO_PLACE = _of_graph("XLA puts NaN below all numbers", when.is_float)
_SHIFTS = _of_graph(
    "XLA gives 0 or -1 for counts that are negative or no less than the number of bits",
    when.always,
    values.shift,
)
_LOSES_NAN = _of_graph(
    "XLA gives 0.0 for a gradient that is infinite or NaN where none passes",
    when.is_float,
    values.relu_gradient,
)
_NAN_IS_POSITIVE = "XLA takes a square, an absolute number, an exponential for at least 0, also NaN"
_WRAPS = Difference(
    "XLA takes the square of an integer for positive, also where it wraps around",
    when.is_signed,
    values.opaque,
)
_PRODUCT_WRAPS = dataclasses.replace(_WRAPS, applies=when.may_wrap)
_SMALL_IMAGE = Difference(
    "XLA computes in 16 bits which pixel is the nearest",
    when.has_dtype(tf.half, tf.bfloat16),
    values.in_32_bits,
)
_LARGE_IMAGE = Difference(
    "XLA rounds places to 64 bits, and integers to 24",
    when.has_dtype(tf.float64, tf.int32, tf.int64),
)
_KEEPS_NUMBER = _of_graph(
    "XLA gives numbers where an imaginary part is NaN",
    when.has_dtype(*when.COMPLEX),
    values.complex_nan,
)
_LIMITS = _of_graph("XLA has other limits at 0, infinity and NaN")
_NO_CHANNELS = _of_graph(
    "XLA ends the process where an input has no channels", when.may_lack_channels
)
_SINGULAR = _of_graph("XLA raises no error for singular matrices")

_DIFFERENCES: Mapping[str, tuple[Difference, ...]] = {
    "Abs": (
        Difference(
            "XLA takes the least integer for positive, since its absolute number should be",
            when.is_signed,
            values.opaque,
        ),
    ),
    "AdjustHue": (Difference("XLA makes pixels whose channels are all negative nearly gray"),),
    "ArgMax": (_TAKES_NAN,),
    "ArgMin": (_TAKES_NAN,),
    "Bucketize": (_NO_PLACE,),
    "Cast": (
        Difference(
            "XLA compares the imaginary part with zero as well as the real part",
            when.is_cast(when.COMPLEX, [tf.bool]),
            values.complex_to_bool,
        ),
        _of_graph(
            "XLA moves numbers out of range into range, and makes NaN 0",
            when.is_cast([*when.FLOATS, *when.COMPLEX], [*when.INTEGERS, *when.UNSIGNED]),
            values.cast,
        ),
        _of_graph(
            "XLA makes 0.0 of the product of a condition that is false with NaN and infinity",
            when.is_cast([tf.bool], when.FLOATS),
            values.bool_to_float,
        ),
    ),
    "ClipByValue": (
        _of_graph(
            "XLA takes limits that are NaN for the result, and the upper one of two that cross",
            when.has_dtype(*when.FLOATS, *when.INTEGERS, *when.UNSIGNED),
            values.clip,
        ),
    ),
    "ComplexAbs": (
        _of_graph(
            "XLA gives a number where the imaginary part is NaN",
            when.always,
            values.complex_absolute,
        ),
    ),
    "ConjugateTranspose": (
        Difference(
            "XLA makes complex numbers of real ones, whose halves are taken for the result",
            when.has_dtype(tf.float32, tf.float64),
        ),
    ),
    "Conv2DBackpropInput": (_NO_CHANNELS,),
    "Conv3DBackpropInputV2": (_NO_CHANNELS,),
    "CumulativeLogsumexp": (_of_graph("XLA loses NaN and infinity, and numbers beside them"),),
    "Cumprod": (_PRODUCT_WRAPS,),
    "DepthwiseConv2dNativeBackpropInput": (_NO_CHANNELS,),
    "DynamicStitch": (
        _of_graph(
            "XLA ends the process where an index is the largest integer",
            when.has_given_indices,
        ),
    ),
    "EluGrad": (
        _of_graph("XLA gives NaN where an output is NaN", when.is_float, values.elu_gradient),
    ),
    "FakeQuantWithMinMaxVars": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsGradient": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsPerChannel": (_ZERO_POINT,),
    "FakeQuantWithMinMaxVarsPerChannelGradient": (_ZERO_POINT,),
    "FloorDiv": (
        _of_graph(
            "XLA does not round the quotient of 16 bits",
            when.has_dtype(tf.bfloat16),
            values.floor_division,
        ),
    ),
    "GreaterEqual": (
        _of_graph(_NAN_IS_POSITIVE, when.is_never_negative(0, 1), values.at_least_zero),
    ),
    "Igamma": (_LIMITS,),
    "Igammac": (_LIMITS,),
    "InTopKV2": (
        Difference(
            "XLA takes a target that is not a class for one with the score 0, and finds targets "
            "beside scores that are not finite",
            when.always,
            values.in_top_k,
        ),
    ),
    "LeftShift": (_SHIFTS,),
    "LessEqual": (_of_graph(_NAN_IS_POSITIVE, when.is_never_negative(1, 0), values.at_least_zero),),
    "Log": (_KEEPS_NUMBER,),
    "Log1p": (_KEEPS_NUMBER,),
    "MatrixInverse": (_SINGULAR,),
    "MatrixSolve": (_SINGULAR,),
    "Max": (_SKIPS_NAN,),
    "MaxPool": (
        _of_graph(
            "XLA gives -infinity, not the least number, for windows of nothing above it",
            when.ends_at_least,
            values.pool,
        ),
    ),
    "MaxPool3DGradGrad": (_NEAR_VALUES,),
    "MaxPoolGradGrad": (_NEAR_VALUES,),
    "MaxPoolGradGradV2": (_NEAR_VALUES,),
    "Maximum": (_TAKES_OTHER,),
    "Mean": (
        Difference(
            "XLA adds up in 32 bits, and the sum wraps around", when.has_dtype(tf.int32, tf.uint32)
        ),
    ),
    "Min": (_SKIPS_NAN,),
    "Minimum": (_TAKES_OTHER,),
    "MirrorPadGrad": (
        _of_graph(
            "XLA raises no error for paddings that are too large", when.has_variable_paddings
        ),
    ),
    "Mul": (dataclasses.replace(_WRAPS, applies=when.may_be_square),),
    "Pow": (
        dataclasses.replace(_WRAPS, applies=when.is_power_of_two, replacement=values.square),
        Difference("XLA takes the exponent of an integer modulo 64", when.may_be_large_power),
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
    "ResourceScatterNdSub": (
        _of_graph("XLA ends the process for booleans", when.has_dtype(tf.bool)),
    ),
    "RightShift": (_SHIFTS,),
    "RsqrtGrad": (_CONJUGATE, _UNSAFE),
    "SelfAdjointEigV2": (
        Difference(
            "XLA gives real eigenvalues where complex ones are expected, and foreign memory",
            when.has_dtype(*when.COMPLEX),
        ),
        _PRECISION,
        _of_graph("XLA raises no error for matrices that hold NaN"),
    ),
    "SeluGrad": (
        Difference(
            "XLA takes the slope of negative numbers where the result is zero",
            when.always,
            values.selu_gradient,
        ),
    ),
    "Sign": (_of_graph("XLA gives -0.0 for -0.0", when.is_float, values.sign),),
    "Softmax": (
        _of_graph(
            "XLA makes all of a row NaN where a number is", when.is_of_onednn, values.softmax
        ),
    ),
    "Sqrt": (_KEEPS_NUMBER,),
    "SqrtGrad": (_CONJUGATE, _UNSAFE),
    "Square": (_WRAPS,),
    "SquaredDifference": (_WRAPS,),
    "StridedSlice": (
        Difference(
            "XLA misplaces the constant parts of a slice beside positions that it does not know",
            slices.is_mixed,
            slices.split,
        ),
    ),
    "StridedSliceGrad": (
        Difference(
            "XLA makes the result too large where the slice is empty and has a stride",
            when.may_leave_out,
            values.cut_to_shape,
        ),
    ),
    "Svd": (_PRECISION,),
    "TopKV2": (
        _of_graph("XLA sorts the results, also without sorted=True", when.is_unsorted),
        _of_graph("XLA takes -0.0 for less than 0.0", when.is_float, values.top_k),
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
AddN Atan2 BitwiseAnd BitwiseOr BitwiseXor ClipByValue Complex Div DivNoNan EluGrad Equal Greater
GreaterEqual LeakyReluGrad LeftShift Less LessEqual LogicalAnd LogicalOr MulNoNan NextAfter
NotEqual Pow RealDiv ReciprocalGrad Relu6Grad ReluGrad RightShift RsqrtGrad SelectV2 SigmoidGrad
SoftplusGrad SoftsignGrad SqrtGrad SquaredDifference TanhGrad TruncateDiv TruncateMod Xdivy Xlogy
"""
_REDUCTIONS = "All Any Max Mean Min Sum"
_SCATTERS = """
TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
"""
_SEGMENTS = "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum"

_SIZES: Mapping[str, str] = {
    **dict.fromkeys(_KEPT.split(), "kept"),
    **dict.fromkeys(op_kinds.UNARY.union(_ELEMENTWISE.split()), "elementwise"),
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


def _row(name: str) -> Op:
    return Op(
        _DIFFERENCES.get(name, ()),
        CHECKS.get(name, ()),
        _SIZES.get(name, ""),
        name in _ALWAYS_BOUNDED.split(),
        _BOUNDED_BY.get(name, ()),
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
