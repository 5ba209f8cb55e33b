"""Calls of convolutions, pools, resizes and other kernels for images."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels.call import ARRAY, Call, apply
from tests.kernels.data import Data, ints
from tests.kernels.registry import dtypes
from tests.kernels.rows import Each, every, integer, positive, row, wide

_PADDINGS = ("SAME", "VALID")
_PRODUCT: dict[str, Any] = {"ulps": 64, "scale": ARRAY}
_AVERAGE: dict[str, Any] = {"ulps": 16, "scale": ARRAY}


def _forward(op: str, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """Return the result of the CPU kernel as an array, for the op's gradient."""
    tensor = apply(op, tuple(map(tf.constant, inputs)), attrs)
    return np.asarray(tensor.numpy(), tensor.dtype.as_numpy_dtype)


# Height and width, the filter's, input channels, groups, strides, dilations.
_CONVOLUTIONS: list[tuple[int, int, int, int, int, int, int, int, int]] = [
    (6, 7, 3, 2, 3, 1, 1, 1, 1), (6, 7, 3, 3, 2, 1, 2, 1, 1), (7, 5, 2, 3, 4, 2, 1, 1, 1),
    (5, 6, 1, 1, 3, 1, 2, 1, 1), (7, 8, 3, 3, 2, 1, 1, 2, 2), (6, 6, 6, 6, 2, 1, 1, 1, 1),
    (8, 9, 2, 3, 2, 1, 3, 1, 1),
]  # fmt: skip


def _convolutions(data: Data) -> Iterator[Call]:
    grid = itertools.product(dtypes("Conv2D"), _CONVOLUTIONS, (*_PADDINGS, "EXPLICIT"))
    for dtype, config, padding in grid:
        height, width, rows, columns, channels, groups, stride, down, right = config
        image = data.normal(dtype, 2, height, width, channels)
        kernel = data.normal(dtype, rows, columns, channels // groups, 4)
        attrs: dict[str, Any] = {"strides": [1, stride, stride, 1], "padding": padding}
        attrs["dilations"] = [1, down, right, 1]
        if padding == "EXPLICIT":
            attrs["explicit_paddings"] = [0, 0, 1, 0, 2, 1, 0, 0]
        yield Call("Conv2D", (image, kernel), attrs, **_PRODUCT)
        if groups == 1 or not dtype.is_integer:
            yield from _gradients(data, "Conv2D", image, kernel, attrs)


def _gradients(
    data: Data, op: str, image: Any, kernel: Any, attrs: dict[str, Any], version: str = ""
) -> Iterator[Call]:
    """Yield the two gradients of a convolution, unless the CPU refuses it."""
    try:
        back = data.normal(image.dtype, *apply(op, (image, kernel), attrs).shape)
    except tf.errors.OpError:
        return
    of_image, of_kernel = (ints(image.shape), kernel, back), (image, ints(kernel.shape), back)
    yield Call(f"{op}BackpropInput{version}", of_image, attrs, **_PRODUCT)
    yield Call(f"{op}BackpropFilter{version}", of_kernel, attrs, **_PRODUCT)


def _other_convolutions(data: Data) -> Iterator[Call]:
    for op, version, image, kernels in (
        ("DepthwiseConv2dNative", "", (2, 6, 7, 3), [(3, 2, 3, 1), (3, 2, 3, 3)]),
        ("Conv3D", "V2", (2, 4, 5, 6, 2), [(2, 3, 2, 2, 3)]),
    ):
        for dtype, padding, stride, kernel in itertools.product(
            dtypes(op), _PADDINGS, (1, 2), kernels
        ):
            arrays = data.normal(dtype, *image), data.normal(dtype, *kernel)
            attrs = {"strides": [1, *[stride] * (len(image) - 2), 1], "padding": padding}
            yield Call(op, arrays, attrs, **_PRODUCT)
            yield from _gradients(data, op, *arrays, attrs, version)


_FILTERS = (
    row("Conv2D", (0, 6, 7, 3), (3, 3, 3, 4), strides=[1] * 4, padding="SAME", ulps=32,
        kind="the CPU's shape of an empty batch"),
    row("Conv2D", (2, 1, 1, 3), (3, 3, 3, 4), strides=[1] * 4, padding="SAME", ulps=32),
    *(
        row("Conv", image, kernel, strides=[1, *[stride] * (len(image) - 2), 1],
            padding=Each(*_PADDINGS), **_PRODUCT)
        for image, kernel in (
            ((2, 6, 5, 3), (3, 2, 3, 4)), ((2, 4, 6, 5, 3), (2, 3, 2, 3, 4)),
        )
        for stride in (1, 2)
    ),
)  # fmt: skip

_WINDOWS = [
    ([1, 2, 2, 1], [1, 1, 1, 1]), ([1, 3, 2, 1], [1, 2, 1, 1]), ([1, 2, 3, 1], [1, 3, 2, 1]),
    ([1, 1, 1, 1], [1, 1, 1, 1]), ([1, 4, 4, 1], [1, 2, 2, 1]),
    ([1, 2, 2, 2, 1], [1, 1, 1, 1, 1]), ([1, 2, 3, 1, 1], [1, 2, 1, 2, 1]),
    ([1, 3, 3, 3, 1], [1, 2, 2, 2, 1]),
]  # fmt: skip


def _pools(data: Data) -> Iterator[Call]:
    for (window, strides), padding in itertools.product(_WINDOWS, _PADDINGS):
        attrs = {"ksize": window, "strides": strides, "padding": padding}
        flat = len(window) == 4
        maximum, average = ("MaxPool", "AvgPool") if flat else ("MaxPool3D", "AvgPool3D")
        shape = (2, 6, 7, 3) if flat else (2, 4, 5, 6, 2)
        for dtype in dtypes(maximum):
            yield from _max_pools(data, maximum, data.normal(dtype, *shape), attrs)
        for dtype in dtypes(average):
            image = data.normal(dtype, *shape)
            yield Call(average, (image,), attrs, **_AVERAGE)
            back = data.normal(dtype, *apply(average, (image,), attrs).shape)
            yield Call(f"{average}Grad", (ints(shape), back), attrs, **_AVERAGE)


def _max_pools(data: Data, op: str, image: Any, attrs: dict[str, Any]) -> Iterator[Call]:
    dtype = tf.as_dtype(image.dtype)
    sizes, rest = (ints(attrs["ksize"]), ints(attrs["strides"])), {"padding": attrs["padding"]}
    # The second versions of the ops, which those in space have not, take sizes as inputs.
    flat = op == "MaxPool"
    yield Call(op, (image,), attrs, ulps=0)
    if flat:
        yield Call("MaxPoolV2", (image, *sizes), rest, ulps=0)
    for values, note in [(image, "")] + [(np.zeros_like(image), "ties")] * flat:
        top = _forward(op, (values,), attrs)
        # Of equal numbers in a window at the border, the two may choose different ones.
        kind = "ties at the border" if dtype.is_integer and attrs["padding"] == "SAME" else ""
        for gradient, like, options in (
            ("Grad", top, {**_AVERAGE, "kind": kind}), ("GradGrad", values, {"ulps": 0})
        ):  # fmt: skip
            if dtype in dtypes(f"{op}{gradient}"):
                inputs: tuple[Any, ...] = values, top, data.normal(dtype, *like.shape)
                yield Call(f"{op}{gradient}", inputs, attrs, note=note, **options)
                if flat:
                    inputs = (*inputs, *sizes)
                    yield Call(f"{op}{gradient}V2", inputs, rest, note=note, **options)
    if flat and dtype.is_floating:
        odd = image.copy()
        odd[0, 2, 3, 1], odd[1, 1] = np.nan, -np.inf
        yield Call(op, (odd,), attrs, ulps=0, note="nan and inf")


_EXPLICIT = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 1, 1, 0, 0]}
_PATCHES = (
    row("MaxPool", (2, 6, 7, 3), ksize=[1, 3, 2, 1], strides=[1, 2, 1, 1], ulps=0, **_EXPLICIT),
    *(
        row("ExtractImagePatches", (2, 7, 8, 2), ksizes=window, strides=strides,
            rates=Each([1, 1, 1, 1], [1, 2, 2, 1]), padding=Each(*_PADDINGS), ulps=1)
        for window, strides in _WINDOWS[:5]
    ),
)  # fmt: skip

_SIZES = [
    ((4, 5), (4, 5)), ((4, 5), (8, 10)), ((4, 5), (7, 9)), ((4, 5), (3, 2)), ((6, 8), (3, 4)),
    ((1, 1), (3, 4)), ((3, 4), (1, 1)), ((2, 3), (5, 7)), ((3, 3), (9, 12)), ((5, 7), (10, 3)),
    ((4, 1), (1, 6)), ((10, 10), (5, 5)), ((9, 7), (4, 4)), ((3, 5), (4, 6)),
]  # fmt: skip
_ANCHORS = (
    {"align_corners": False, "half_pixel_centers": False},
    {"align_corners": True, "half_pixel_centers": False},
    {"align_corners": False, "half_pixel_centers": True},
)
_RESIZES = tuple(
    make
    for (before, after), anchors in itertools.product(_SIZES, _ANCHORS)
    for make in (
        row("ResizeBilinear", (2, *before, 3), list(after), **_AVERAGE, **anchors),
        row("ResizeNearestNeighbor", (2, *before, 3), list(after), ulps=0, scale=ARRAY, **anchors),
        row("ResizeBilinearGrad", (2, *after, 3), (2, *before, 3), **_PRODUCT, **anchors),
    )
)

_CUBE = list(itertools.product((0.0, 0.5, 1.0), repeat=3))
_IMAGES = Each(*(positive(2, 4, 5, 3, low=low, high=low + 1.0) for low in (0.0, -0.5)))
color = functools.partial(row, ulps=32, scale=ARRAY)
_COLORS = (
    row("ResizeBilinear", wide(1, 3, 3, 2), [5, 4], T=integer, **_AVERAGE, note="wide"),
    row("RGBToHSV HSVToRGB", positive(3, 5, 3, low=0.0, high=1.0), **_AVERAGE),
    row("RGBToHSV HSVToRGB", _CUBE, T=every, **_AVERAGE, note="corners"),
    color("AdjustHue AdjustContrastv2", _IMAGES, Each(0.3, -0.4, 0.0, 1.7)),
    color("AdjustSaturation", _IMAGES, Each(0.3, 0.0, 1.7)),
)

_LAYOUTS = Each("NHWC", "NCHW")
_BIASES = (
    row("BiasAdd", (2, 3, 4, 3), (3,), data_format=_LAYOUTS, ulps=1),
    row("BiasAddV1", (2, 3, 4, 3), (3,), ulps=1),
    row("BiasAddGrad", (2, 3, 4, 3), data_format=_LAYOUTS, ulps=32, scale=ARRAY),
    row("BiasAddGrad", (0, 3), data_format="NHWC", ulps=32),
)


def _batch_norms(data: Data) -> Iterator[Call]:
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        for dtype, training, factor in itertools.product(dtypes(op), (True, False), (1.0, 0.25)):
            vectors = [data.positive(np.float32, 6) for _ in range(4)]
            if training and factor == 1:
                vectors[2:] = [np.zeros(0, np.float32)] * 2
            attrs = {"is_training": training, "exponential_avg_factor": factor, "epsilon": 0.01}
            inputs = data.normal(dtype, 3, 4, 5, 6), *vectors
            yield Call(op, inputs, attrs, **_PRODUCT, results=(0, 1, 2))
    for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"):
        for dtype, training in itertools.product(dtypes(op), (True, False)):
            images = data.normal(dtype, 3, 4, 5, 6), data.normal(dtype, 3, 4, 5, 6)
            vectors = [data.positive(np.float32, 6) for _ in range(3)]
            if training:
                pixels = images[1].astype(np.float32)
                vectors[1:] = [pixels.mean((0, 1, 2)), pixels.var((0, 1, 2))]
            vectors += [vectors[-1]] if op.endswith("V3") else []
            attrs = {"is_training": training, "epsilon": 0.01}
            yield Call(op, (*images, *vectors), attrs, ulps=128, scale=ARRAY, results=(0, 1, 2))


def _neighbours(data: Data) -> Iterator[Call]:
    for dtype, radius in itertools.product(dtypes("LRN"), (1, 2, 5)):
        attrs: dict[str, Any] = {"depth_radius": radius, "bias": 1.5, "alpha": 0.5, "beta": 0.7}
        image = data.normal(dtype, 2, 3, 3, 7)
        yield Call("LRN", (image,), attrs, **_PRODUCT)
        inputs = data.normal(dtype, 2, 3, 3, 7), image, _forward("LRN", (image,), attrs)
        yield Call("LRNGrad", inputs, attrs, ulps=128, scale=ARRAY)


PARTS = (
    _convolutions, _other_convolutions, _pools, _batch_norms, _neighbours, *_FILTERS, *_PATCHES,
    *_RESIZES, *_COLORS, *_BIASES,
)  # fmt: skip
