"""Calls of convolutions, pools, resizes and other kernels for images."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call, apply
from tests.kernels.data import Data, ints
from tests.kernels.registry import dtypes

_PADDINGS = ("SAME", "VALID")
_PRODUCT: dict[str, Any] = {"ulps": 64, "scale": ARRAY}


def _array(tensor: Any) -> Any:
    return np.asarray(tensor.numpy(), tensor.dtype.as_numpy_dtype)


# Height and width, the filter's, input channels, groups, strides, dilations.
_CONVOLUTIONS: list[tuple[int, int, int, int, int, int, int, int, int]] = [
    (6, 7, 3, 2, 3, 1, 1, 1, 1),
    (6, 7, 3, 3, 2, 1, 2, 1, 1),
    (7, 5, 2, 3, 4, 2, 1, 1, 1),
    (5, 6, 1, 1, 3, 1, 2, 1, 1),
    (7, 8, 3, 3, 2, 1, 1, 2, 2),
    (6, 6, 6, 6, 2, 1, 1, 1, 1),
    (8, 9, 2, 3, 2, 1, 3, 1, 1),
]


def _convolutions(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Conv2D"):
        for config, padding in itertools.product(_CONVOLUTIONS, (*_PADDINGS, "EXPLICIT")):
            yield from _convolution(data, dtype, config, padding)
        for size in ((0, 6, 7, 3), (2, 1, 1, 3)):
            inputs = data.normal(dtype, *size), data.normal(dtype, 3, 3, 3, 4)
            attrs = {"strides": [1] * 4, "padding": "SAME"}
            kind = "" if size[0] else "the CPU's shape of an empty batch"
            yield Call("Conv2D", inputs, attrs, ulps=32, kind=kind)


def _convolution(data: Data, dtype: tf.DType, config: Any, padding: str) -> Iterator[Call]:
    height, width, rows, columns, channels, groups, stride, down, right = config
    image = data.normal(dtype, 2, height, width, channels)
    kernel = data.normal(dtype, rows, columns, channels // groups, 4)
    attrs: dict[str, Any] = {"strides": [1, stride, stride, 1], "padding": padding}
    attrs["dilations"] = [1, down, right, 1]
    if padding == "EXPLICIT":
        attrs["explicit_paddings"] = [0, 0, 1, 0, 2, 1, 0, 0]
    if groups > 1 and dtype.is_integer:
        yield Call("Conv2D", (image, kernel), attrs, **_PRODUCT)
    else:
        yield from _with_gradients(data, "Conv2D", image, kernel, attrs)


def _with_gradients(
    data: Data, op: str, image: Any, kernel: Any, attrs: dict[str, Any], version: str = ""
) -> Iterator[Call]:
    """Yield a convolution and its two gradients, unless the CPU refuses it."""
    yield Call(op, (image, kernel), attrs, **_PRODUCT)
    try:
        shape = apply(op, (image, kernel), attrs).shape
    except tf.errors.OpError:
        return
    back = data.normal(image.dtype, *shape)
    sizes = ints(image.shape), ints(kernel.shape)
    yield Call(f"{op}BackpropInput{version}", (sizes[0], kernel, back), attrs, **_PRODUCT)
    yield Call(f"{op}BackpropFilter{version}", (image, sizes[1], back), attrs, **_PRODUCT)


def _any_convolutions(data: Data) -> Iterator[Call]:
    for dtype in dtypes("Conv"):
        for padding, stride in itertools.product(_PADDINGS, (1, 2)):
            image, kernel = data.normal(dtype, 2, 6, 5, 3), data.normal(dtype, 3, 2, 3, 4)
            attrs = {"strides": [1, stride, stride, 1], "padding": padding}
            yield Call("Conv", (image, kernel), attrs, ulps=64, scale=ARRAY)
            image, kernel = data.normal(dtype, 2, 4, 6, 5, 3), data.normal(dtype, 2, 3, 2, 3, 4)
            attrs = {"strides": [1, stride, stride, stride, 1], "padding": padding}
            yield Call("Conv", (image, kernel), attrs, ulps=64, scale=ARRAY)


def _depthwise(data: Data) -> Iterator[Call]:
    op = "DepthwiseConv2dNative"
    grid = itertools.product(dtypes(op), _PADDINGS, (1, 2), (1, 3))
    for dtype, padding, stride, depth in grid:
        image, kernel = data.normal(dtype, 2, 6, 7, 3), data.normal(dtype, 3, 2, 3, depth)
        attrs = {"strides": [1, stride, stride, 1], "padding": padding}
        yield from _with_gradients(data, op, image, kernel, attrs)


def _convolutions_in_space(data: Data) -> Iterator[Call]:
    for dtype, padding, stride in itertools.product(dtypes("Conv3D"), _PADDINGS, (1, 2)):
        image, kernel = data.normal(dtype, 2, 4, 5, 6, 2), data.normal(dtype, 2, 3, 2, 2, 3)
        attrs = {"strides": [1, stride, stride, stride, 1], "padding": padding}
        yield from _with_gradients(data, "Conv3D", image, kernel, attrs, "V2")


_WINDOWS = [
    ([2, 2], [1, 1]),
    ([3, 2], [2, 1]),
    ([2, 3], [3, 2]),
    ([1, 1], [1, 1]),
    ([4, 4], [2, 2]),
]


def _pools(data: Data) -> Iterator[Call]:
    for (window, strides), padding in itertools.product(_WINDOWS, _PADDINGS):
        attrs = {"ksize": [1, *window, 1], "strides": [1, *strides, 1], "padding": padding}
        for dtype in dtypes("MaxPool"):
            yield from _max_pools(data, dtype, attrs)
        for dtype in dtypes("AvgPool"):
            yield from _averages("AvgPool", data, data.normal(dtype, 2, 6, 7, 3), attrs)
        for dtype in dtypes("ExtractImagePatches"):
            names = {"ksizes": attrs["ksize"], "strides": attrs["strides"]}
            for rate in (1, 2):
                more = {**names, "rates": [1, rate, rate, 1], "padding": padding}
                yield Call("ExtractImagePatches", (data.normal(dtype, 2, 7, 8, 2),), more, ulps=1)
    explicit = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 1, 1, 0, 0]}
    for dtype in dtypes("MaxPool"):
        attrs = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], **explicit}
        yield Call("MaxPool", (data.normal(dtype, 2, 6, 7, 3),), attrs, ulps=0)


def _max_pools(data: Data, dtype: tf.DType, attrs: dict[str, Any]) -> Iterator[Call]:
    image = data.normal(dtype, 2, 6, 7, 3)
    windows = ints(attrs["ksize"]), ints(attrs["strides"])
    rest = {"padding": attrs["padding"]}
    yield Call("MaxPool", (image,), attrs, ulps=0)
    yield Call("MaxPoolV2", (image, *windows), rest, ulps=0)
    ties = np.zeros_like(image)
    for values, note in ((image, ""), (ties, "ties")):
        top = _array(tf.raw_ops.MaxPool(input=tf.constant(values), **attrs))
        inputs = values, top, data.normal(dtype, *top.shape)
        # Of equal numbers in a window at the border, the two may choose different ones.
        kind = "ties at the border" if dtype.is_integer and rest["padding"] == "SAME" else ""
        rounding: dict[str, Any] = {"ulps": 16, "scale": ARRAY, "note": note, "kind": kind}
        yield Call("MaxPoolGrad", inputs, attrs, **rounding)
        yield Call("MaxPoolGradV2", (*inputs, *windows), rest, **rounding)
        if dtype in dtypes("MaxPoolGradGrad"):
            inputs = values, top, data.normal(dtype, *values.shape)
            yield Call("MaxPoolGradGrad", inputs, attrs, ulps=0, note=note)
            yield Call("MaxPoolGradGradV2", (*inputs, *windows), rest, ulps=0, note=note)
    if dtype.is_floating:
        odd = image.copy()
        odd[0, 2, 3, 1], odd[1, 1] = np.nan, -np.inf
        yield Call("MaxPool", (odd,), attrs, ulps=0, note="nan and inf")


def _pools_in_space(data: Data) -> Iterator[Call]:
    windows = [([2, 2, 2], [1, 1, 1]), ([2, 3, 1], [2, 1, 2]), ([3, 3, 3], [2, 2, 2])]
    for (window, strides), padding in itertools.product(windows, _PADDINGS):
        attrs = {"ksize": [1, *window, 1], "strides": [1, *strides, 1], "padding": padding}
        for dtype in dtypes("MaxPool3D"):
            image = data.normal(dtype, 2, 4, 5, 6, 2)
            yield Call("MaxPool3D", (image,), attrs, ulps=0)
            top = _array(tf.raw_ops.MaxPool3D(input=tf.constant(image), **attrs))
            inputs: tuple[Any, ...] = image, top, data.normal(dtype, *top.shape)
            yield Call("MaxPool3DGrad", inputs, attrs, ulps=16, scale=ARRAY)
            if dtype in dtypes("MaxPool3DGradGrad"):
                inputs = image, top, data.normal(dtype, *image.shape)
                yield Call("MaxPool3DGradGrad", inputs, attrs, ulps=0)
        for dtype in dtypes("AvgPool3D"):
            yield from _averages("AvgPool3D", data, data.normal(dtype, 2, 4, 5, 6, 2), attrs)


def _averages(op: str, data: Data, image: Any, attrs: dict[str, Any]) -> Iterator[Call]:
    yield Call(op, (image,), attrs, ulps=16, scale=ARRAY)
    back = data.normal(image.dtype, *apply(op, (image,), attrs).shape)
    yield Call(f"{op}Grad", (ints(image.shape), back), attrs, ulps=16, scale=ARRAY)


_SIZES = [
    ((4, 5), (4, 5)),
    ((4, 5), (8, 10)),
    ((4, 5), (7, 9)),
    ((4, 5), (3, 2)),
    ((6, 8), (3, 4)),
    ((1, 1), (3, 4)),
    ((3, 4), (1, 1)),
    ((2, 3), (5, 7)),
    ((3, 3), (9, 12)),
    ((5, 7), (10, 3)),
    ((4, 1), (1, 6)),
    ((10, 10), (5, 5)),
    ((9, 7), (4, 4)),
    ((3, 5), (4, 6)),
]
_ANCHORS = [
    {"align_corners": corners, "half_pixel_centers": centers}
    for corners, centers in ((False, False), (True, False), (False, True))
]


def _resizes(data: Data) -> Iterator[Call]:
    for op in ("ResizeBilinear", "ResizeNearestNeighbor"):
        for dtype, (before, after), attrs in itertools.product(dtypes(op), _SIZES, _ANCHORS):
            image = data.normal(dtype, 2, *before, 3)
            ulps = 16.0 if op == "ResizeBilinear" else 0.0
            yield Call(op, (image, ints(after)), attrs, ulps=ulps, scale=ARRAY)
    op = "ResizeBilinearGrad"
    for dtype, (before, after), attrs in itertools.product(dtypes(op), _SIZES, _ANCHORS):
        inputs = data.normal(np.float32, 2, *after, 3), data.normal(dtype, 2, *before, 3)
        yield Call(op, inputs, attrs, ulps=64, scale=ARRAY)
    for dtype in dtypes("ResizeBilinear"):
        whole = data.wide(dtype, 1, 3, 3, 2)
        if dtype.is_integer:
            yield Call("ResizeBilinear", (whole, ints([5, 4])), ulps=16, scale=ARRAY, note="wide")


def _colors(data: Data) -> Iterator[Call]:
    for dtype in dtypes("RGBToHSV"):
        image = data.positive(dtype, 3, 5, 3, low=0.0, high=1.0)
        grid = np.array(list(itertools.product((0.0, 0.5, 1.0), repeat=3)), image.dtype)
        for colors, note in ((image, ""), (grid, "corners")):
            yield Call("RGBToHSV", (colors,), ulps=16, scale=ARRAY, note=note)
            yield Call("HSVToRGB", (colors,), ulps=16, scale=ARRAY, note=note)
    for dtype in dtypes("AdjustHue"):
        image = data.positive(dtype, 2, 4, 5, 3, low=0.0, high=1.0)
        for value in (0.3, -0.4, 0.0, 1.7):
            factor = np.array(value, np.float32)
            for op in ("AdjustHue", "AdjustSaturation", "AdjustContrastv2"):
                if op != "AdjustSaturation" or value >= 0:
                    yield Call(op, (image, factor), ulps=32, scale=ARRAY)
                    yield Call(op, (image - np.float32(0.5), factor), ulps=32, scale=ARRAY)


def _batch_norms(data: Data) -> Iterator[Call]:
    shapes = {"NHWC": (3, 4, 5, 6), "NCHW": (3, 6, 4, 5)}
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        for dtype, training, factor in itertools.product(dtypes(op), (True, False), (1.0, 0.25)):
            image = data.normal(dtype, *shapes["NHWC"])
            vectors = [data.positive(np.float32, 6) for _ in range(4)]
            if training and factor == 1:
                vectors[2:] = [np.zeros(0, np.float32)] * 2
            attrs = {"is_training": training, "exponential_avg_factor": factor, "epsilon": 0.01}
            yield Call(op, (image, *vectors), attrs, ulps=64, scale=ARRAY, results=(0, 1, 2))
    for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"):
        for dtype, training in itertools.product(dtypes(op), (True, False)):
            images = data.normal(dtype, 3, 4, 5, 6), data.normal(dtype, 3, 4, 5, 6)
            vectors = [data.positive(np.float32, 6) for _ in range(3)]
            if training:
                wide = images[1].astype(np.float32)
                vectors[1:] = [wide.mean((0, 1, 2)), wide.var((0, 1, 2))]
            vectors += [vectors[-1]] if op.endswith("V3") else []
            attrs = {"is_training": training, "epsilon": 0.01}
            yield Call(op, (*images, *vectors), attrs, ulps=128, scale=ARRAY, results=(0, 1, 2))


def _neighbours(data: Data) -> Iterator[Call]:
    for dtype, radius in itertools.product(dtypes("LRN"), (1, 2, 5)):
        attrs: dict[str, Any] = {"depth_radius": radius, "bias": 1.5, "alpha": 0.5, "beta": 0.7}
        image = data.normal(dtype, 2, 3, 3, 7)
        yield Call("LRN", (image,), attrs, ulps=64, scale=ARRAY)
        top = _array(tf.raw_ops.LRN(input=tf.constant(image), **attrs))
        inputs = data.normal(dtype, 2, 3, 3, 7), image, top
        yield Call("LRNGrad", inputs, attrs, ulps=128, scale=ARRAY)
    for dtype, layout in itertools.product(dtypes("BiasAdd"), ("NHWC", "NCHW")):
        image = data.normal(dtype, 2, 3, 4, 3)
        attrs = {"data_format": layout}
        yield Call("BiasAdd", (image, data.normal(dtype, 3)), attrs, ulps=1)
        yield Call("BiasAddGrad", (image,), attrs, ulps=32, scale=ARRAY)
        if layout == "NHWC":
            yield Call("BiasAddV1", (image, data.normal(dtype, 3)), ulps=1)
            yield Call("BiasAddGrad", (data.normal(dtype, 0, 3),), attrs, ulps=32)


PARTS = (
    _convolutions,
    _any_convolutions,
    _depthwise,
    _convolutions_in_space,
    _pools,
    _pools_in_space,
    _resizes,
    _colors,
    _batch_norms,
    _neighbours,
)
