"""Calls of kernels that quantize, and of those that make random numbers."""
# ruff: noqa: E731 - each call has a short function of its own

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call
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


def _uniform(data: Data) -> Iterator[Call]:
    x = data.normal(np.float32, 4, 6)
    for axis in (-1, 1):
        scales = _float(0.05) if axis < 0 else data.positive(np.float32, 6, high=0.2)
        zeros = ints(3) if axis < 0 else data.integers(-5, 5, 6)
        axes = {"quantization_axis": axis}
        for out, limits in ((tf.qint8, _INT8), (tf.qint32, _INT32)):
            attrs = {**axes, **limits, "Tout": out}
            function = lambda x, s, z, attrs=attrs, out=out: tf.cast(
                tf.raw_ops.UniformQuantize(input=x, scales=s, zero_points=z, **attrs), tf.int32
            )
            note = f"{out.name}, axis {axis}"
            yield Call("UniformQuantize", (x, scales, zeros), function=function, note=note)
            attrs = {**axes, **limits, "Tout": tf.float32}
            function = lambda x, s, z, attrs=attrs, out=out: tf.raw_ops.UniformDequantize(
                input=tf.cast(x, out), scales=s, zero_points=z, **attrs
            )
            inputs = data.integers(-128, 128, 4, 6), scales, zeros
            yield Call("UniformDequantize", inputs, function=function, note=note)
        yield from _requantized(data, axis, scales, zeros)
        attrs = {**axes, **_INT32}
        clip: Any = lambda x, a, b, s, z, attrs=attrs: tf.cast(
            tf.raw_ops.UniformQuantizedClipByValue(
                operand=tf.cast(x, tf.qint32),
                min=tf.cast(a, tf.qint32),
                max=tf.cast(b, tf.qint32),
                scales=s,
                zero_points=z,
                **attrs,
            ),
            tf.int32,
        )
        ends = ints(-40) if axis < 0 else ints([-40] * 6), ints(50) if axis < 0 else ints([50] * 6)
        values = data.integers(-128, 128, 4, 6), *ends, scales, zeros
        yield Call("UniformQuantizedClipByValue", values, function=clip, note=f"axis {axis}")


def _requantized(data: Data, axis: int, scales: Any, zeros: Any) -> Iterator[Call]:
    for source, target in ((tf.qint8, tf.qint8), (tf.qint32, tf.qint8)):
        attrs = {
            f"input_{name}": value
            for name, value in (_INT8 if source == tf.qint8 else _INT32).items()
        }
        attrs |= {f"output_{name}": value for name, value in _INT8.items()}
        attrs |= {"input_quantization_axis": axis, "output_quantization_axis": axis}
        function = lambda x, s, z, u, v, source=source, attrs=attrs, target=target: tf.cast(
            tf.raw_ops.UniformRequantize(
                input=tf.cast(x, source),
                input_scales=s,
                input_zero_points=z,
                output_scales=u,
                output_zero_points=v,
                Tout=target,
                **attrs,
            ),
            tf.int32,
        )
        inputs = data.integers(-128, 128, 4, 6), scales, zeros, scales * np.float32(1.7), zeros
        note = f"{source.name} to {target.name}, axis {axis}"
        yield Call("UniformRequantize", inputs, function=function, note=note)


def _uniform_products(data: Data) -> Iterator[Call]:
    sides = ("lhs", "rhs", "output")
    limits = {
        f"{side}_{name}": value
        for side in sides
        for name, value in (_INT32 if side == "output" else _INT8).items()
    }
    points = (_float(0.05), ints(3), _float(0.08), ints(-2), _float(0.1), ints(4))
    for op, shapes in (
        ("UniformQuantizedDot", ((3, 4), (4, 5))),
        ("UniformQuantizedConvolution", ((2, 3, 6, 5), (4, 3, 2, 3))),
    ):
        more = {"Tout": tf.qint32}
        more |= {"padding": "VALID"} if op.endswith("Convolution") else {}
        function = lambda a, b, *rest, op=op, more=more: tf.cast(
            _uniform_op(op, tf.cast(a, tf.qint8), tf.cast(b, tf.qint8), rest, {**limits, **more}),
            tf.int32,
        )
        values = [data.integers(-128, 128, *shape) for shape in shapes]
        # The right side of a product is symmetric.
        inputs = (*values, *points[:3], ints(0), *points[4:])
        yield Call(op, inputs, function=function, kind=_ROUNDED)
    limits = {name: {**_INT32}.get(name.split("_", 1)[1], 0) for name in limits}
    function = lambda a, b, *rest: tf.cast(
        _uniform_op(
            "UniformQuantizedAdd", tf.cast(a, tf.qint32), tf.cast(b, tf.qint32), rest, limits
        ),
        tf.int32,
    )
    inputs = (data.integers(-128, 128, 3, 4), data.integers(-128, 128, 4), *points)
    yield Call("UniformQuantizedAdd", inputs, function=function, kind=_ROUNDED)


def _uniform_op(op: str, lhs: Any, rhs: Any, points: Any, attrs: dict[str, Any]) -> Any:
    names = [f"{side}_{name}" for side in ("lhs", "rhs", "output") for name in _POINTS]
    return getattr(tf.raw_ops, op)(
        lhs=lhs, rhs=rhs, **dict(zip(names, points, strict=True)), **attrs
    )


_POINTS = ("scales", "zero_points")
_SEED = np.array([7, 11], np.int32)


def _random(data: Data) -> Iterator[Call]:  # noqa: C901 - a loop for each kind of op
    shape = ints([3, 4])
    random: dict[str, Any] = {"shapes_only": True}
    for op in words("RandomStandardNormal RandomUniform TruncatedNormal"):
        for dtype in dtypes(op, "dtype"):
            yield Call(op, (shape,), {"dtype": dtype}, **random)
    for dtype in dtypes("RandomUniformInt", "Tout"):
        limits = np.array(1, dtype.as_numpy_dtype), np.array(9, dtype.as_numpy_dtype)
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
        limits = np.array(1, dtype.as_numpy_dtype), np.array(9, dtype.as_numpy_dtype)
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
