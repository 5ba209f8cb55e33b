"""Calls of kernels that treat each element alone."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, ELEMENT, Call
from tests.kernels.data import Data, denormal, pairs, special, words
from tests.kernels.registry import dtypes
from tests.kernels.rows import Each, positive, row, rows, specials

UNDEFINED = "undefined in C++"

# Each unary op, with the numbers that it is for and how many units its results may differ by.
_ANY, _POSITIVE, _UNIT, _ABOVE_ONE = "any", "positive", "unit", "above one"
UNARY: dict[str, tuple[str, float]] = {
    **dict.fromkeys(
        words("""Abs Ceil Floor Round Rint Sign Neg Square Conj Invert LogicalNot IsFinite IsInf
        IsNan Relu Relu6 ZerosLike OnesLike PopulationCount Real Imag"""),
        (_ANY, 1),
    ),
    **dict.fromkeys(words("Inv Reciprocal Softsign LeakyRelu"), (_ANY, 3)),
    **dict.fromkeys(
        words("""Atan Asinh Cos Sin Tan Sinh Cosh Tanh Sigmoid Exp Expm1 Erf Erfc Elu Selu Softplus
        Angle ComplexAbs"""),
        (_ANY, 12),
    ),
    **dict.fromkeys(words("BesselI0e BesselI1e"), (_ANY, 32)),
    **dict.fromkeys(words("Sqrt Rsqrt Log Log1p"), (_POSITIVE, 8)),
    **dict.fromkeys(words("Lgamma Digamma"), (_POSITIVE, 64)),
    **dict.fromkeys(words("Acos Asin Atanh"), (_UNIT, 12)),
    "Acosh": (_ABOVE_ONE, 12),
    "Erfinv": (_UNIT, 32),
    "Ndtri": (_POSITIVE, 32),
}
BINARY: dict[str, float] = {
    **dict.fromkeys(
        words("""Add AddV2 Sub Mul Maximum Minimum SquaredDifference MulNoNan BitwiseAnd BitwiseOr
        BitwiseXor LeftShift RightShift LogicalAnd LogicalOr Equal NotEqual Less LessEqual Greater
        GreaterEqual FloorDiv FloorMod Mod TruncateDiv TruncateMod NextAfter ReluGrad
        Relu6Grad"""),
        1,
    ),
    **dict.fromkeys(
        words("""Div RealDiv DivNoNan LeakyReluGrad EluGrad SeluGrad SoftsignGrad SigmoidGrad
        TanhGrad SqrtGrad ReciprocalGrad RsqrtGrad"""),
        6,
    ),
    **dict.fromkeys(words("Atan2 Xdivy Xlogy Xlog1py SoftplusGrad"), 12),
    "Pow": 16,
}
# Near to a root of theirs, what is left of a difference is no more than rounding.
_WITH_ROOTS = ("Digamma", "Lgamma", "Erfinv")
_TO_REAL = ("Real", "Imag", "Angle", "ComplexAbs")
_SHIFTS = ("LeftShift", "RightShift")
_DIVISIONS = words("Div FloorDiv FloorMod Mod TruncateDiv TruncateMod")
_NO_BROADCAST = words("""ReluGrad Relu6Grad LeakyReluGrad EluGrad SeluGrad SoftsignGrad SoftplusGrad
SigmoidGrad TanhGrad SqrtGrad ReciprocalGrad RsqrtGrad""")
_SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 7), (3, 7)), ((), (5,)), ((33,), (1,)), ((2, 1, 3), (4, 1)), ((0, 3), (1, 3)),
    ((1, 1), (1, 1)),
]  # fmt: skip


def _unary(data: Data) -> Iterator[Call]:
    for op, (domain, ulps) in UNARY.items():
        data.start(op)
        # It has no attribute for its dtype.
        for dtype in [tf.bool] if op == "LogicalNot" else dtypes(op):
            attrs = {"Tout": dtype.real_dtype} if op in _TO_REAL else {}
            scale = ARRAY if op in _WITH_ROOTS else ELEMENT
            for shape in ((3, 5), (), (0,), (67,), (1, 2, 1)):
                inputs = (_domain(data, domain, dtype, shape),)
                yield Call(op, inputs, attrs, ulps=ulps, scale=scale)
            yield Call(op, (special(dtype),), attrs, ulps=ulps, note="special values")
            if dtype.is_floating:
                yield Call(op, (data.wide(dtype, 40),), attrs, ulps=ulps, note="wide")
                yield Call(op, (denormal(dtype),), attrs, ulps=ulps, note="denormal numbers")
            if op in ("Round", "Rint") and dtype.is_floating:
                halves = np.arange(-4.5, 5, 0.5).astype(dtype.as_numpy_dtype)
                yield Call(op, (halves,), attrs, ulps=ulps, note="halves")


def _domain(data: Data, domain: str, dtype: tf.DType, shape: tuple[int, ...]) -> Any:
    if domain == _ANY or dtype.is_complex:
        return data.normal(dtype, *shape)
    if domain == _POSITIVE:
        return data.positive(dtype, *shape, low=0.02, high=0.98 if shape == (3, 5) else 9.0)
    if domain == _UNIT:
        return data.unit(dtype, *shape)
    return data.positive(dtype, *shape, low=1.1, high=20.0)


def _binary(data: Data) -> Iterator[Call]:
    for op, ulps in BINARY.items():
        data.start(op)
        for dtype in [tf.bool] if op.startswith("Logical") else dtypes(op):
            yield from _one_binary(data, op, ulps, dtype)


def _one_binary(data: Data, op: str, ulps: float, dtype: tf.DType) -> Iterator[Call]:
    for first, second in _SHAPES:
        if op in _NO_BROADCAST and first != second:
            continue
        x, y = data.normal(dtype, *first), _second(data, op, dtype, second)
        yield Call(op, (x, y), ulps=ulps)
    if op == "Pow" and dtype.is_integer:
        return
    x, y = pairs(special(dtype))
    if op in _DIVISIONS and dtype.is_integer:
        yield from _divisions(op, x, y)
    elif op in _SHIFTS:
        bits = dtype.size * 8
        fits = (y >= 0) & (y < bits)
        yield Call(op, (x[fits], y[fits]), ulps=ulps, note="special values")
        yield Call(op, (x[~fits], y[~fits]), ulps=ulps, note="too far", kind=UNDEFINED)
    else:
        yield Call(op, (x, y), ulps=ulps, note="special values")
    if dtype.is_floating:
        yield Call(op, pairs(denormal(dtype)), ulps=ulps, note="denormal numbers")
        wide = data.wide(dtype, 40), data.wide(dtype, 40)
        yield Call(op, wide, ulps=ulps, note="wide")


def _second(data: Data, op: str, dtype: tf.DType, shape: tuple[int, ...]) -> Any:
    if op == "Pow" or op in _DIVISIONS or op in ("RealDiv", "Xlogy", "Xlog1py", "Xdivy"):
        return data.positive(dtype, *shape)
    if op in _SHIFTS:
        return data.integers(0, dtype.size * 8, *shape, dtype=dtype)
    return data.normal(dtype, *shape)


def _divisions(op: str, x: Any, y: Any) -> Iterator[Call]:
    smallest = np.iinfo(x.dtype).min
    overflow = (x == smallest) & (y == np.array(-1).astype(x.dtype)) & (smallest < 0)
    good = (y != 0) & ~overflow
    yield Call(op, (x[good], y[good]), ulps=1, note="special values")
    yield Call(op, (x[overflow], y[overflow]), note="overflow", kind=UNDEFINED)
    yield Call(op, (x, y), note="by zero", kind="division by zero")


def _casts(data: Data) -> Iterator[Call]:
    for source, target in itertools.product(dtypes("Cast", "SrcT"), dtypes("Cast", "DstT")):
        attrs = {"DstT": target}
        # What becomes of a negative number that is cast to an unsigned one, C++ leaves open.
        make = data.positive if target.is_unsigned else data.normal
        yield Call("Cast", (make(source, 3, 5),), attrs, ulps=1)
        yield from _special_casts(source, target, attrs)
        if source.is_floating and target.is_floating:
            yield Call("Cast", (data.wide(source, 9),), {**attrs, "Truncate": True}, ulps=1)
            yield Call("Cast", (denormal(source),), attrs, ulps=1, note="denormal numbers")


def _special_casts(source: tf.DType, target: tf.DType, attrs: dict[str, Any]) -> Iterator[Call]:
    values = special(source)
    whole = values.real if source.is_complex else values
    out = np.zeros(values.shape, bool)
    if (source.is_floating or source.is_complex) and target.is_integer:
        wide = whole.astype(np.float64)
        out = ~(np.isfinite(wide) & (wide > float(target.min) - 1) & (wide < float(target.max)))
    yield Call("Cast", (values[~out],), attrs, ulps=1, note="special values")
    if out.any():
        yield Call("Cast", (values[out],), attrs, note="out of range", kind=UNDEFINED)


def _real(dtype: tf.DType) -> bool:
    return not dtype.is_complex


def _backwards(data: Data, dtype: tf.DType) -> Any:
    return special(dtype)[::-1].copy()


same = functools.partial(row, ulps=0)
_PROBABILITIES = (positive(5, 4, low=0.02, high=0.98), positive(low=0.02, high=0.98))
_OTHERS = (
    same("Identity Snapshot StopGradient PreventGradient", (2, 3)),
    same("CheckNumerics", (2, 3), message="m"),
    same("EnsureShape", (2, 3), shape=[None, 3]),
    rows("Select", ((3, 4), (3, 4), (3, 4)), ((3,), (3, 4), (3, 4)), ((), (3, 4), (3, 4)), ulps=0),
    rows("SelectV2", ((3, 1), (4,), ()), ((2, 1, 1), (3, 1), (1, 4)), ((0,), (1,), (1,)), ulps=0),
    same("ClipByValue", (3, 7), 1, 3, T=_real),
    same("ClipByValue", (3, 7), 3, 1, T=_real, note="low above high"),
    same("ClipByValue", (3, 7), np.ones((3, 7)), np.full((3, 7), 3), T=_real),
    same("ClipByValue", specials, 1, 3, T=_real, note="special values"),
    row("AddN", [(3, 3)] * 4, ulps=4),
    same("AddN", [(3,)]),
    row("LeakyRelu", specials, alpha=Each(0.0, 0.3, 1.5, -0.5), ulps=2),
    row("LeakyReluGrad", specials, _backwards, alpha=Each(0.0, 0.3, 1.5, -0.5), ulps=2),
    row("L2Loss", (37,), ulps=16),
    same("L2Loss", (0,)),
    row("Cross", (4, 3), (4, 3), scale=ARRAY),
    row("ToBool", Each((3,), 0, [])),
    row("Betainc", positive(5, 4), positive(5, 4), Each(*_PROBABILITIES), ulps=512, scale=ARRAY),
)


def _pairs_of_parts(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Complex"):
        out = tf.complex128 if dtype == tf.float64 else tf.complex64
        yield Call("Complex", pairs(special(dtype)), {"Tout": out}, ulps=0)
    for dtype in dtypes("ApproximateEqual"):
        x = data.normal(dtype, 9)
        yield Call("ApproximateEqual", (x, x + data.normal(dtype, 9) / 100), {"tolerance": 0.01})


def _bitcasts(data: Data) -> Iterator[Call]:
    for source, target in itertools.product(dtypes("Bitcast"), dtypes("Bitcast", "type")):
        last = target.size // source.size if target.size > source.size else 2
        yield Call("Bitcast", (data.wide(source, 3, last),), {"type": target}, ulps=0)


def _special_functions(data: Data) -> Iterator[Call]:
    for op in words("Igamma Igammac IgammaGradA RandomGammaGrad Polygamma Zeta"):
        for dtype in dtypes(op):
            first, second = (data.positive(dtype, 4, 9, low=0.2, high=9.0) for _ in range(2))
            if op == "Polygamma":
                first = np.rint(first)
            if op == "Zeta":
                first = first + np.array(1.1, first.dtype)
            yield Call(op, (first, second), ulps=512, scale=ARRAY)
            yield Call(op, (first[:, :1], second[:1]), ulps=512, scale=ARRAY, note="broadcast")
            edges = pairs(np.array([0, 1, -1, 2.5, np.inf, np.nan], first.dtype))
            yield Call(op, edges, ulps=512, note="special values", kind="edges of functions")


PARTS = (
    _unary, _binary, _casts, _pairs_of_parts, _bitcasts, _special_functions, *_OTHERS
)  # fmt: skip
