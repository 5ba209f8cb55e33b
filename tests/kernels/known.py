"""The smallest calls that show what the table of wrong kernels says."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels import calls_linear
from tests.kernels.call import ARRAY, Call
from tests.kernels.data import Data
from tests.kernels.rows import Each, floating, row

_DOUBLES = Each(tf.float32, tf.float64)
_COMPLEX = Each(tf.complex64, tf.complex128)
_NUMBERS = (
    *(
        part
        for dtype, number in (
            (tf.int8, 12), (tf.int16, 200), (tf.int32, 50000), (tf.int64, 3037000500)
        )
        for part in (
            row("Mul", [number], [0], T=dtype, function=lambda x, _: tf.abs(x * x), note="x * x"),
            row("Square", [number], T=dtype, function=lambda x: tf.abs(tf.square(x))),
            row("Pow", [number], [0], T=dtype, function=lambda x, _: tf.abs(tf.pow(x, 2))),
        )
    ),
    row("Abs", [-(2**31)], T=tf.int32, function=lambda x: tf.abs(x) < 0),
    row("SquaredDifference", [50000], [0], T=tf.int32,
        function=lambda x, y: tf.math.squared_difference(x, y) < 0),
    row("Prod", [50000], 0, T=tf.int32, function=lambda x, _: tf.reduce_prod([x, x], 0) < 0),
    row("Cumprod", [50000], 0, T=tf.int32, function=lambda x, _: tf.math.cumprod([x, x])[1] < 0),
    row("Pow", [3], [64], T=tf.int32),
    row("Cast", [1j, 1, 0], SrcT=_COMPLEX, DstT=tf.bool),
    row("Mean", [2**31 - 1] * 3, 0, T=tf.int32),
    row("Mean", [2**32 - 1] * 3, 0, T=tf.uint32),
    row("ConjugateTranspose", [[0, 1], [2, 3]], [1, 0], T=_DOUBLES),
    row("SqrtGrad", [0], [0], T=floating),
    row("RsqrtGrad ReciprocalGrad", [np.inf], [0], T=floating),
    row("SqrtGrad RsqrtGrad ReciprocalGrad", [1 + 2j], [1], T=_COMPLEX),
    row("SeluGrad", [1], [0], T=floating),
    row("InTopKV2", [[-1, -2]], [2], 1),
    row("InTopKV2", [[1, np.inf]], [0], 2),
    row("StridedSliceGrad", [1], [1], [0], [2], [], T=tf.float32, end_mask=1),
)  # fmt: skip


def _in_loop(take: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Take something at a place that XLA does not know."""
    return lambda x, *_: tf.while_loop(
        lambda i, _: i < 2, lambda i, _: (i + 1, tf.reshape(take(x, i), [2])), (0, take(x, 0))
    )[1]


_SLICES = tuple(
    row("StridedSlice", [[1, 2, 3], [4, 5, 6]], [0], [0], [1], T=floating, function=function)
    for function in (_in_loop(lambda x, i: x[i, 1:]), _in_loop(lambda x, i: x[i, ::2]))
)


def _image(size: int) -> Any:
    return np.arange(size).reshape(1, size, 1, 1)


image = functools.partial(row, T=tf.float32, ulps=64, scale=ARRAY)
_IMAGES = (
    *(
        image("ResizeBilinear", array, sizes, align_corners=corners, half_pixel_centers=centers)
        for corners, centers, size in ((True, False, 15), (False, False, 15), (False, True, 9))
        for array, sizes in ((_image(5), [size, 1]), (_image(5).reshape(1, 1, 5, 1), [1, size]))
    ),
    image(
        "ResizeNearestNeighbor", _image(60), [16, 1], T=tf.bfloat16, ulps=0, half_pixel_centers=True
    ),
    image(
        "ResizeNearestNeighbor", _image(28), [200, 1], T=tf.half, ulps=0, half_pixel_centers=True
    ),
    image("ResizeNearestNeighbor", _image(8), [50, 1], T=tf.float64),
    image("ResizeNearestNeighbor", _image(9) + 2**30, [9, 1], T=Each(tf.int32, tf.int64), ulps=0),
    image("ResizeBilinearGrad", _image(15), _image(5)),
    image("ResizeBilinearGrad", _image(9), _image(5), half_pixel_centers=True),
    image("AdjustHue", [[[-0.5, -0.1, -0.3]]], 0.0),
)

_VALUES = [[[[1.0], [1.001]]]]
_POOLED = _VALUES, [[[[1.001]]]], [[[[5.0], [7.0]]]]
pool = functools.partial(row, T=tf.float32, padding="VALID")
_POOLS = (
    pool("MaxPoolGradGrad", *_POOLED, ksize=[1, 1, 2, 1], strides=[1, 1, 1, 1]),
    pool("MaxPoolGradGradV2", *_POOLED, [1, 1, 2, 1], [1, 1, 1, 1]),
    pool("MaxPool3DGradGrad", *([array] for array in _POOLED), ksize=[1, 1, 1, 2, 1],
         strides=[1] * 5),
)  # fmt: skip

# With eight bits the zero point of this range is 127.5.
_VARS, _ROWS = "FakeQuantWithMinMaxVars", ([-6] * 6, [6, 7, 8, 9, 10, 11])
_QUANTIZED = (
    row(_VARS, [[9.0]], -6, 6),
    row(_VARS, [[9.0]], 0, 0, note="an empty range"),
    row(f"{_VARS}Gradient", [[1]], [[6.01]], -6, 6),
    row(f"{_VARS}PerChannel", [[9.0] * 6], *_ROWS),
    row(f"{_VARS}PerChannelGradient", [[1] * 6], [[6.01] * 6], *_ROWS),
)

_SQUARE = [[2.0, 1.0, 0.3], [1.0, 3.0, 0.5], [0.3, 0.5, 1.0]]
matrix = functools.partial(row, ulps=1e4, scale=ARRAY)
_MATRICES = (
    matrix("Svd", _SQUARE, T=tf.float64, function=lambda x: calls_linear.product_of_svd(x, False)),
    matrix("SelfAdjointEigV2", _SQUARE, T=tf.float64, function=calls_linear.product_of_eigh),
    matrix("SelfAdjointEigV2", _SQUARE, T=_COMPLEX, compute_v=False, results=(0,)),
)


_NAN, _INF = np.nan, np.inf


def _masked(mask: Any, dtype: tf.DType) -> Any:
    nan = tf.where(mask, tf.zeros([], dtype), tf.constant(_NAN, dtype))
    return nan * tf.cast(mask, dtype)


def _zero_is_at_most(x: Any) -> Any:
    return tf.less_equal(tf.zeros([], x.dtype), x)


_OF_GRAPH = (
    row("ArgMax ArgMin", [_NAN, 1.0, _NAN], 0, T=floating),
    row("Cast", [_NAN, 1e20], SrcT=tf.float32, DstT=Each(tf.int32, tf.uint8)),
    row("Cast", [complex(_NAN, 2), 1e20], SrcT=_COMPLEX, DstT=Each(tf.int32, tf.uint8)),
    row("ComplexAbs", [complex(0, _NAN)], T=tf.complex64, Tout=tf.float32),
    row("Log Log1p Sqrt", [complex(0, _NAN)], T=_COMPLEX),
    row("ClipByValue", [2.0, 0.5], [_NAN, 3.0], [3.0, 1.0], T=floating),
    row("CumulativeLogsumexp", [_INF, _INF], 0, T=_DOUBLES),
    row("Igamma Igammac", [np.inf, 0.0], [1.0, 2.5], T=tf.float32),
    row("Polygamma Zeta", [np.inf], [0.0], T=tf.float32),
    row("EluGrad", [0.5], [_NAN], T=floating),
    row("Cast", [False], SrcT=tf.bool, DstT=tf.float32, function=lambda x: _masked(x, tf.float32)),
    row("FloorDiv", [0.5], [0.1], T=tf.bfloat16),
    row("GreaterEqual", [_NAN], [0], T=_DOUBLES, function=lambda x, _: tf.abs(x) >= 0),
    row("LessEqual", [0], [_NAN], T=_DOUBLES, function=lambda _, x: _zero_is_at_most(tf.abs(x))),
    row("MaxPool", [[[[-_INF], [-_INF]]]], T=Each(tf.float32, tf.float64),
        function=lambda x: tf.math.is_finite(tf.nn.max_pool2d(x, [1, 2], 1, "VALID"))),
    row("LeftShift", [1], [-1], T=tf.int32),
    row("RightShift", [4], [-1], T=tf.int32),
    row("Max Min", [1.0, _NAN, 3.0], 0, T=floating),
    row("Maximum Minimum", [1.0], [_NAN], T=floating),
    row("ReluGrad Relu6Grad", [_NAN] * 8, [-1.0] * 8, T=tf.float32),
    row("Bucketize", [_NAN], T=tf.float32, boundaries=[0.0, 1.0]),
    row("UpperBound", [[0.0, 1.0]], [[_NAN]], T=floating),
    row("TopKV2", [-0.0, 0.0, 1.0], 3, T=tf.float32, results=(1,)),
)  # fmt: skip


def of_graph() -> list[Call]:
    """Return calls whose values XLA computes as well as graph mode, but otherwise."""
    return [call for part in _OF_GRAPH for call in part(Data())]


def cases() -> list[Call]:
    """Return calls of the ops of the table, each of which differs."""
    rows = *_NUMBERS, *_SLICES, *_IMAGES, *_POOLS, *_QUANTIZED, *_MATRICES
    return [call for part in rows for call in part(Data())]
