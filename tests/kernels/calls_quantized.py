"""Calls of kernels that quantize, and of those that make random numbers."""
# ruff: noqa: E731 - each call has a short function of its own

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call, apply
from tests.kernels.data import Data, ints
from tests.kernels.rows import Each, every, row

_FLAGS = (False, True)
_EITHER = Each(False, True)
_INT8 = {"quantization_min_val": -128, "quantization_max_val": 127}
_INT32 = {"quantization_min_val": -(2**31), "quantization_max_val": 2**31 - 1}
_EIGHT: dict[str, Any] = {"ulps": 8, "scale": ARRAY}
_ROUNDED = "quantized numbers that are rounded otherwise"


def _float(value: Any) -> Any:
    return np.array(value, np.float32)


def _fakes(data: Data) -> Iterator[Call]:
    x, back = 4 * data.normal(np.float32, 5, 6), data.normal(np.float32, 5, 6)
    halves = _float(np.arange(-24, 24) / 4)
    of_args, of_each, of_rows = (
        f"FakeQuantWithMinMax{what}" for what in ("Args", "Vars", "VarsPerChannel")
    )
    limits = [(-6.0, 6.0), (0.0, 6.0), (-3.1, 4.7), (0.5, 3.0), (-4.0, -1.0)]
    for (low, high), bits, narrow in itertools.product(limits, (8, 4, 2), _FLAGS):
        attrs = {"num_bits": bits, "narrow_range": narrow}
        fixed = {**attrs, "min": low, "max": high}
        yield Call(of_args, (x,), fixed, **_EIGHT)
        yield Call(of_args, (halves,), fixed, **_EIGHT, note="halves")
        yield Call(f"{of_args}Gradient", (back, x), fixed, **_EIGHT)
        ends = _float(low), _float(high)
        sides = _float([low] * 6), _float([high + n for n in range(6)])
        for op, inputs in ((of_each, (x, *ends)), (of_rows, (x, *sides))):
            yield Call(op, inputs, attrs, **_EIGHT)
            yield Call(f"{op}Gradient", (back, *inputs), attrs, ulps=64, scale=ARRAY)
        yield Call(of_rows, (x[0], *sides), attrs, **_EIGHT)
    yield Call(of_each, (x, _float(0), _float(0)), note="no range")


_MODES = {"num_bits": Each(8, 4, 3), "round_mode": Each("HALF_TO_EVEN", "HALF_UP")}
_ROUNDINGS = tuple(
    row(ops, x, low, high, *bits, T=every, signed_input=least < 0, range_given=_EITHER,
        narrow_range=_EITHER, **_EIGHT, **attrs, **more)
    for ops, bits, attrs in (
        ("QuantizeAndDequantizeV2 QuantizeAndDequantizeV4", [], _MODES),
        ("QuantizeAndDequantizeV3", [Each(8, 4)], {}),
    )
    for least, lower in ((-2.5, -4), (0, 0))
    for x, low, high, more in (
        ((4, 5), least, 3, {}),
        (np.arange(-8, 8) / 2, lower, 3.5, {"note": "halves"}),
        ((4, 5), [least] * 5, [3] * 5, {"axis": 1}),
    )
)  # fmt: skip


def _dequantized(data: Data) -> Iterator[Call]:
    grid = itertools.product(
        ("qint8", "quint8", "qint16", "quint16"),
        (tf.float32, tf.bfloat16),
        ("MIN_COMBINED", "MIN_FIRST", "SCALED"),
        _FLAGS,
    )
    for kind, out, mode, narrow in grid:
        attrs = {"mode": mode, "narrow_range": narrow, "dtype": out}
        # NumPy has no quantized arrays.
        function = lambda x, a, b, kind=kind, attrs=attrs: tf.raw_ops.Dequantize(
            input=tf.bitcast(x, tf.as_dtype(kind)), min_range=a, max_range=b, **attrs
        )
        inputs = data.wide(kind.replace("q", ""), 4, 5), _float(-2.0), _float(6.0)
        note = f"{kind} {mode} narrow_range={narrow} {out.name}"
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


_SEED = [7, 11]
draw = functools.partial(row, shapes_only=True)
_RANDOM = (
    draw("RandomStandardNormal RandomUniform TruncatedNormal", [3, 4], dtype=every),
    draw("RandomUniformInt", [3, 4], 1, 9, Tout=every),
    draw("RandomShuffle", (4, 2)),
    draw("Multinomial", (3, 4), 5),
    draw("StatelessMultinomial", (3, 4), 5, _SEED),
    draw("ParameterizedTruncatedNormal", [3], 0, 1, -1, 2, dtype=every),
    draw("StatelessParameterizedTruncatedNormal", [3], _SEED, 0, 1, -1, 2, dtype=every),
    draw("StatelessRandomNormal StatelessRandomUniform StatelessTruncatedNormal", [3, 4], _SEED,
         dtype=every),
    draw("StatelessRandomUniformInt", [3, 4], _SEED, 1, 9, dtype=every),
    draw("StatelessRandomUniformFullInt", [3, 4], _SEED, dtype=every),
    draw("StatelessRandomGetAlg"),
    draw("StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg", _SEED, Tseed=every),
)  # fmt: skip

# Philox is the same algorithm everywhere; the last steps of floats are rounded otherwise.
_FLOATS = "StatelessRandomNormalV2 StatelessRandomUniformV2 StatelessTruncatedNormalV2"
_KEYED = tuple(
    row(ops, [3, 4], [9], counter, algorithm, *limits, dtype=every, note=name,
        shapes_only=ops == _FLOATS or name != "Philox")
    for algorithm, name, counter in ((1, "Philox", [5, 0]), (2, "ThreeFry", [5]))
    for ops, limits in (
        (_FLOATS, []),
        ("StatelessRandomUniformIntV2", [1, 9]),
        ("StatelessRandomUniformFullIntV2", []),
    )
)  # fmt: skip

PARTS = (_fakes, _dequantized, _uniform, _uniform_products, *_ROUNDINGS, *_RANDOM, *_KEYED)
