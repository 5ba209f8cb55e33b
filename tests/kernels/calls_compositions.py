"""Calls of short compositions, which XLA's simplifications make into something else.

XLA rewrites an op by what it takes: `abs(x * x)` is `x * x`, `sqrt(x) * sqrt(x)` is `x`. What is
true of real numbers is not true of those of a computer.
"""
# ruff: noqa: E731 - each call has a short function of its own

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

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

# The op that each of them is about, and what is called. Constants are of the dtype of `x`.
_OF_ONE_INTEGER: dict[str, tuple[str, Function]] = {
    "abs(x*x)": ("Abs", lambda x: tf.abs(x * x)),
    "abs(square(x))": ("Abs", lambda x: tf.abs(tf.square(x))),
    "abs(-x)": ("Abs", lambda x: tf.abs(-x)),
    "abs(abs(x))": ("Abs", lambda x: tf.abs(tf.abs(x))),
    "abs(abs(x)*abs(x))": ("Abs", lambda x: tf.abs(tf.abs(x) * tf.abs(x))),
    "abs(abs(x)+abs(x))": ("Abs", lambda x: tf.abs(tf.abs(x) + tf.abs(x))),
    "abs(max(x, 3)*max(x, 3))": ("Abs", lambda x: tf.abs(tf.maximum(x, 3) * tf.maximum(x, 3))),
    "abs(pow(x, 2))": ("Abs", lambda x: tf.abs(tf.pow(x, _of(2, x)))),
    "sign(x*x)": ("Sign", lambda x: tf.sign(x * x)),
    "relu(x*x)": ("Relu", lambda x: tf.nn.relu(x * x)),
    "x*x >= 0": ("GreaterEqual", lambda x: x * x >= 0),
    "x*x < 0": ("Less", lambda x: x * x < 0),
    "max(x*x, 0)": ("Maximum", lambda x: tf.maximum(x * x, 0)),
    "abs(x) >= 0": ("GreaterEqual", lambda x: tf.abs(x) >= 0),
    "abs(x) < 0": ("Less", lambda x: tf.abs(x) < 0),
    "-(-x)": ("Neg", lambda x: tf.negative(-x)),
    "-x < 0": ("Neg", lambda x: -x < 0),
    "x + 1 > x": ("AddV2", lambda x: x + 1 > x),
    "x - 1 < x": ("Sub", lambda x: x - 1 < x),
    "x * 2 // 2": ("FloorDiv", lambda x: x * 2 // 2),
    "(x << 2) >> 2": ("RightShift", lambda x: _right(_left(x, 2), 2)),
    "(x >> 2) << 2": ("LeftShift", lambda x: _left(_right(x, 2), 2)),
    "reduce_sum(abs(x*x))": ("Abs", lambda x: tf.reduce_sum(tf.abs(x * x))),
}
_DIVISORS = (1, 2, 3, 4, 7, 8, 64)
_OF_ONE_FLOAT: dict[str, tuple[str, Function]] = {
    "log(exp(x))": ("Log", lambda x: tf.math.log(tf.exp(x))),
    "exp(log(x))": ("Exp", lambda x: tf.exp(tf.math.log(x))),
    "sqrt(x)*sqrt(x)": ("Mul", lambda x: tf.sqrt(x) * tf.sqrt(x)),
    "square(sqrt(x))": ("Square", lambda x: tf.square(tf.sqrt(x))),
    "sqrt(x*x)": ("Sqrt", lambda x: tf.sqrt(x * x)),
    "rsqrt(x)*rsqrt(x)": ("Mul", lambda x: tf.math.rsqrt(x) * tf.math.rsqrt(x)),
    "1/sqrt(x)": ("RealDiv", lambda x: 1 / tf.sqrt(x)),
    "1/rsqrt(x)": ("RealDiv", lambda x: 1 / tf.math.rsqrt(x)),
    "x/sqrt(x)": ("RealDiv", lambda x: x / tf.sqrt(x)),
    "log(sqrt(x))": ("Log", lambda x: tf.math.log(tf.sqrt(x))),
    "log(rsqrt(x))": ("Log", lambda x: tf.math.log(tf.math.rsqrt(x))),
    "log(x*x)": ("Log", lambda x: tf.math.log(x * x)),
    "abs(x*x)": ("Abs", lambda x: tf.abs(x * x)),
    "abs(exp(x))": ("Abs", lambda x: tf.abs(tf.exp(x))),
    "x*0": ("Mul", lambda x: x * 0),
    "x-x": ("Sub", lambda x: x - x),
    "x/x": ("RealDiv", lambda x: x / x),
    "x+0": ("AddV2", lambda x: x + 0),
    "0-x": ("Sub", lambda x: 0 - x),
    "x*-1": ("Mul", lambda x: x * -1),
    "-(-x)": ("Neg", lambda x: tf.negative(-x)),
    "x*1": ("Mul", lambda x: x * 1),
    "x/3": ("RealDiv", lambda x: x / 3),
    "x/1e30": ("RealDiv", lambda x: x / 1e30 if x.dtype != tf.half else x / 1e4),
    "(x/3)/5": ("RealDiv", lambda x: (x / 3) / 5),
    "(x*3)*5": ("Mul", lambda x: (x * 3) * 5),
    "(x*1e4)*1e-4": ("Mul", lambda x: (x * 1e4) * 1e-4),
    "x>x": ("Greater", lambda x: x > x),
    "x==x": ("Equal", lambda x: tf.equal(x, x)),
    "x!=x": ("NotEqual", lambda x: tf.not_equal(x, x)),
    "not x<1": ("LogicalNot", lambda x: tf.logical_not(x < 1)),
    "not x>=1": ("LogicalNot", lambda x: tf.logical_not(x >= 1)),
    "min(max(x, 1), 3)": ("Minimum", lambda x: tf.minimum(tf.maximum(x, 1), 3)),
    "max(min(x, 3), 1)": ("Maximum", lambda x: tf.maximum(tf.minimum(x, 3), 1)),
    "min(max(x, 3), 1)": ("Minimum", lambda x: tf.minimum(tf.maximum(x, 3), 1)),
    "max(min(x, 1), 3)": ("Maximum", lambda x: tf.maximum(tf.minimum(x, 1), 3)),
    "x^0.5": ("Pow", lambda x: tf.pow(x, 0.5)),
    "x^-0.5": ("Pow", lambda x: tf.pow(x, -0.5)),
    "x^0": ("Pow", lambda x: tf.pow(x, 0.0)),
    "x^1": ("Pow", lambda x: tf.pow(x, 1.0)),
    "x^2": ("Pow", lambda x: tf.pow(x, 2.0)),
    "x^3": ("Pow", lambda x: tf.pow(x, 3.0)),
    "x^-1": ("Pow", lambda x: tf.pow(x, -1.0)),
    "x^-2": ("Pow", lambda x: tf.pow(x, -2.0)),
    "x^1.5": ("Pow", lambda x: tf.pow(x, 1.5)),
    "2^x": ("Pow", lambda x: tf.pow(_of(2, x), x)),
    "1^x": ("Pow", lambda x: tf.pow(_of(1, x), x)),
    "0^x": ("Pow", lambda x: tf.pow(_of(0, x), x)),
    "(x^2)^0.5": ("Pow", lambda x: tf.pow(tf.pow(x, 2.0), 0.5)),
    "(x^0.5)^2": ("Pow", lambda x: tf.pow(tf.pow(x, 0.5), 2.0)),
    "(x^-1)^-1": ("Pow", lambda x: tf.pow(tf.pow(x, -1.0), -1.0)),
    "log(x^2)": ("Log", lambda x: tf.math.log(tf.pow(x, 2.0))),
    "log(x^3)": ("Log", lambda x: tf.math.log(tf.pow(x, 3.0))),
    "exp(x)^2": ("Pow", lambda x: tf.pow(tf.exp(x), 2.0)),
    "1/exp(x)": ("RealDiv", lambda x: 1 / tf.exp(x)),
    "1/x^2": ("RealDiv", lambda x: 1 / tf.pow(x, 2.0)),
    "floor(floor(x))": ("Floor", lambda x: tf.floor(tf.floor(x))),
    "x//3": ("FloorDiv", lambda x: x // 3),
    "x//0.1": ("FloorDiv", lambda x: x // 0.1),
    "x%3": ("FloorMod", lambda x: x % 3),
    "x%-3": ("FloorMod", lambda x: x % -3),
    "x%0.1": ("FloorMod", lambda x: x % 0.1),
    "sign(sign(x))": ("Sign", lambda x: tf.sign(tf.sign(x))),
    "relu(-relu(x))": ("Relu", lambda x: tf.nn.relu(-tf.nn.relu(x))),
    "softmax(log)": ("Softmax", lambda x: tf.nn.softmax(tf.math.log(tf.abs(x) + 1))),
    "where(x>0, sqrt(x), 0)": ("SelectV2", lambda x: tf.where(x > 0, tf.sqrt(x), 0)),
    "mul_no_nan(log(x), x)": ("MulNoNan", lambda x: tf.math.multiply_no_nan(tf.math.log(x), x)),
    "reduce_max": ("Max", lambda x: tf.reduce_max(x * 1.5)),
    "reduce_min(-x)": ("Min", lambda x: tf.reduce_min(-x)),
    "tanh(atanh)": ("Tanh", lambda x: tf.tanh(tf.atanh(x))),
}
_OF_TWO_FLOATS: dict[str, tuple[str, Function]] = {
    "exp(x)*exp(y)": ("Mul", lambda x, y: tf.exp(x) * tf.exp(y)),
    "x/exp(y)": ("RealDiv", lambda x, y: x / tf.exp(y)),
    "x/y^2": ("RealDiv", lambda x, y: x / tf.pow(y, 2.0)),
    "(x/y)/3": ("RealDiv", lambda x, y: (x / y) / 3),
    "x/(y/3)": ("RealDiv", lambda x, y: x / (y / 3)),
    "(x/y)*y": ("Mul", lambda x, y: (x / y) * y),
    "x*y/y": ("RealDiv", lambda x, y: (x * y) / y),
    "x+y-y": ("Sub", lambda x, y: (x + y) - y),
    "x*3+y*3": ("AddV2", lambda x, y: x * 3 + y * 3),
    "x*y+x": ("AddV2", lambda x, y: x * y + x),
    "x*y-x*y": ("Sub", lambda x, y: x * y - x * y),
    "x-(-y)": ("Sub", lambda x, y: x - (-y)),
    "sqrt(x)*sqrt(y)": ("Mul", lambda x, y: tf.sqrt(x) * tf.sqrt(y)),
    "log(x)+log(y)": ("AddV2", lambda x, y: tf.math.log(x) + tf.math.log(y)),
    "log(x/y)": ("Log", lambda x, y: tf.math.log(x / y)),
    "x^y^0.5": ("Pow", lambda x, y: tf.pow(tf.pow(x, y), 0.5)),
    "log(x^y)": ("Log", lambda x, y: tf.math.log(tf.pow(x, y))),
    "max(x, y) - min(x, y)": ("Sub", lambda x, y: tf.maximum(x, y) - tf.minimum(x, y)),
    "complex": ("Real", lambda x, y: tf.math.real(tf.complex(_wide(x), _wide(y)))),
    "abs(complex)": ("ComplexAbs", lambda x, y: tf.abs(tf.complex(_wide(x), _wide(y)))),
    "where(x<y, x, y)": ("SelectV2", lambda x, y: tf.where(x < y, x, y)),
    "where(x==y, x, y)": ("SelectV2", lambda x, y: tf.where(tf.equal(x, y), x, y)),
}


def _of(number: float, x: Any) -> Any:
    return tf.constant(number, x.dtype)


def _wide(x: Any) -> Any:
    return x if x.dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)


def _left(x: Any, bits: int) -> Any:
    return tf.bitwise.left_shift(x, _of(bits, x))


def _right(x: Any, bits: int) -> Any:
    return tf.bitwise.right_shift(x, _of(bits, x))


def _of_integers(data: Data) -> Iterator[Call]:
    for dtype in _INTEGERS:
        values = np.concatenate([special(dtype), data.wide(dtype, 20)])
        for note, (op, function) in _OF_ONE_INTEGER.items():
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
        function = lambda x, call=call, divisor=divisor: call(x=x, y=_of(divisor, x))
        yield Call(op, (values,), function=function, note=f"by the constant {divisor}")
        if op.endswith("Div"):
            function = lambda x, call=call, d=divisor: call(x=call(x=x, y=_of(d, x)), y=_of(3, x))
            yield Call(op, (values,), function=function, note=f"by {divisor} and 3")


def _finite(values: Any) -> Any:
    """Return those that can neither overflow nor be too small after a few steps."""
    wide = np.abs(values.astype(np.float64))
    return values[np.isfinite(wide) & (wide < 20) & ((wide > 0.01) | (wide == 0))]


def _of_floats(data: Data) -> Iterator[Call]:
    for dtype in _FLOATS:
        numbers = special(dtype)
        common = np.concatenate([_finite(numbers), data.normal(dtype, 20)])
        yield from _common_and_special(_OF_ONE_FLOAT, dtype, (common,), (numbers,))


def _of_pairs(data: Data) -> Iterator[Call]:
    for dtype in _FLOATS:
        numbers = special(dtype)
        common = pairs(_finite(numbers))
        yield from _common_and_special(_OF_TWO_FLOATS, dtype, common, pairs(numbers))


def _common_and_special(
    table: dict[str, tuple[str, Function]], dtype: tf.DType, common: Any, numbers: Any
) -> Iterator[Call]:
    # Fractions of less than a unit in the last place are lost by some of these.
    options: dict[str, Any] = {"ulps": 64, "scale": ARRAY}
    for note, (op, function) in table.items():
        yield Call(op, common, function=function, note=f"{note}, {dtype.name}", **options)
        more: dict[str, Any] = {"note": f"{note}, special values", "kind": MORE_PRECISE}
        yield Call(op, numbers, function=function, **options, **more)


def _cast(x: Any, kinds: tuple[tf.DType, ...]) -> Any:
    return functools.reduce(tf.cast, kinds, x)


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
            function = lambda x, middle=middle, source=source: _cast(x, (middle, source))
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


PARTS = (_of_integers, _of_floats, _of_pairs, _chains_of_casts, _of_sums)
