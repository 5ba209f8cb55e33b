"""Calls of products, decompositions, transforms and losses."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call
from tests.kernels.data import Data
from tests.kernels.registry import dtypes
from tests.kernels.rows import Each, Spec, below, every, positive, row, wide

_PAIRS = tuple(itertools.product((False, True), repeat=2))
_EITHER = Each(False, True)

product = functools.partial(row, ulps=32, scale=ARRAY)
# Decompositions are unique only up to signs and phases: what they multiply to is compared.
linear = functools.partial(row, ulps=512, scale=ARRAY)
loss = functools.partial(row, ulps=64, scale=ARRAY)


def _turned(turn: bool, *shape: int) -> tuple[int, ...]:
    """Exchange the last two sizes of a shape, perhaps."""
    return (*shape[:-2], shape[-1], shape[-2]) if turn else shape


_EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("ij,ij->", [(3, 4), (3, 4)]), ("i,j->ij", [(3,), (4,)]), ("ij,kj->ki", [(3, 4), (5, 4)]),
    ("abc,cd->abd", [(1, 2, 3), (3, 1)]),
]  # fmt: skip
_FURTHER_EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("...ij,jk->...ik", [(2, 3, 4), (4, 5)]), ("ii->i", [(4, 4)]), ("ij->ji", [(3, 4)]),
    ("ijk->k", [(2, 3, 4)]),
]  # fmt: skip
_PRODUCTS = (
    *(
        product("MatMul", _turned(a, m, k), _turned(b, k, n), transpose_a=a, transpose_b=b)
        for m, k, n in ((3, 4, 5), (1, 7, 1), (17, 33, 9), (2, 0, 3), (0, 2, 3))
        for a, b in _PAIRS
    ),
    *(
        product(ops, _turned(x, *first), _turned(y, *second), adj_x=x, adj_y=y)
        for ops, first, second in (
            ("BatchMatMul BatchMatMulV2", (2, 3, 4, 5), (2, 3, 5, 6)),
            ("BatchMatMulV2", (2, 3, 4, 5), (3, 5, 6)),
            ("BatchMatMulV2", (2, 1, 4, 5), (1, 3, 5, 6)),
        )
        for x, y in _PAIRS
    ),
    *(
        row("BatchMatMulV3", wide(3, 9), wide(9, 4), Ta=kind, Tb=kind, Tout=tf.int32, ulps=0,
            note="wide")
        for kind in (tf.int8, tf.uint8)
    ),
    *(
        row("SparseMatMul", _turned(a, 3, 4), _turned(b, 4, 5), transpose_a=a, transpose_b=b,
            a_is_sparse=_EITHER, ulps=2**17, scale=ARRAY)
        for a, b in _PAIRS
    ),
    *(product("Einsum", shapes, equation=text) for text, shapes in _EQUATIONS + _FURTHER_EQUATIONS),
    *(product("XlaEinsum", *shapes, equation=text) for text, shapes in _EQUATIONS),
)  # fmt: skip


def _mixed_products(data: Data) -> Iterator[Call]:
    op = "BatchMatMulV3"
    kinds = (dtypes(op, name) for name in ("Ta", "Tb", "Tout"))
    for first, second, out in itertools.product(*kinds):
        if first == second == out or {first.size, out.size} == {1, 4}:
            inputs = data.normal(first, 2, 3, 4), data.normal(second, 2, 4, 5)
            yield Call(op, inputs, {"Tout": out}, ulps=32, scale=ARRAY)


def _square(*shape: int) -> Spec:
    """Make matrices that are far from singular."""

    def make(data: Data, dtype: tf.DType) -> Any:
        values = data.normal(dtype, *shape, scale=1.0)
        return (values + 4 * np.eye(shape[-1])).astype(values.dtype)

    return make


def _definite(*shape: int) -> Spec:
    def make(data: Data, dtype: tf.DType) -> Any:
        a = _square(*shape)(data, dtype)
        return (a @ np.conj(np.swapaxes(a, -1, -2))).astype(a.dtype)

    return make


def _hermitian(data: Data, dtype: tf.DType) -> Any:
    a = data.normal(dtype, 2, 4, 4)
    return (a + np.conj(np.swapaxes(a, -1, -2))).astype(a.dtype)


def _dominant(data: Data, dtype: tf.DType) -> Any:
    diagonals = data.normal(dtype, 2, 3, 6, scale=1.0)
    diagonals[:, 1] += np.array(5, diagonals.dtype)
    return diagonals


def product_of_qr(x: Any, full: bool) -> Any:
    q, r = tf.raw_ops.Qr(input=x, full_matrices=full)
    return tf.linalg.matmul(q, r), tf.linalg.matmul(q, q, adjoint_a=True), tf.shape(q)


def product_of_svd(x: Any, full: bool) -> Any:
    s, u, v = tf.raw_ops.Svd(input=x, full_matrices=full)
    k = min(x.shape[-2:])
    scaled = u[..., :k] * s[..., None, :]
    return s, tf.linalg.matmul(scaled, v[..., :k], adjoint_b=True), tf.shape(u), tf.shape(v)


def product_of_eigh(x: Any) -> Any:
    e, v = tf.raw_ops.SelfAdjointEigV2(input=x)
    return e, tf.linalg.matmul(v * tf.cast(e, v.dtype)[..., None, :], v, adjoint_b=True)


_WIDE_AND_HIGH = Each((4, 4), (2, 5, 3), (3, 5))
_MATRICES = (
    linear("MatrixSolve", _square(2, 4, 4), (2, 4, 3), adjoint=_EITHER),
    linear("MatrixInverse", Each(_square(2, 4, 4), _square(1, 1), _square(0, 3, 3)),
           adjoint=_EITHER),
    linear("MatrixTriangularSolve", Each(_square(2, 4, 4), _square(4, 4)), (2, 4, 3),
           lower=_EITHER, adjoint=_EITHER),
    linear("Cholesky", Each(_definite(2, 4, 4), _definite(1, 1), _definite(3, 9, 9))),
    *(
        linear(op, _WIDE_AND_HIGH, function=functools.partial(multiply, full=full),
               note=f"full_matrices={full}")
        for op, multiply in (("Qr", product_of_qr), ("Svd", product_of_svd))
        for full in (False, True)
    ),
    linear("Svd", _WIDE_AND_HIGH, compute_uv=False, results=(0,)),
    linear("SelfAdjointEigV2", _hermitian, function=product_of_eigh),
    linear("SelfAdjointEigV2", _hermitian, compute_v=False, results=(0,)),
    linear("SelfAdjointEigV2", (2, 4, 4), function=product_of_eigh, note="lower half"),
    linear("TridiagonalSolve", _dominant, (2, 6, 3), partial_pivoting=_EITHER),
    linear("TridiagonalMatMul", (2, 1, 6), (2, 1, 6), (2, 1, 6), (2, 6, 3)),
)  # fmt: skip


def _transforms(data: Data) -> Iterator[Call]:
    ranks = (
        ("", ((2, 8), (3, 7), (1,))), ("2D", ((2, 4, 6), (3, 5))),
        ("3D", ((2, 3, 4, 5), (2, 2, 2))),
    )  # fmt: skip
    for axes, (rank, shapes) in enumerate(ranks, 1):
        for dtype, shape in itertools.product(dtypes("FFT", "Tcomplex"), shapes):
            yield from loss(f"FFT{rank} IFFT{rank}", shape, Tcomplex=dtype)(data)
            whole, real = np.array(shape[-axes:], np.int32), dtype.real_dtype
            lengths = Each(whole, whole + 2, np.maximum(whole - 1, 1))
            of_both = {"Tcomplex": dtype, "Treal": real}
            yield from loss(f"RFFT{rank} IRFFT{rank}", shape, lengths, **of_both)(data)


def _large(*shape: int) -> Spec:
    return lambda data, dtype: 100 * data.normal(dtype, *shape)


_SHAPES: list[tuple[int, ...]] = [(3, 7), (2, 0), (1, 1), (2, 3, 67)]
_ODD = [[np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf] * 3, [np.nan, 1, 2]]
_LOSSES = (
    row("Softmax LogSoftmax", Each(*_SHAPES), ulps=32),
    row("Softmax LogSoftmax", Each(*(_large(*s) for s in _SHAPES)), ulps=32, note="large"),
    row("Softmax LogSoftmax", _ODD, T=every, ulps=32, note="nan and inf"),
    loss("SoftmaxCrossEntropyWithLogits", (4, 5), Each(positive(4, 5, high=1.0), np.eye(4, 5))),
    loss("SoftmaxCrossEntropyWithLogits", (4, 5), positive(1, 5, high=1.0), note="broadcast"),
    loss("SparseSoftmaxCrossEntropyWithLogits", (4, 5), below(5, 4)),
)

PARTS = (_mixed_products, _transforms, *_PRODUCTS, *_MATRICES, *_LOSSES)
