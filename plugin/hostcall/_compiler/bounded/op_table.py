"""The ops that may take tensors of bounded size inside of one program.

XLA pads such tensors, and not all of its ops, nor all of TensorFlow's lowerings to them, have
regard for that. `RULES` holds those that do, each with the rule for its sizes, which raises an
UnprovenError for what is not proven of it. tests/e2e/test_bounded_ops.py proves each one, and
fails for one that it has no proof of.
"""

from __future__ import annotations

import operator

from hostcall._compiler.bounded import elementwise_rules as rules
from hostcall._compiler.bounded import layout_rules as layout
from hostcall._compiler.bounded import lookup_rules as lookups
from hostcall._compiler.bounded import slice_rules as slices
from hostcall._compiler.bounded.elementwise_rules import Rule

_KEPT = """
Cast CheckNumerics Identity IdentityN PreventGradient Snapshot StopGradient
"""
_ELEMENTWISE = """
Abs Acos Acosh AddN Angle Asin Asinh Atan Atan2 Atanh BesselI0e BesselI1e BitwiseAnd BitwiseOr
BitwiseXor Ceil ClipByValue Complex Conj Cos Cosh Digamma Div DivNoNan Elu EluGrad Equal Erf Erfc
Erfinv Exp Expm1 Floor Greater GreaterEqual Imag Inv Invert
IsFinite IsInf IsNan LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p LogicalAnd
LogicalNot LogicalOr MulNoNan Ndtri NextAfter NotEqual Pow Real RealDiv
Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad RightShift Rint Round Rsqrt RsqrtGrad
SelectV2 Selu Sigmoid SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad Softsign SoftsignGrad
Sqrt SqrtGrad Square SquaredDifference Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlogy
"""
_REDUCTIONS = "All Any Max Mean Min Sum"

RULES: dict[str, Rule] = {
    **dict.fromkeys(_KEPT.split(), rules.kept),
    **dict.fromkeys(_ELEMENTWISE.split(), rules.elementwise),
    **dict.fromkeys(_REDUCTIONS.split(), rules.reduction),
    "AddV2": rules.arithmetic(operator.add),
    "FloorDiv": rules.arithmetic(rules.floor_divided),
    "FloorMod": rules.arithmetic(rules.remainder),
    "Maximum": rules.arithmetic(max),
    "Minimum": rules.arithmetic(min),
    "Mul": rules.arithmetic(operator.mul),
    "Neg": rules.arithmetic(operator.neg),
    "Sub": rules.arithmetic(operator.sub),
    "ArgMax": rules.arg_reduction,
    "ArgMin": rules.arg_reduction,
    "BatchMatMulV2": lookups.matmul,
    "BiasAdd": lookups.bias_add,
    "BiasAddGrad": lookups.bias_add_grad,
    "BroadcastGradientArgs": layout.gradient_axes,
    "BroadcastTo": layout.broadcast_to,
    "ConcatOffset": layout.concat_offset,
    "ConcatV2": layout.concat,
    "Cumprod": rules.along_axis,
    "Cumsum": rules.along_axis,
    "DynamicStitch": layout.stitched,
    "DynamicPartition": lookups.partition,
    "EnsureShape": rules.ensure_shape,
    "ExpandDims": layout.expand_dims,
    "Fill": layout.filled,
    "GatherNd": lookups.gather_nd,
    "GatherV2": lookups.gather,
    "InvertPermutation": layout.inverted,
    "L2Loss": rules.to_scalar,
    "LogSoftmax": rules.like_first,
    "MatMul": lookups.matmul,
    "NonMaxSuppressionV3": lookups.suppression,
    "OneHot": lookups.one_hot,
    "Pack": layout.pack,
    "Pad": layout.pad,
    "PadV2": layout.pad,
    "Prod": rules.product_reduction,
    "Range": layout.counted,
    "Rank": rules.rank,
    "Reshape": layout.reshape,
    "ReverseV2": rules.along_any_axis,
    "ScatterNd": lookups.scatter_nd,
    "Select": rules.select,
    "Shape": rules.shapes,
    "ShapeN": rules.shapes,
    "Size": rules.size,
    "Slice": slices.slice_,
    "Softmax": rules.like_first,
    "SoftmaxCrossEntropyWithLogits": lookups.cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": lookups.sparse_cross_entropy,
    "Split": lookups.split,
    "SplitV": lookups.split_by_sizes,
    "Squeeze": layout.squeeze,
    "StridedSlice": slices.strided_slice,
    "StridedSliceGrad": slices.strided_slice_grad,
    "TensorScatterAdd": lookups.scatter,
    "TensorScatterMax": lookups.scatter,
    "TensorScatterMin": lookups.scatter,
    "TensorScatterSub": lookups.scatter,
    "TensorScatterUpdate": lookups.scatter,
    "Tile": layout.tile,
    "TopKV2": lookups.top,
    "Transpose": layout.transpose,
    "Unique": lookups.unique,
    "UniqueV2": lookups.unique,
    "Unpack": layout.unpack,
    "UnsortedSegmentMax": lookups.segments,
    "UnsortedSegmentMin": lookups.segments,
    "UnsortedSegmentProd": lookups.segments,
    "UnsortedSegmentSum": lookups.segments,
    "Where": lookups.where,
    "ZerosLike": rules.zeros_like,
}
