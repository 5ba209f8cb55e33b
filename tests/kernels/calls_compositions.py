"""Calls of short compositions, which XLA's simplifications make into something else.

XLA rewrites an op by what it takes: `abs(x * x)` is `x * x`, `sqrt(x) * sqrt(x)` is `x`. What is
true of real numbers is not true of those of a computer.
"""
# ruff: noqa: E731 - each call has a short function of its own

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call
from tests.kernels.data import Data, pairs, special, words

_TAKEN_FOR_POSITIVE = "what wraps around is taken for positive"
MORE_PRECISE = "XLA leaves out a step that overflows or rounds"

_INTEGERS = [tf.as_dtype(name) for name in words("int8 int16 int32 int64")]
_UNSIGNED = [tf.as_dtype(name) for name in words("uint8 uint16 uint32 uint64")]
_FLOATS = [tf.as_dtype(name) for name in words("half bfloat16 float32 float64")]

Function = Callable[..., Any]

# What is computed of `x`, or of `x` and `y`, for the op that it is about.
_OF_ONE_INTEGER = {
    "Abs": """abs(x * x); abs(square(x)); abs(-x); abs(abs(x)); abs(abs(x) * abs(x));
        abs(abs(x) + abs(x)); abs(maximum(x, 3) * maximum(x, 3)); abs(x ** 2);
        reduce_sum(abs(x * x))""",
    "Sign": "sign(x * x)",
    "Relu": "relu(x * x)",
    "GreaterEqual": "x * x >= 0; abs(x) >= 0",
    "Less": "x * x < 0; abs(x) < 0",
    "Maximum": "maximum(x * x, 0)",
    "Neg": "-(-x); -x < 0",
    "AddV2": "x + 1 > x",
    "Sub": "x - 1 < x",
    "FloorDiv": "x * 2 // 2",
    "RightShift": "right_shift(left_shift(x, 2), 2)",
    "LeftShift": "left_shift(right_shift(x, 2), 2)",
}
_DIVISORS = (1, 2, 3, 4, 7, 8, 64)
_OF_ONE_FLOAT = {
    "Log": """log(exp(x)); log(sqrt(x)); log(rsqrt(x)); log(x * x); log(x ** 2.0); log(x ** 3.0)""",
    "Exp": "exp(log(x))",
    "Mul": """sqrt(x) * sqrt(x); rsqrt(x) * rsqrt(x); x * 0; x * -1; x * 1; (x * 3) * 5;
        (x * 1e4) * 1e-4""",
    "Square": "square(sqrt(x))",
    "Sqrt": "sqrt(x * x)",
    "RealDiv": """1 / sqrt(x); 1 / rsqrt(x); x / sqrt(x); x / x; x / 3; (x / 3) / 5;
        x / (1e4 if x.dtype == half else 1e30); 1 / exp(x); 1 / x ** 2.0""",
    "Abs": "abs(x * x); abs(exp(x))",
    "Sub": "x - x; 0 - x",
    "AddV2": "x + 0",
    "Neg": "-(-x)",
    "Greater": "x > x",
    "Equal": "equal(x, x)",
    "NotEqual": "not_equal(x, x)",
    "LogicalNot": "logical_not(x < 1); logical_not(x >= 1)",
    "Minimum": "minimum(maximum(x, 1), 3); minimum(maximum(x, 3), 1)",
    "Maximum": "maximum(minimum(x, 3), 1); maximum(minimum(x, 1), 3)",
    "Pow": """x ** 0.5; x ** -0.5; x ** 0.0; x ** 1.0; x ** 2.0; x ** 3.0; x ** -1.0; x ** -2.0;
        x ** 1.5; 2 ** x; 1 ** x; 0 ** x; (x ** 2.0) ** 0.5; (x ** 0.5) ** 2.0;
        (x ** -1.0) ** -1.0; exp(x) ** 2.0""",
    "Floor": "floor(floor(x))",
    "FloorDiv": "x // 3; x // 0.1",
    "FloorMod": "x % 3; x % -3; x % 0.1",
    "Sign": "sign(sign(x))",
    "Relu": "relu(-relu(x))",
    "Softmax": "softmax(log(abs(x) + 1))",
    "SelectV2": "where(x > 0, sqrt(x), 0)",
    "MulNoNan": "multiply_no_nan(log(x), x)",
    "Max": "reduce_max(x * 1.5)",
    "Min": "reduce_min(-x)",
    "Tanh": "tanh(atanh(x))",
}
_OF_TWO_FLOATS = {
    "Mul": "exp(x) * exp(y); (x / y) * y; sqrt(x) * sqrt(y)",
    "RealDiv": "x / exp(y); x / y ** 2.0; (x / y) / 3; x / (y / 3); (x * y) / y",
    "Sub": "(x + y) - y; x * y - x * y; x - (-y); maximum(x, y) - minimum(x, y)",
    "AddV2": "x * 3 + y * 3; x * y + x; log(x) + log(y)",
    "Log": "log(x / y); log(x ** y)",
    "Pow": "(x ** y) ** 0.5",
    "Real": "real(complex(single(x), single(y)))",
    "ComplexAbs": "abs(complex(single(x), single(y)))",
    "SelectV2": "where(x < y, x, y); where(equal(x, y), x, y)",
}
# What follows an op that overflows in narrow numbers.
_OVERFLOWING = {"Mul": "x * y", "AddV2": "x + y", "Sub": "x - y"}
_NARROW = [tf.as_dtype(name) for name in words("int8 int16 uint8 uint16 half bfloat16 int32")]
_AFTER = {
    "Abs": "abs(x)", "Neg": "-x", "Sign": "sign(x)", "Square": "square(x)", "Relu": "relu(x)",
    "Relu6": "relu6(x)", "Invert": "invert(x)", "PopulationCount": "raw.PopulationCount(x=x)",
    "Cast": "cast(x, int32); cast(x, float32)", "Greater": "x > 2", "Less": "x < 2",
    "Equal": "equal(x, reverse(x, [0]))", "Maximum": "maximum(x, 2)", "Minimum": "minimum(x, 2)",
    "FloorDiv": "raw.FloorDiv(x=x, y=3)", "FloorMod": "raw.FloorMod(x=x, y=3)",
    "TruncateDiv": "raw.TruncateDiv(x=x, y=3)", "RightShift": "right_shift(x, 1)",
    "LeftShift": "left_shift(x, 1)", "ClipByValue": "clip_by_value(x, 1, 5)",
    "Sum": "reduce_sum(x)", "Max": "reduce_max(x)", "Prod": "reduce_prod(x)",
    "ArgMax": "argmax(x)", "Cumsum": "cumsum(x)", "Round": "round(x)", "Floor": "floor(x)",
    "Pow": "x ** 2", "SquaredDifference": "squared_difference(x, reverse(x, [0]))",
    "TopKV2": "top_k(x, 3)", "Mean": "reduce_mean(x)",
}  # fmt: skip


def _single(x: Any) -> Any:
    return x if x.dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)


# What the texts may name.
_NAMES = {"single": _single, "raw": tf.raw_ops} | {
    name: getattr(module, name)
    for module in (tf, tf.nn, tf.bitwise, tf.math)
    for name in dir(module)
}


def _functions(table: dict[str, str]) -> Iterator[tuple[str, str, Function]]:
    """Yield the op, the text and the function of each entry of a table."""
    for op, texts in table.items():
        for text in texts.split(";"):
            note = " ".join(text.split())
            yield op, note, eval(f"lambda x, y=None: {note}", _NAMES)


def _of_integers(data: Data) -> Iterator[Call]:
    for dtype in _INTEGERS:
        values = np.concatenate([special(dtype), data.wide(dtype, 20)])
        for op, note, function in _functions(_OF_ONE_INTEGER):
            kind = _TAKEN_FOR_POSITIVE if op in ("Less", "GreaterEqual") else ""
            yield Call(op, (values,), function=function, note=note, kind=kind)
    for dtype in (*_INTEGERS, *_UNSIGNED):
        values = np.concatenate([special(dtype), data.wide(dtype, 20)])
        divisors = _DIVISORS + (() if dtype.is_unsigned else (-1, -2, -3, -8))
        for divisor in divisors:
            yield from _by_constants(values, divisor)


def _by_constants(values: Any, divisor: int) -> Iterator[Call]:
    if divisor == -1:
        values = values[values != np.iinfo(values.dtype).min]
    for op in words("FloorDiv FloorMod TruncateDiv TruncateMod Mul"):
        if op == "TruncateMod" and values.dtype not in (np.int32, np.int64):
            continue
        call = getattr(tf.raw_ops, op)
        function = lambda x, call=call, divisor=divisor: call(x=x, y=divisor)
        yield Call(op, (values,), function=function, note=f"by the constant {divisor}")
        if op.endswith("Div"):
            function = lambda x, call=call, d=divisor: call(x=call(x=x, y=d), y=3)
            yield Call(op, (values,), function=function, note=f"by {divisor} and 3")


def _finite(values: Any) -> Any:
    """Return those that can neither overflow nor be too small after a few steps."""
    wide = np.abs(values.astype(np.float64))
    return values[np.isfinite(wide) & (wide < 20) & ((wide > 0.01) | (wide == 0))]


def _of_floats(data: Data) -> Iterator[Call]:
    for dtype in _FLOATS:
        numbers = special(dtype)
        finite = _finite(numbers)
        common = np.concatenate([finite, data.normal(dtype, 20)])
        yield from _common_and_special(_OF_ONE_FLOAT, dtype, (common,), (numbers,))
        yield from _common_and_special(_OF_TWO_FLOATS, dtype, pairs(finite), pairs(numbers))


def _common_and_special(
    table: dict[str, str], dtype: tf.DType, common: Any, numbers: Any
) -> Iterator[Call]:
    # Fractions of less than a unit in the last place are lost by some of these.
    options: dict[str, Any] = {"ulps": 64, "scale": ARRAY}
    for op, note, function in _functions(table):
        yield Call(op, common, function=function, note=f"{note}, {dtype.name}", **options)
        more: dict[str, Any] = {"note": f"{note}, special values", "kind": MORE_PRECISE}
        yield Call(op, numbers, function=function, **options, **more)


def _chains_of_casts(data: Data) -> Iterator[Call]:
    kinds = (*_INTEGERS, *_UNSIGNED, *_FLOATS, tf.bool)
    for source in (*_INTEGERS, *_UNSIGNED, *_FLOATS):
        for middle in kinds:
            if middle == source or (source.is_floating and middle.is_integer):
                continue
            values = data.wide(source, 24)
            if not source.is_integer:
                values = np.concatenate([values, special(source)])
            if source.is_integer and middle.is_floating:
                # What is near to a power of two is out of range after it is rounded.
                values = data.normal(source, 24) if middle == tf.half else values // 2
            function = lambda x, middle=middle, source=source: tf.cast(tf.cast(x, middle), source)
            note = f"{source.name} to {middle.name} and back"
            yield Call("Cast", (values,), function=function, ulps=0, note=note)


def _of_sums(data: Data) -> Iterator[Call]:
    for dtype in (*_INTEGERS, *_UNSIGNED):
        x = data.wide(dtype, 6, 50)
        for name, reduce in (("Mean", tf.reduce_mean), ("Sum", tf.reduce_sum)):
            function = lambda x, reduce=reduce: reduce(x, axis=1)
            yield Call(name, (x,), function=function, ulps=0, note=f"{name} of {dtype.name}")
        yield Call("Mean", (x,), function=lambda x: tf.reduce_mean(x, axis=[0, 1]), ulps=0)
    for dtype in _FLOATS:
        large = 200 * data.positive(dtype, 3, 400)
        means = {"Mean": tf.reduce_mean, "Sum": tf.reduce_sum, "Max": tf.reduce_max}
        for name, reduce in means.items():
            note = f"{name} of many, {dtype.name}"
            function = lambda x, reduce=reduce: reduce(x, axis=1)
            kind = "" if dtype.size > 2 else "sums in narrow floats"
            yield Call(name, (large,), function=function, ulps=400, note=note, kind=kind)


def _after_overflows(data: Data) -> Iterator[Call]:
    for dtype in _NARROW:
        numbers = special(dtype)
        if dtype.is_floating:
            numbers = numbers[np.isfinite(numbers.astype(np.float32))]
        kind = "rounding of narrow floats" if dtype.is_floating else ""
        options: dict[str, Any] = {"ulps": 8 if dtype.is_floating else 0, "kind": kind}
        for op, text, after in _functions(_AFTER):
            x, y = pairs(numbers)
            if dtype.is_floating and op in words("Sum Mean Prod Cumsum FloorDiv FloorMod"):
                x, y = x[:3], y[:3]
            for first, _, before in _functions(_OVERFLOWING):
                both = lambda x, y, after=after, before=before: after(before(x, y))
                yield Call(op, (x, y), function=both, note=f"{text} of {first}", **options)
            if dtype.is_integer and dtype != tf.int32:
                # A cast to a narrow integer wraps around.
                cast = lambda x, after=after, dtype=dtype: after(tf.cast(x, dtype))
                note = f"{text} of Cast to {dtype.name}"
                yield Call(op, (data.wide(tf.int32, 64),), function=cast, ulps=0, note=note)


def _narrow_squares(data: Data) -> Iterator[Call]:
    for dtype in (tf.half, tf.bfloat16):
        low = float(ml_dtypes.finfo(dtype.as_numpy_dtype).eps)
        x = (1 + low * np.arange(16)).astype(dtype.as_numpy_dtype)
        note = f"Sub of Mul, {dtype.name}"
        yield Call("Sub", (x,), function=lambda x: x * x - x, ulps=4, scale=ARRAY, note=note)


PARTS = (_of_integers, _of_floats, _chains_of_casts, _of_sums, _after_overflows, _narrow_squares)
