"""The smallest calls that show what the table of wrong kernels says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels import calls_linear
from tests.kernels.call import ARRAY, Call


def cases() -> list[Call]:
    """Return calls of the ops of the table, each of which differs."""
    return [*_of_numbers(), *_of_images(), *_of_pools(), *_quantized(), *_of_matrices()]


def _of_numbers() -> Iterator[Call]:
    for dtype, number in (("int8", 12), ("int16", 200), ("int32", 50000), ("int64", 3037000500)):
        x = np.array([number], dtype)
        yield Call("Abs", (x,), function=lambda x: tf.abs(x * x), note="abs(x * x)")
    x = np.array([1j, 1, 0], np.complex64)
    yield Call("Cast", (x,), {"DstT": tf.bool})
    yield Call("Cast", (x.astype(np.complex128),), {"DstT": tf.bool})
    for whole in (np.int32, np.uint32):
        x = np.full(3, np.iinfo(whole).max, whole)
        yield Call("Mean", (x, np.int32(0)))
    for kind in (np.float32, np.float64):
        inputs = np.arange(4, dtype=kind).reshape(2, 2), np.array([1, 0], np.int32)
        yield Call("ConjugateTranspose", inputs)
    for op, edge in (("SqrtGrad", 0.0), ("RsqrtGrad", np.inf), ("ReciprocalGrad", np.inf)):
        for dtype in (tf.half, tf.bfloat16, tf.float32, tf.float64):
            y = np.array([edge], dtype.as_numpy_dtype)
            yield Call(op, (y, np.zeros_like(y)))
        for dtype in (tf.complex64, tf.complex128):
            y = np.array([1 + 2j], dtype.as_numpy_dtype)
            yield Call(op, (y, np.ones_like(y)))
    for dtype in (tf.half, tf.bfloat16, tf.float32, tf.float64):
        y = np.zeros(1, dtype.as_numpy_dtype)
        yield Call("SeluGrad", (np.ones_like(y), y))

    empty = np.zeros(0, np.float32)
    one, begin, end, strides = (np.array([n], np.int32) for n in (1, 1, 0, 2))
    yield Call("StridedSliceGrad", (one, begin, end, strides, empty), {"end_mask": 1})


def _of_images() -> Iterator[Call]:
    image = np.arange(5, dtype=np.float32).reshape(1, 5, 1, 1)
    row = image.reshape(1, 1, 5, 1)
    for corners, centers, size in ((True, False, 15), (False, False, 15), (False, True, 9)):
        attrs = {"align_corners": corners, "half_pixel_centers": centers}
        for array, sizes in ((image, (size, 1)), (row, (1, size))):
            inputs = array, np.array(sizes, np.int32)
            yield Call("ResizeBilinear", inputs, attrs, ulps=64, scale=ARRAY)
        if not corners:
            grads = np.arange(size, dtype=np.float32).reshape(1, size, 1, 1)
            yield Call("ResizeBilinearGrad", (grads, image), attrs, ulps=64, scale=ARRAY)
    negative = np.array([[[-0.5, -0.1, -0.3]]], np.float32)
    yield Call("AdjustHue", (negative, np.float32(0.0)), ulps=64, scale=ARRAY)


def _of_pools() -> Iterator[Call]:
    image = np.array([1, 1.001], np.float32)
    grads = np.array([5, 7], np.float32)
    flat, cube = (1, 1, 2, 1), (1, 1, 1, 2, 1)
    attrs: dict[str, Any] = {"ksize": [1, 1, 2, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
    inputs = image.reshape(flat), image[1:].reshape(1, 1, 1, 1), grads.reshape(flat)
    yield Call("MaxPoolGradGrad", inputs, attrs)
    windows = np.array(attrs["ksize"], np.int32), np.array(attrs["strides"], np.int32)
    yield Call("MaxPoolGradGradV2", (*inputs, *windows), {"padding": "VALID"})
    inputs = image.reshape(cube), image[1:].reshape(1, 1, 1, 1, 1), grads.reshape(cube)
    attrs = {"ksize": [1, *attrs["ksize"]], "strides": [1] * 5, "padding": "VALID"}
    yield Call("MaxPool3DGradGrad", inputs, attrs)


def _quantized() -> Iterator[Call]:
    # With eight bits the zero point of this range is 127.5.
    x, low, high = np.array([[9.0]], np.float32), np.float32(-6), np.float32(6)
    edge = np.array([[6.01]], np.float32)
    one = np.ones_like(x)
    op = "FakeQuantWithMinMaxVars"
    yield Call(op, (x, low, high))
    yield Call(op, (x, np.float32(0), np.float32(0)), note="an empty range")
    yield Call(f"{op}Gradient", (one, edge, low, high))
    rows = np.full(6, low), high + np.arange(6, dtype=np.float32)
    six = np.ones((1, 6), np.float32)
    yield Call(f"{op}PerChannel", (9 * six, *rows))
    yield Call(f"{op}PerChannelGradient", (six, np.float32(6.01) * six, *rows))


def _of_matrices() -> Iterator[Call]:
    square = np.array([[2.0, 1.0, 0.3], [1.0, 3.0, 0.5], [0.3, 0.5, 1.0]])
    options: dict[str, Any] = {"ulps": 1e4, "scale": ARRAY}
    yield Call(
        "Svd", (square,), function=lambda x: calls_linear.product_of_svd(x, full=False), **options
    )
    yield Call("SelfAdjointEigV2", (square,), function=calls_linear.product_of_eigh, **options)
    whole = square.astype(np.complex64)
    for array in (whole, whole.astype(np.complex128)):
        yield Call("SelfAdjointEigV2", (array,), {"compute_v": False}, results=(0,), **options)
