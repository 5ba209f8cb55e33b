"""Cases of ops on numbers: linear algebra, special functions, segments, layers, quantization."""

from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.e2e.every_images import image as _image
from tests.support.e2e.every_op import case, cases, gradient_cases, raw_case
from tests.support.e2e.every_op import ints as _ints


def matrix(x: tf.Tensor) -> tf.Tensor:
    """A symmetric positive definite matrix of two rows."""
    return tf.linalg.diag(x[:2] + 3.0) + 0.5


def _general(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [2, 2]) + tf.constant([[4.0, 1.0], [0.0, 5.0]])


def _ids(x: tf.Tensor) -> tf.Tensor:
    """Sorted segment ids: 0, 0, 1, 1."""
    return tf.cast(x > 0.0, tf.int32) * tf.constant([0, 0, 1, 1])


cases(
    Eig=lambda x: tf.sort(tf.abs(tf.linalg.eigvals(_general(x)))),
    Lu=lambda x: tf.linalg.lu(_general(x)),
    MatrixLogarithm=lambda x: tf.abs(tf.linalg.logm(tf.cast(matrix(x), tf.complex64))),
    MatrixSolveLs=lambda x: tf.linalg.lstsq(_general(x), x[:2, None], fast=False),
)
gradient_cases(
    Eig=lambda x: tf.abs(tf.linalg.eig(_general(x))[0]),
    MatrixSquareRoot=lambda x: tf.linalg.sqrtm(matrix(x)),
    MatrixDeterminant=lambda x: tf.linalg.det(_general(x)) * 2.0,
    LogMatrixDeterminant=lambda x: tf.linalg.slogdet(_general(x)),
    BandedTriangularSolve=lambda x: tf.raw_ops.BandedTriangularSolve(
        matrix=tf.stack([x + 1.0, x]), rhs=x[:, None]
    ),
)
raw_case("CholeskyGrad", l=lambda x: tf.linalg.cholesky(matrix(x)), grad=matrix)

_SPECIAL = [
    *("BesselI0", "BesselI1", "BesselJ0", "BesselJ1", "BesselK0", "BesselK0e", "BesselK1"),
    *("BesselK1e", "BesselY0", "BesselY1", "Dawsn", "Expint", "FresnelCos", "FresnelSin", "Spence"),
]


def _special(function: Any) -> Any:
    return lambda x: function(x=x * 0.5) * 2.0


for _name in _SPECIAL:
    _nested = _name in ("BesselI0", "Dawsn", "Expint")  # one is like the other
    case(_name, _special(getattr(tf.raw_ops, _name)), gradient=True, nested=_nested)

gradient_cases(
    EuclideanNorm=lambda x: tf.math.reduce_euclidean_norm(x) * 2.0,
    NthElement=lambda x: tf.raw_ops.NthElement(input=x, n=2),
    SegmentSum=lambda x: tf.math.segment_sum(x * 2.0, _ids(x)),
    SegmentMean=lambda x: tf.math.segment_mean(x * 2.0, _ids(x)),
    SegmentMax=lambda x: tf.math.segment_max(x * 2.0, _ids(x)),
    SegmentMin=lambda x: tf.math.segment_min(x * 2.0, _ids(x)),
    SegmentProd=lambda x: tf.math.segment_prod(x * 2.0, _ids(x)),
)
cases(
    InTopK=lambda x: tf.raw_ops.InTopK(predictions=matrix(x), targets=_ids(x)[1:3], k=1),
    HistogramFixedWidth=lambda x: tf.histogram_fixed_width(x, [0.0, 4.0], 5) * 2,
    UnravelIndex=lambda x: tf.unravel_index(_ints(x), [2, 2]) + 1,
)
_GATHERED = tf.constant([0, 2, 3, 1])
gradient_cases(
    SparseSegmentSum=lambda x: tf.sparse.segment_sum(x, _GATHERED, _ids(x)),
    SparseSegmentMean=lambda x: tf.sparse.segment_mean(x, _GATHERED, _ids(x)),
    SparseSegmentSqrtN=lambda x: tf.sparse.segment_sqrt_n(x, _GATHERED, _ids(x)),
    SparseSegmentSumWithNumSegments=lambda x: tf.sparse.segment_sum(x, _GATHERED, _ids(x), 3) + 1.0,
    SparseSegmentMeanWithNumSegments=lambda x: (
        tf.sparse.segment_mean(x, _GATHERED, _ids(x), 3) + 1.0
    ),
    SparseSegmentSqrtNWithNumSegments=lambda x: (
        tf.sparse.segment_sqrt_n(x, _GATHERED, _ids(x), 3) + 1.0
    ),
    IsotonicRegression=lambda x: tf.nn.isotonic_regression(x[None])[0] * 2.0,
    SobolSample=lambda x: tf.math.sobol_sample(2, 3) * x[0],
)
case(
    "KmeansPlusPlusInitialization",
    lambda x: tf.raw_ops.KmeansPlusPlusInitialization(
        points=matrix(x), num_to_sample=2, seed=3, num_retries_per_sample=2
    ),
)
raw_case("NearestNeighbors", points=matrix, centers=_general, k=1)


def _adagrad(variables: Any, x: tf.Tensor) -> None:
    tf.raw_ops.ResourceSparseApplyAdagradV2(
        var=variables[0].handle,
        accum=variables[1].handle,
        lr=0.5,
        epsilon=0.1,
        grad=x,
        indices=tf.constant([0, 1, 2, 3]),
    )


case(
    "ResourceGatherNd",
    lambda v, x: v.gather_nd(_ints(x)[:, None]) * 2.0,
    setup=lambda _: tf.Variable([1.0, 2.0, 3.0, 4.0]),
)
_on_variable: dict[str, Any] = {
    "setup": lambda _: tf.Variable([1.0, 2.0, 9.0, 4.0]),
    "effects": lambda v: v.numpy(),
}
_ALL = tf.constant([[0], [1], [2], [3]])
case("ResourceScatterNdMax", lambda v, x: v.scatter_nd_max(_ALL, x * 2), **_on_variable)
case("ResourceScatterNdMin", lambda v, x: v.scatter_nd_min(_ALL, x * 2), **_on_variable)
case(
    "ResourceSparseApplyAdagradV2",
    _adagrad,
    setup=lambda _: (tf.Variable([1.0] * 4), tf.Variable([2.0] * 4)),
    effects=lambda s: [v.numpy() for v in s],
)


def _pooled(op: Any, x: tf.Tensor) -> Any:
    ratio = [1.0, 1.5, 1.5, 1.0]
    return op(value=_image(x), pooling_ratio=ratio, deterministic=True, seed=3, seed2=4)


raw_case(
    "Dilation2D",
    gradient=True,
    input=_image,
    filter=lambda x: tf.reshape(x, [2, 2, 1]),
    strides=[1] * 4,
    rates=[1] * 4,
    padding="SAME",
)
gradient_cases(
    MaxPoolWithArgmax=lambda x: tf.nn.max_pool_with_argmax(_image(x), 2, 2, "SAME"),
    FractionalMaxPool=lambda x: _pooled(tf.raw_ops.FractionalMaxPool, x),
    FractionalAvgPool=lambda x: _pooled(tf.raw_ops.FractionalAvgPool, x),
    ExtractVolumePatches=lambda x: tf.extract_volume_patches(
        _image(x)[..., None], [1, 2, 2, 1, 1], [1, 2, 2, 1, 1], "SAME"
    ),
)
case(
    "GRUBlockCell",
    lambda x: tf.raw_ops.GRUBlockCell(
        x=x[:2, None], h_prev=x[:2, None], w_ru=matrix(x), w_c=x[:2, None], b_ru=x[:2], b_c=x[:1]
    ),
)
_LSTM: dict[str, Any] = {
    **dict.fromkeys(("cs_prev", "h_prev"), lambda x: x[:2, None]),
    **dict.fromkeys(("wci", "wcf", "wco"), lambda x: x[:1]),
    "w": lambda x: tf.stack([x, x]),
    "b": lambda x: x,
}
raw_case("LSTMBlockCell", x=lambda x: x[:2, None], **_LSTM)
raw_case("BlockLSTMV2", seq_len_max=np.int64(2), x=lambda x: tf.reshape(x, [2, 2, 1]), **_LSTM)


def _quantized(x: tf.Tensor) -> Any:
    return tf.quantization.quantize(x, 0.0, 4.0, tf.quint8)


cases(
    QuantizeV2=lambda x: tf.cast(_quantized(x)[0], tf.int32) * 2,
    QuantizedAdd=lambda x: tf.raw_ops.QuantizedAdd(
        x=_quantized(x)[0], y=_quantized(x)[0], min_x=0.0, max_x=4.0, min_y=0.0, max_y=4.0
    )[1:],
    QuantizedRelu=lambda x: tf.cast(
        tf.raw_ops.QuantizedRelu(features=_quantized(x)[0], min_features=0.0, max_features=4.0)[0],
        tf.int32,
    ),
    QuantizedReshape=lambda x: tf.raw_ops.QuantizedReshape(
        tensor=_quantized(x)[0], shape=[2, 2], input_min=0.0, input_max=4.0
    )[1:],
    QuantizedMatMul=lambda x: tf.raw_ops.QuantizedMatMul(
        a=_quantized(x)[0][None],
        b=_quantized(x)[0][:, None],
        min_a=0.0,
        max_a=4.0,
        min_b=0.0,
        max_b=4.0,
    )[1:],
    RequantizationRange=lambda x: tf.raw_ops.RequantizationRange(
        input=tf.cast(_ints(x), tf.qint32), input_min=0.0, input_max=4.0
    ),
)


def _complex(x: tf.Tensor) -> tf.Tensor:
    return tf.complex(_general(x), tf.zeros([2, 2]))


def _band(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.stack([x[:3], x[:3] + 5.0, x[:3]]), tf.complex64)


# Ops with kernels for some dtypes only.
gradient_cases(
    MatrixInverse=lambda x: tf.linalg.inv(_complex(x)) * 2.0,
    MatrixSolve=lambda x: tf.linalg.solve(_complex(x), _complex(x[::-1])),
    Cumprod=lambda x: tf.math.cumprod(tf.cast(x, tf.complex64)),
)
cases(
    Svd=lambda x: tf.linalg.svd(_complex(x), compute_uv=False) * 2.0,
    TridiagonalSolve=lambda x: tf.linalg.tridiagonal_solve(_band(x), tf.ones([3], tf.complex64)),
    Cumsum=lambda x: tf.cumsum(tf.cast(x, tf.int8)) * 2,
    TopKV2=lambda x: tf.math.top_k(tf.cast(x, tf.uint16), 2),
    ListDiff=lambda x: tf.raw_ops.ListDiff(x=x, y=x[:1]),
    ExtractImagePatches=lambda x: tf.image.extract_patches(
        tf.cast(_image(x), tf.int16), [1, 2, 2, 1], [1, 2, 2, 1], [1] * 4, "SAME"
    ),
)
