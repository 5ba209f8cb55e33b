"""Calls of kernels that quantize, and of those that make random numbers."""
# ruff: noqa: E731 - each call has a short function of its own

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call, apply
from tests.kernels.data import Data, ints, words
from tests.kernels.registry import dtypes

_FLAGS = (False, True)
_INT8 = {"quantization_min_val": -128, "quantization_max_val": 127}
_INT32 = {"quantization_min_val": -(2**31), "quantization_max_val": 2**31 - 1}


_ROUNDED = "quantized numbers that are rounded otherwise"


def _float(value: Any) -> Any:
    return np.array(value, np.float32)


def _fakes(data: Data) -> Iterator[Call]:
    x, back = 4 * data.normal(np.float32, 5, 6), data.normal(np.float32, 5, 6)
    halves = np.arange(-24, 24).astype(np.float32) / np.float32(4)
    limits = [(-6.0, 6.0), (0.0, 6.0), (-3.1, 4.7), (0.5, 3.0), (-4.0, -1.0)]
    for (low, high), bits, narrow in itertools.product(limits, (8, 4, 2), _FLAGS):
        attrs = {"num_bits": bits, "narrow_range": narrow}
        fixed = {**attrs, "min": low, "max": high}
        rounding: dict[str, Any] = {"ulps": 8, "scale": ARRAY}
        op = "FakeQuantWithMinMaxArgs"
        yield Call(op, (x,), fixed, **rounding)
        yield Call(op, (halves,), fixed, **rounding, note="halves")
        yield Call(f"{op}Gradient", (back, x), fixed, **rounding)
        op = "FakeQuantWithMinMaxVars"
        ends = _float(low), _float(high)
        yield Call(op, (x, *ends), attrs, **rounding)
        yield Call(f"{op}Gradient", (back, x, *ends), attrs, ulps=64, scale=ARRAY)
        ends = _float([low] * 6), _float([high + n for n in range(6)])
        op = "FakeQuantWithMinMaxVarsPerChannel"
        yield Call(op, (x, *ends), attrs, **rounding)
        yield Call(op, (x[0], *ends), attrs, **rounding)
        yield Call(f"{op}Gradient", (back, x, *ends), attrs, ulps=64, scale=ARRAY)
    zero = _float(0), _float(0)
    yield Call("FakeQuantWithMinMaxVars", (x, *zero), note="no range")


def _rounded(data: Data) -> Iterator[Call]:
    grid = itertools.product((8, 4, 3), _FLAGS, _FLAGS, _FLAGS, ("HALF_TO_EVEN", "HALF_UP"))
    for bits, signed, given, narrow, mode in grid:
        for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
            for dtype in dtypes(op):
                attrs: dict[str, Any] = {"num_bits": bits, "signed_input": signed}
                attrs["range_given"] = given
                attrs |= {"narrow_range": narrow, "round_mode": mode}
                yield from _one_rounded(data, op, dtype, attrs, ())
    for signed, given, narrow in itertools.product(_FLAGS, _FLAGS, _FLAGS):
        for dtype, bits in itertools.product(dtypes("QuantizeAndDequantizeV3"), (8, 4)):
            attrs = {"signed_input": signed, "range_given": given, "narrow_range": narrow}
            yield from _one_rounded(data, "QuantizeAndDequantizeV3", dtype, attrs, (ints(bits),))


def _one_rounded(
    data: Data, op: str, dtype: tf.DType, attrs: dict[str, Any], more: tuple[Any, ...]
) -> Iterator[Call]:
    x = data.normal(dtype, 4, 5)
    low = np.array(-2.5 if attrs["signed_input"] else 0, x.dtype)
    high = np.array(3, x.dtype)
    rounding: dict[str, Any] = {"ulps": 8, "scale": ARRAY}
    yield Call(op, (x, low, high, *more), attrs, **rounding)
    halves = (np.arange(-8, 8) / 2).astype(x.dtype)
    ends = np.array(-4 if attrs["signed_input"] else 0, x.dtype), np.array(3.5, x.dtype)
    yield Call(op, (halves, *ends, *more), attrs, **rounding, note="halves")
    axes = {**attrs, "axis": 1}
    rows = np.full(5, low, x.dtype), np.full(5, high, x.dtype)
    yield Call(op, (x, *rows, *more), axes, **rounding)


def _quantized(data: Data, dtype: tf.DType, *shape: int) -> Any:
    """Return a function that makes a quantized tensor: NumPy has no such arrays."""
    plain = {tf.qint8: np.int8, tf.quint8: np.uint8, tf.qint32: np.int32, tf.qint16: np.int16}
    return data.wide(plain.get(dtype, np.uint16), *shape)


def _dequantized(data: Data) -> Iterator[Call]:
    kinds = itertools.product(
        (tf.qint8, tf.quint8, tf.qint16, tf.quint16), (tf.float32, tf.bfloat16)
    )
    for (dtype, out), mode in itertools.product(kinds, ("MIN_COMBINED", "MIN_FIRST", "SCALED")):
        for narrow in _FLAGS:
            attrs = {"mode": mode, "narrow_range": narrow, "dtype": out}
            function = lambda x, a, b, dtype=dtype, attrs=attrs: tf.raw_ops.Dequantize(
                input=tf.bitcast(x, dtype), min_range=a, max_range=b, **attrs
            )
            inputs = _quantized(data, dtype, 4, 5), _float(-2.0), _float(6.0)
            note = f"{dtype.name} {mode} narrow_range={narrow} {out.name}"
            yield Call("Dequantize", inputs, function=function, ulps=64, scale=ARRAY, note=note)


def _on_quantized(op: str, kinds: dict[int, tf.DType], attrs: dict[str, Any]) -> Any:
    """Return a function that calls an op with some integers taken for quantized numbers."""

    def function(*inputs: Any) -> Any:
        taken = [tf.cast(x, kinds[n]) if n in kinds else x for n, x in enumerate(inputs)]
        result = apply(op, tuple(taken), attrs)
        return tf.cast(result, tf.int32) if result.dtype.is_quantized else result

    return function


def _of(side: str, limits: dict[str, int]) -> dict[str, int]:
    return {f"{side}_{name}": value for name, value in limits.items()}


def _uniform(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4, 6)
    for axis in (-1, 1):
        scales = _float(0.05) if axis < 0 else data.positive(np.float32, 6, high=0.2)
        zeros = ints(3) if axis < 0 else data.integers(-5, 5, 6)
        for out, limits in ((tf.qint8, _INT8), (tf.qint32, _INT32)):
            attrs = {"quantization_axis": axis, **limits}
            note = f"{out.name}, axis {axis}"
            op = "UniformQuantize"
            function = _on_quantized(op, {}, {**attrs, "Tout": out})
            yield Call(op, (x, scales, zeros), function=function, note=note)
            op = "UniformDequantize"
            inputs: Any = data.integers(-128, 128, 4, 6), scales, zeros
            function = _on_quantized(op, {0: out}, {**attrs, "Tout": tf.float32})
            yield Call(op, inputs, function=function, note=note)
        for source, limits in ((tf.qint8, _INT8), (tf.qint32, _INT32)):
            op = "UniformRequantize"
            attrs = {**_of("input", limits), **_of("output", _INT8), "Tout": tf.qint8}
            attrs |= {"input_quantization_axis": axis, "output_quantization_axis": axis}
            inputs = data.integers(-128, 128, 4, 6), scales, zeros, scales * np.float32(1.7), zeros
            note = f"{source.name} to qint8, axis {axis}"
            yield Call(op, inputs, function=_on_quantized(op, {0: source}, attrs), note=note)
        op = "UniformQuantizedClipByValue"
        ends = ints(-40) if axis < 0 else ints([-40] * 6), ints(50) if axis < 0 else ints([50] * 6)
        values = data.integers(-128, 128, 4, 6), *ends, scales, zeros
        kinds = dict.fromkeys(range(3), tf.qint32)
        function = _on_quantized(op, kinds, {"quantization_axis": axis, **_INT32})
        yield Call(op, values, function=function, note=f"axis {axis}")


def _uniform_products(data: Data) -> Iterator[Call]:
    attrs: dict[str, Any] = {**_of("lhs", _INT8), **_of("rhs", _INT8), **_of("output", _INT32)}
    points = (_float(0.05), ints(3), _float(0.08), ints(-2), _float(0.1), ints(4))
    for op, shapes, more in (
        ("UniformQuantizedDot", ((3, 4), (4, 5)), {}),
        ("UniformQuantizedConvolution", ((2, 3, 6, 5), (4, 3, 2, 3)), {"padding": "VALID"}),
    ):
        values = [data.integers(-128, 128, *shape) for shape in shapes]
        # The right side of a product is symmetric.
        inputs = (*values, *points[:3], ints(0), *points[4:])
        kinds = {0: tf.qint8, 1: tf.qint8}
        function = _on_quantized(op, kinds, {**attrs, **more, "Tout": tf.qint32})
        yield Call(op, inputs, function=function, kind=_ROUNDED)
    op = "UniformQuantizedAdd"
    inputs = (data.integers(-128, 128, 3, 4), data.integers(-128, 128, 4), *points)
    attrs |= {**_of("lhs", _INT32), **_of("rhs", _INT32)}
    function = _on_quantized(op, {0: tf.qint32, 1: tf.qint32}, attrs)
    yield Call(op, inputs, function=function, kind=_ROUNDED)


_SEED = np.array([7, 11], np.int32)


def _one_to_nine(dtype: tf.DType) -> tuple[Any, Any]:
    return np.array(1, dtype.as_numpy_dtype), np.array(9, dtype.as_numpy_dtype)


def _random(data: Data) -> Iterator[Call]:  # noqa: C901 - a loop for each kind of op
    shape = ints([3, 4])
    random: dict[str, Any] = {"shapes_only": True}
    for op in words("RandomStandardNormal RandomUniform TruncatedNormal"):
        for dtype in dtypes(op, "dtype"):
            yield Call(op, (shape,), {"dtype": dtype}, **random)
    for dtype in dtypes("RandomUniformInt", "Tout"):
        limits = _one_to_nine(dtype)
        yield Call("RandomUniformInt", (shape, *limits), **random)
    for dtype in dtypes("RandomShuffle"):
        yield Call("RandomShuffle", (data.normal(dtype, 4, 2),), **random)
    for dtype in dtypes("Multinomial"):
        yield Call("Multinomial", (data.normal(dtype, 3, 4), ints(5)), **random)
        if dtype in dtypes("StatelessMultinomial"):
            inputs = data.normal(dtype, 3, 4), ints(5), _SEED
            yield Call("StatelessMultinomial", inputs, **random)
    op = "ParameterizedTruncatedNormal"
    for dtype in dtypes(op, "dtype"):
        edges = [np.array(value, dtype.as_numpy_dtype) for value in (0, 1, -1, 2)]
        yield Call(op, (ints([3]), *edges), **random)
        yield Call(f"Stateless{op}", (ints([3]), _SEED, *edges), **random)
    for op in words("RandomNormal RandomUniform TruncatedNormal"):
        for dtype in dtypes(f"Stateless{op}", "dtype"):
            yield Call(f"Stateless{op}", (shape, _SEED), {"dtype": dtype}, **random)
            yield from _with_key(data, f"Stateless{op}V2", (), {"dtype": dtype})
    for dtype in dtypes("StatelessRandomUniformInt", "dtype"):
        limits = _one_to_nine(dtype)
        yield Call("StatelessRandomUniformInt", (shape, _SEED, *limits), **random)
        yield from _with_key(data, "StatelessRandomUniformIntV2", limits, {})
        attrs = {"dtype": dtype}
        yield Call("StatelessRandomUniformFullInt", (shape, _SEED), attrs, **random)
    for dtype in dtypes("StatelessRandomUniformFullIntV2", "dtype"):
        yield from _with_key(data, "StatelessRandomUniformFullIntV2", (), {"dtype": dtype})


_ALGORITHMS = {1: "Philox", 2: "ThreeFry"}


def _with_key(
    data: Data, op: str, limits: tuple[Any, ...], attrs: dict[str, Any]
) -> Iterator[Call]:
    for algorithm, name in _ALGORITHMS.items():
        counter = np.array([5, 0] if algorithm == 1 else [5], np.uint64)
        inputs = (ints([3, 4]), np.array([9], np.uint64), counter, ints(algorithm), *limits)
        # Philox is the same algorithm everywhere; the last steps of floats are rounded otherwise.
        same = algorithm == 1 and "Int" in op
        yield Call(op, inputs, attrs, shapes_only=not same, note=name)


def _keys(data: Data) -> Iterator[Call]:
    yield Call("StatelessRandomGetAlg", (), shapes_only=True)
    for kind in (np.int32, np.int64):
        seed = _SEED.astype(kind)
        yield Call("StatelessRandomGetKeyCounter", (seed,), shapes_only=True)
        yield Call("StatelessRandomGetKeyCounterAlg", (seed,), shapes_only=True)


PARTS = (_fakes, _rounded, _dequantized, _uniform, _uniform_products, _random, _keys)
