"""Calls of kernels that treat each element alone, and of short compositions of them."""
# ruff: noqa: E731 - each call has a short function of its own

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, ELEMENT, Call
from tests.kernels.data import Data, denormal, pairs, special, words
from tests.kernels.registry import dtypes

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
    ((3, 7), (3, 7)),
    ((), (5,)),
    ((33,), (1,)),
    ((2, 1, 3), (4, 1)),
    ((0, 3), (1, 3)),
    ((1, 1), (1, 1)),
]


def _unary(data: Data) -> Iterator[Call]:
    for op, (domain, ulps) in UNARY.items():
        data.start(op)
        # These have no attribute for their dtype.
        kinds = [tf.bool] if op == "LogicalNot" else dtypes(op)
        for dtype in kinds:
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
    if domain == _POSITIVE and not dtype.is_complex:
        return data.positive(dtype, *shape, low=0.02, high=0.98 if shape == (3, 5) else 9.0)
    if domain == _UNIT and not dtype.is_complex:
        return data.unit(dtype, *shape)
    if domain == _ABOVE_ONE and not dtype.is_complex:
        return data.positive(dtype, *shape, low=1.1, high=20.0)
    return data.normal(dtype, *shape)


def _binary(data: Data) -> Iterator[Call]:
    for op, ulps in BINARY.items():
        data.start(op)
        kinds = [tf.bool] if op.startswith("Logical") else dtypes(op)
        for dtype in kinds:
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
    data.start("Cast")
    for source in dtypes("Cast", "SrcT"):
        for target in dtypes("Cast", "DstT"):
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


def _others(data: Data) -> Iterator[Call]:  # noqa: C901 - a loop for each op
    for op in words("Identity Snapshot StopGradient PreventGradient CheckNumerics EnsureShape"):
        data.start(op)
        for dtype in dtypes(op):
            attrs: dict[str, Any] = {"CheckNumerics": {"message": "m"}}.get(op, {})
            attrs = {"EnsureShape": {"shape": [None, 3]}}.get(op, attrs)
            yield Call(op, (data.normal(dtype, 2, 3),), attrs, ulps=0)
    yield from _selects(data)
    yield from _clips(data)
    yield from _bitcasts(data)
    data.start("others")
    for dtype in dtypes("AddN"):
        yield Call("AddN", ([data.normal(dtype, 3, 3) for _ in range(4)],), ulps=4)
        yield Call("AddN", ([data.normal(dtype, 3)],), ulps=0)
    for dtype in dtypes("Complex"):
        parts = pairs(special(dtype))
        out = tf.complex128 if dtype == tf.float64 else tf.complex64
        yield Call("Complex", parts, {"Tout": out}, ulps=0)
    for dtype in dtypes("ApproximateEqual"):
        x = data.normal(dtype, 9)
        yield Call("ApproximateEqual", (x, x + data.normal(dtype, 9) / 100), {"tolerance": 0.01})
    for dtype in dtypes("LeakyRelu"):
        x = special(dtype)
        for alpha in (0.0, 0.3, 1.5, -0.5):
            yield Call("LeakyRelu", (x,), {"alpha": alpha}, ulps=2)
            yield Call("LeakyReluGrad", (x, x[::-1].copy()), {"alpha": alpha}, ulps=2)
    for dtype in dtypes("L2Loss"):
        yield Call("L2Loss", (data.normal(dtype, 37),), ulps=16)
        yield Call("L2Loss", (data.normal(dtype, 0),), ulps=0)
    for dtype in dtypes("Cross"):
        yield Call("Cross", (data.normal(dtype, 4, 3), data.normal(dtype, 4, 3)), scale="array")
    for dtype in dtypes("ToBool"):
        yield Call("ToBool", (data.normal(dtype, 3),))
        yield Call("ToBool", (np.zeros((), dtype.as_numpy_dtype),))
        yield Call("ToBool", (np.zeros((0,), dtype.as_numpy_dtype),))


def _selects(data: Data) -> Iterator[Call]:
    data.start("Select")
    shapes: list[Any] = [("Select", (3, 4), (3, 4), (3, 4)), ("Select", (3,), (3, 4), (3, 4))]
    shapes += [("Select", (), (3, 4), (3, 4)), ("SelectV2", (3, 1), (4,), ())]
    shapes += [("SelectV2", (2, 1, 1), (3, 1), (1, 4)), ("SelectV2", (0,), (1,), (1,))]
    for op, condition, first, second in shapes:
        for dtype in dtypes(op):
            inputs = data.normal(dtype, *first), data.normal(dtype, *second)
            yield Call(op, (data.normal(tf.bool, *condition), *inputs), ulps=0)


def _clips(data: Data) -> Iterator[Call]:
    data.start("ClipByValue")
    for dtype in dtypes("ClipByValue"):
        x = data.normal(dtype, 3, 7)
        low, high = np.array(1, x.dtype), np.array(3, x.dtype)
        if not dtype.is_complex:
            yield Call("ClipByValue", (x, low, high), ulps=0)
            yield Call("ClipByValue", (x, high, low), ulps=0, note="low above high")
            yield Call("ClipByValue", (x, np.full_like(x, 1), np.full_like(x, 3)), ulps=0)
            yield Call("ClipByValue", (special(dtype), low, high), ulps=0, note="special values")


def _bitcasts(data: Data) -> Iterator[Call]:
    data.start("Bitcast")
    for source in dtypes("Bitcast"):
        for target in dtypes("Bitcast", "type"):
            more = source.size / target.size
            shape = (3, 2) if more >= 1 else (3, int(1 / more))
            yield Call("Bitcast", (data.wide(source, *shape),), {"type": target}, ulps=0)


def _special_functions(data: Data) -> Iterator[Call]:
    data.start("special functions")
    for op in words("Igamma Igammac IgammaGradA RandomGammaGrad Polygamma Zeta"):
        for dtype in dtypes(op):
            first = data.positive(dtype, 4, 9, low=0.2, high=9.0)
            second = data.positive(dtype, 4, 9, low=0.2, high=9.0)
            if op == "Polygamma":
                first = np.rint(first)
            if op == "Zeta":
                first = first + np.array(1.1, first.dtype)
            yield Call(op, (first, second), ulps=512, scale="array")
            yield Call(op, (first[:, :1], second[:1]), ulps=512, scale="array", note="broadcast")
            edges = pairs(np.array([0, 1, -1, 2.5, np.inf, np.nan], first.dtype))
            yield Call(op, edges, ulps=512, note="special values", kind="edges of functions")
    for dtype in dtypes("Betainc"):
        a, b = data.positive(dtype, 5, 4), data.positive(dtype, 5, 4)
        x = data.positive(dtype, 5, 4, low=0.02, high=0.98)
        yield Call("Betainc", (a, b, x), ulps=512, scale="array")
        yield Call("Betainc", (a, b, x[0, 0]), ulps=512, scale="array")


_NARROW = (tf.int8, tf.int16, tf.uint8, tf.uint16, tf.half, tf.bfloat16, tf.int32)
_OVERFLOWING = {"Mul": tf.multiply, "AddV2": tf.add, "Sub": tf.subtract}
_AFTER: dict[str, Any] = {
    "Abs": tf.abs,
    "Neg": tf.negative,
    "Sign": tf.sign,
    "Square": tf.square,
    "Relu": tf.nn.relu,
    "Relu6": tf.nn.relu6,
    "Invert": tf.bitwise.invert,
    "PopulationCount": tf.raw_ops.PopulationCount,
    "Cast to int32": lambda x: tf.cast(x, tf.int32),
    "Cast to float32": lambda x: tf.cast(x, tf.float32),
    "Greater": lambda x: x > tf.cast(2, x.dtype),
    "Less": lambda x: x < tf.cast(2, x.dtype),
    "Equal": lambda x: tf.equal(x, tf.reverse(x, [0])),
    "Maximum": lambda x: tf.maximum(x, tf.cast(2, x.dtype)),
    "Minimum": lambda x: tf.minimum(x, tf.cast(2, x.dtype)),
    "FloorDiv": lambda x: tf.raw_ops.FloorDiv(x=x, y=tf.cast(3, x.dtype)),
    "FloorMod": lambda x: tf.raw_ops.FloorMod(x=x, y=tf.cast(3, x.dtype)),
    "TruncateDiv": lambda x: tf.raw_ops.TruncateDiv(x=x, y=tf.cast(3, x.dtype)),
    "RightShift": lambda x: tf.bitwise.right_shift(x, tf.cast(1, x.dtype)),
    "LeftShift": lambda x: tf.bitwise.left_shift(x, tf.cast(1, x.dtype)),
    "ClipByValue": lambda x: tf.clip_by_value(x, tf.cast(1, x.dtype), tf.cast(5, x.dtype)),
    "Sum": tf.reduce_sum,
    "Max": tf.reduce_max,
    "Prod": tf.reduce_prod,
    "ArgMax": tf.argmax,
    "Cumsum": tf.cumsum,
    "Round": tf.round,
    "Floor": tf.floor,
    "Pow": lambda x: tf.pow(x, tf.cast(2, x.dtype)),
    "SquaredDifference": lambda x: tf.raw_ops.SquaredDifference(x=x, y=tf.reverse(x, [0])),
    "TopKV2": lambda x: tf.math.top_k(x, 3),
    "Mean": tf.reduce_mean,
}


def _compositions(data: Data) -> Iterator[Call]:
    data.start("compositions")
    for dtype in _NARROW:
        numbers = special(dtype)
        if dtype.is_floating:
            numbers = numbers[np.isfinite(numbers.astype(np.float32))]
        x, y = pairs(numbers)
        for first, binary in _OVERFLOWING.items():
            for name, unary in _AFTER.items():
                yield _composition(name, unary, first, binary, x, y)
        for cast in (tf.int32, tf.float32):
            yield from _after_casts(cast, dtype, data)
    yield from _gradients_in_half(data)


def _composition(name: str, unary: Any, first: str, binary: Any, x: Any, y: Any) -> Call:
    floating = x.dtype.kind not in "iu"
    note = f"{name} of {first}"
    ulps = 8 if floating else 0
    if floating and name in ("Sum", "Mean", "Prod", "Cumsum", "FloorDiv", "FloorMod"):
        x, y = x[:3], y[:3]
    kind = "rounding of narrow floats" if floating else ""
    name = name.split()[0]
    function = lambda a, b: unary(binary(a, b))
    return Call(name, (x, y), function=function, ulps=ulps, note=note, kind=kind)


def _after_casts(source: tf.DType, dtype: tf.DType, data: Data) -> Iterator[Call]:
    """Yield what follows a cast to a narrow integer, which wraps around."""
    if not dtype.is_integer or not source.is_integer or dtype == source:
        return
    values = data.wide(source, 64)
    for name, unary in _AFTER.items():
        function = lambda x, unary=unary: unary(tf.cast(x, dtype))
        op = name.split()[0]
        note = f"{name} of Cast to {dtype.name}"
        yield Call(op, (values,), function=function, ulps=0, note=note)


def _gradients_in_half(data: Data) -> Iterator[Call]:
    for dtype in (tf.half, tf.bfloat16):
        low = float(ml_dtypes.finfo(dtype.as_numpy_dtype).eps)
        x = (1 + low * np.arange(16)).astype(dtype.as_numpy_dtype)
        function = lambda a: (a * a) - a
        yield Call(
            "Sub", (x,), function=function, ulps=4, scale="array", note=f"Sub of Mul, {dtype.name}"
        )


PARTS = (_unary, _binary, _casts, _others, _special_functions, _compositions)
