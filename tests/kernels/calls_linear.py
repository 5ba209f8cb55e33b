"""Calls of products, decompositions, transforms and losses."""
# ruff: noqa: E731 - each call has a short function of its own

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call
from tests.kernels.data import Data
from tests.kernels.registry import dtypes

_FLAGS = (False, True)
# Decompositions are unique only up to signs and phases: what they multiply to is compared.
_LINEAR: dict[str, Any] = {"ulps": 512, "scale": ARRAY}


def _products(data: Data) -> Iterator[Call]:
    rounding: dict[str, Any] = {"ulps": 32, "scale": ARRAY}
    for dtype, first, second in itertools.product(dtypes("MatMul"), _FLAGS, _FLAGS):
        attrs = {"transpose_a": first, "transpose_b": second}
        for m, k, n in ((3, 4, 5), (1, 7, 1), (17, 33, 9), (2, 0, 3), (0, 2, 3)):
            a = data.normal(dtype, *((k, m) if first else (m, k)))
            b = data.normal(dtype, *((n, k) if second else (k, n)))
            yield Call("MatMul", (a, b), attrs, **rounding)
    for op in ("BatchMatMul", "BatchMatMulV2"):
        for dtype, first, second in itertools.product(dtypes(op), _FLAGS, _FLAGS):
            attrs = {"adj_x": first, "adj_y": second}
            a = data.normal(dtype, 2, 3, *((5, 4) if first else (4, 5)))
            b = data.normal(dtype, 2, 3, *((6, 5) if second else (5, 6)))
            yield Call(op, (a, b), attrs, **rounding)
            if op == "BatchMatMulV2":
                yield Call(op, (a, b[0]), attrs, **rounding, note="broadcast")
                yield Call(op, (a[:, :1], b[:1]), attrs, **rounding, note="broadcast")
    kinds = itertools.product(dtypes("BatchMatMulV3", "Ta"), dtypes("BatchMatMulV3", "Tb"))
    for first_kind, second_kind in kinds:
        for out in dtypes("BatchMatMulV3", "Tout"):
            if not first_kind == second_kind == out and {first_kind.size, out.size} != {1, 4}:
                continue
            a, b = data.normal(first_kind, 2, 3, 4), data.normal(second_kind, 2, 4, 5)
            yield Call("BatchMatMulV3", (a, b), {"Tout": out}, **rounding)
    for dtype in (tf.int8, tf.uint8):
        a, b = data.wide(dtype, 3, 9), data.wide(dtype, 9, 4)
        yield Call("BatchMatMulV3", (a, b), {"Tout": tf.int32}, ulps=0, note="wide")


_EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("...ij,jk->...ik", (2, 3, 4), (4, 5)),
    ("ij,kj->ki", (3, 4), (5, 4)),
    ("ii->i", (4, 4), None),
    ("ij->ji", (3, 4), None),
    ("ijk->k", (2, 3, 4), None),
    ("abc,cd->abd", (1, 2, 3), (3, 1)),
]


def _einsums(data: Data) -> Iterator[Call]:
    for dtype, (equation, first, second) in itertools.product(dtypes("Einsum"), _EQUATIONS):
        inputs = [data.normal(dtype, *first)]
        inputs += [data.normal(dtype, *second)] if second else []
        yield Call("Einsum", (inputs,), {"equation": equation}, ulps=32, scale=ARRAY)
        if second and dtype in dtypes("XlaEinsum") and "." not in equation:
            yield Call("XlaEinsum", tuple(inputs), {"equation": equation}, ulps=32, scale=ARRAY)


def _sparse_products(data: Data) -> Iterator[Call]:
    kinds = itertools.product(dtypes("SparseMatMul", "Ta"), dtypes("SparseMatMul", "Tb"))
    for first, second in kinds:
        for flags in itertools.product(_FLAGS, _FLAGS, _FLAGS):
            attrs = {"transpose_a": flags[0], "transpose_b": flags[1], "a_is_sparse": flags[2]}
            a = data.normal(first, *((4, 3) if flags[0] else (3, 4)))
            b = data.normal(second, *((5, 4) if flags[1] else (4, 5)))
            yield Call("SparseMatMul", (a, b), attrs, ulps=2**17, scale=ARRAY)


def _square(data: Data, dtype: tf.DType, *shape: int) -> Any:
    """Return matrices that are far from singular."""
    values = data.normal(dtype, *shape, scale=1.0)
    return (values + 4 * np.eye(shape[-1])).astype(values.dtype)


def _solutions(data: Data) -> Iterator[Call]:
    for dtype, adjoint in itertools.product(dtypes("MatrixSolve"), _FLAGS):
        a, b = _square(data, dtype, 2, 4, 4), data.normal(dtype, 2, 4, 3)
        yield Call("MatrixSolve", (a, b), {"adjoint": adjoint}, **_LINEAR)
    for dtype, adjoint in itertools.product(dtypes("MatrixInverse"), _FLAGS):
        for shape in ((2, 4, 4), (1, 1), (0, 3, 3)):
            inputs = (_square(data, dtype, *shape),)
            yield Call("MatrixInverse", inputs, {"adjoint": adjoint}, **_LINEAR)
    grid = itertools.product(dtypes("MatrixTriangularSolve"), _FLAGS, _FLAGS)
    for dtype, lower, adjoint in grid:
        attrs = {"lower": lower, "adjoint": adjoint}
        a, b = _square(data, dtype, 2, 4, 4), data.normal(dtype, 2, 4, 3)
        yield Call("MatrixTriangularSolve", (a, b), attrs, **_LINEAR)
        yield Call("MatrixTriangularSolve", (a[0], b), attrs, **_LINEAR, note="broadcast")


def _decompositions(data: Data) -> Iterator[Call]:
    shape: tuple[int, ...]
    for dtype in dtypes("Cholesky"):
        for shape in ((2, 4, 4), (1, 1), (3, 9, 9)):
            a = _square(data, dtype, *shape)
            positive = (a @ np.conj(np.swapaxes(a, -1, -2))).astype(a.dtype)
            yield Call("Cholesky", (positive,), **_LINEAR)
    for dtype, shape in itertools.product(dtypes("Qr"), ((4, 4), (2, 5, 3), (3, 5))):
        for full in _FLAGS:
            a = data.normal(dtype, *shape)
            function = lambda x, full=full: _product_of_qr(x, full)
            yield Call("Qr", (a,), function=function, **_LINEAR, note=f"full_matrices={full}")
    for dtype, shape in itertools.product(dtypes("Svd"), ((4, 4), (2, 5, 3), (3, 5))):
        a = data.normal(dtype, *shape)
        for full in _FLAGS:
            function = lambda x, full=full: _product_of_svd(x, full)
            yield Call("Svd", (a,), function=function, **_LINEAR, note=f"full_matrices={full}")
        yield Call("Svd", (a,), {"compute_uv": False}, **_LINEAR, results=(0,))
    for dtype in dtypes("SelfAdjointEigV2"):
        a = data.normal(dtype, 2, 4, 4)
        whole = (a + np.conj(np.swapaxes(a, -1, -2))).astype(a.dtype)
        yield Call("SelfAdjointEigV2", (whole,), function=_product_of_eigh, **_LINEAR)
        yield Call("SelfAdjointEigV2", (whole,), {"compute_v": False}, **_LINEAR, results=(0,))
        yield Call(
            "SelfAdjointEigV2", (a,), function=_product_of_eigh, **_LINEAR, note="lower half"
        )


def _product_of_qr(x: Any, full: bool) -> Any:
    q, r = tf.raw_ops.Qr(input=x, full_matrices=full)
    return tf.linalg.matmul(q, r), tf.linalg.matmul(q, q, adjoint_a=True), tf.shape(q)


def _product_of_svd(x: Any, full: bool) -> Any:
    s, u, v = tf.raw_ops.Svd(input=x, full_matrices=full)
    k = x.shape[-1] if x.shape[-1] < x.shape[-2] else x.shape[-2]
    scaled = u[..., :k] * s[..., None, :]
    return s, tf.linalg.matmul(scaled, v[..., :k], adjoint_b=True), tf.shape(u), tf.shape(v)


def _product_of_eigh(x: Any) -> Any:
    e, v = tf.raw_ops.SelfAdjointEigV2(input=x)
    return e, tf.linalg.matmul(v * tf.cast(e, v.dtype)[..., None, :], v, adjoint_b=True)


def _tridiagonals(data: Data) -> Iterator[Call]:
    for dtype in dtypes("TridiagonalSolve"):
        diagonals = data.normal(dtype, 2, 3, 6, scale=1.0)
        diagonals[:, 1] += np.array(5, diagonals.dtype)
        rhs = data.normal(dtype, 2, 6, 3)
        for pivoting in _FLAGS:
            attrs = {"partial_pivoting": pivoting}
            yield Call("TridiagonalSolve", (diagonals, rhs), attrs, **_LINEAR)
        parts = [np.ascontiguousarray(diagonals[:, None, n]) for n in range(3)]
        yield Call("TridiagonalMatMul", (*parts, rhs), **_LINEAR)


def _transforms(data: Data) -> Iterator[Call]:
    shapes = {
        "": ((2, 8), (3, 7), (1,)),
        "2D": ((2, 4, 6), (3, 5)),
        "3D": ((2, 3, 4, 5), (2, 2, 2)),
    }
    for (rank, some), dtype in itertools.product(shapes.items(), dtypes("FFT", "Tcomplex")):
        real = dtype.real_dtype
        for shape in some:
            x = data.normal(dtype, *shape)
            yield Call(f"FFT{rank}", (x,), ulps=64, scale=ARRAY)
            yield Call(f"IFFT{rank}", (x,), ulps=64, scale=ARRAY)
            axes = max(1, int(rank[:1] or 1))
            whole = np.array(shape[-axes:], np.int32)
            for lengths in (whole, whole + 2, np.maximum(whole - 1, 1)):
                attrs = {"Tcomplex": dtype}
                inputs = data.normal(real, *shape), lengths
                yield Call(f"RFFT{rank}", inputs, attrs, ulps=64, scale=ARRAY)
                attrs = {"Treal": real}
                yield Call(f"IRFFT{rank}", (x, lengths), attrs, ulps=64, scale=ARRAY)


def _softmaxes(data: Data) -> Iterator[Call]:
    inputs: tuple[Any, ...]
    for op in ("Softmax", "LogSoftmax"):
        for dtype, shape in itertools.product(dtypes(op), ((3, 7), (2, 0), (1, 1), (2, 3, 67))):
            yield Call(op, (data.normal(dtype, *shape),), ulps=32)
            yield Call(op, (100 * data.normal(dtype, *shape),), ulps=32, note="large")
        inf = np.array([[np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf] * 3, [np.nan, 1, 2]])
        for dtype in dtypes(op):
            inputs = (inf.astype(dtype.as_numpy_dtype),)
            yield Call(op, inputs, ulps=32, note="nan and inf")
    op = "SoftmaxCrossEntropyWithLogits"
    for dtype in dtypes(op):
        logits = data.normal(dtype, 4, 5)
        labels = data.positive(dtype, 4, 5, high=1.0)
        yield Call(op, (logits, labels), ulps=64, scale=ARRAY)
        yield Call(op, (logits, labels[:1]), ulps=64, scale=ARRAY, note="broadcast")
        yield Call(op, (logits, np.eye(4, 5, dtype=labels.dtype)), ulps=64, scale=ARRAY)
    op = "SparseSoftmaxCrossEntropyWithLogits"
    for dtype, kind in itertools.product(dtypes(op), dtypes(op, "Tlabels")):
        inputs = data.normal(dtype, 4, 5), data.integers(0, 5, 4, dtype=kind)
        yield Call(op, inputs, ulps=64, scale=ARRAY)


PARTS = (
    _products,
    _einsums,
    _sparse_products,
    _solutions,
    _decompositions,
    _tridiagonals,
    _transforms,
    _softmaxes,
)
