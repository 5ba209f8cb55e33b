"""Values at the edges of dtypes, by TensorFlow's CPU kernels and by XLA, one op at a time.

The CPU kernels compute many elements at once, and the last few one by one, sometimes otherwise. So
they get each value alone and in vectors of several lengths. What they compute differently by the
place of an element is left to chance, and is not a difference.
"""
# ruff: noqa: T201 - it prints its report

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels import difference, running
from tests.kernels.call import Call
from tests.kernels.calls_elementwise import BINARY, UNARY
from tests.kernels.data import ints, pairs, special, words
from tests.kernels.registry import dtypes
from tests.support.stress.processes import Worker

_LENGTH = 19  # of the vectors with one value
_BATCH = 30
_SECONDS_A_BATCH = 900.0
_SUMS: dict[str, Any] = {"ulps": 64, "scale": "array"}
STOCK, HOSTCALL = "stock", "hostcall"
_PREPARATION = {STOCK: "", HOSTCALL: "import hostcall"}
CHANCE = "left to chance by the CPU"


@functools.cache
def edges(dtype: tf.DType) -> Any:
    """Return numbers at the edges of a dtype."""
    numpy: Any = dtype.as_numpy_dtype
    if dtype.is_complex:
        parts = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-20, 1e20])
        return np.array([complex(a, b) for a in parts for b in parts]).astype(numpy)
    values = special(dtype)
    if dtype.is_integer:
        root = int(np.sqrt(float(dtype.max)))  # its square is the last that fits
        more = [root + 1, root * 3 // 2, int(dtype.max) - 2, 31, 32, 63, 64]
        more += [] if dtype.is_unsigned else [-31, -32, -root - 1, int(dtype.min) + 2]
        kept = {int(v) for v in values} | {v for v in more if dtype.min <= v <= dtype.max}
        return np.array(sorted(kept), object).astype(numpy)
    if dtype.is_floating:
        big = [127.5, 255.5, 32767.5, 65535.5, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 3e9, 300.0]
        others = np.array([*big, *(-value for value in big), -0.5, -1.5, 0.75])
        with np.errstate(over="ignore"):
            return np.concatenate([values, others.astype(numpy)])
    return values


@dataclasses.dataclass(frozen=True)
class Edge:
    """A call whose op treats each element alone, and the dtype that it is about."""

    call: Call
    alone: bool  # whether each element of the inputs makes one of the results
    dtype: str


def _alone(op: str, dtype: tf.DType, *columns: Any, **fields: Any) -> Edge:
    attrs = fields.pop("attrs", {})
    return Edge(Call(op, columns, attrs, **fields), True, dtype.name)


def _unary() -> Iterator[Edge]:
    for op, (_, ulps) in UNARY.items():
        for dtype in [tf.bool] if op == "LogicalNot" else dtypes(op):
            to_real = op in ("Real", "Imag", "Angle", "ComplexAbs")
            attrs = {"Tout": dtype.real_dtype} if to_real else {}
            yield _alone(op, dtype, edges(dtype), attrs=attrs, ulps=max(ulps, 4))


def _few(dtype: tf.DType) -> Any:
    values = edges(dtype)
    if dtype.is_complex:
        parts = np.array([0.0, -2.0, np.inf, np.nan])
        return np.array([complex(a, b) for a in parts for b in parts]).astype(values.dtype)
    return values


def _binary() -> Iterator[Edge]:
    more = words("Igamma Igammac IgammaGradA RandomGammaGrad Polygamma Zeta")
    for op, ulps in {**BINARY, **dict.fromkeys(more, 512.0)}.items():
        for dtype in [tf.bool] if op.startswith("Logical") else dtypes(op):
            x, y = pairs(_few(dtype))
            if dtype.is_integer and op in words(
                "Div RealDiv FloorDiv FloorMod Mod TruncateDiv TruncateMod"
            ):
                x, y = x[y != 0], y[y != 0]
                smallest = np.iinfo(x.dtype).min
                fine = (x != smallest) | (y.astype(object) != -1)
                x, y = x[fine], y[fine]
            if op == "Pow" and dtype.is_integer:
                x, y = x[y >= 0], y[y >= 0]
            yield _alone(op, dtype, x, y, ulps=max(ulps, 4))
            if op in more:
                continue
            for value in _constants(dtype):
                if dtype.is_integer and ("Div" in op or "Mod" in op) and value <= 0:
                    continue
                if op == "Pow" and dtype.is_integer and value < 0:
                    continue
                function = functools.partial(_with_constant, op, value)
                call = Call(op, (_few(dtype),), {}, function, max(ulps, 4), note=f"by {value}")
                yield Edge(call, True, dtype.name)


def _with_constant(op: str, value: Any, x: Any) -> Any:
    function = getattr(tf.raw_ops, op)
    if op.endswith("Grad") and op not in ("SqrtGrad", "RsqrtGrad"):
        try:
            return function(gradients=x, features=tf.fill(tf.shape(x), value))
        except TypeError:
            pass
    if op.endswith("Grad"):
        try:
            return function(gradients=x, outputs=tf.fill(tf.shape(x), value))
        except TypeError:
            return function(y=x, dy=tf.fill(tf.shape(x), value))
    if op == "NextAfter":
        return function(x1=x, x2=value)
    return function(x=x, y=value)


def _constants(dtype: tf.DType) -> list[Any]:
    numpy: Any = dtype.as_numpy_dtype
    if dtype.is_bool:
        return [True, False]
    if dtype.is_integer:
        values = [0, 1, 2, 3, int(dtype.max)]
        values += [] if dtype.is_unsigned else [-1, -3, int(dtype.min)]
        return [numpy(v) for v in values]
    if dtype.is_complex:
        return [np.array(v, numpy) for v in (0, 2, 1j)]
    floats = (0.0, -0.0, 1.0, 2.0, 3.0, -0.5, np.inf, np.nan)
    return [np.array(v, numpy) for v in floats]


def _casts() -> Iterator[Edge]:
    names = words("float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz")
    eights = [getattr(tf.dtypes.experimental, n, None) for n in names]
    sources = dtypes("Cast", "SrcT") + [d for d in eights if d]
    targets = dtypes("Cast", "DstT") + [d for d in eights if d]
    for source, target in itertools.product(sources, targets):
        if source in eights:
            values = np.arange(256).astype(np.uint8).view(source.as_numpy_dtype)
        else:
            values = edges(source)
            if not source.is_bool and not source.is_complex:
                rng = np.random.default_rng(5)
                some = rng.normal(0, 1, 64) * np.exp(rng.uniform(-9, 9, 64))
                with np.errstate(all="ignore"):
                    values = np.concatenate([values, some.astype(source.as_numpy_dtype)])
        for cut in (False, True) if source.is_floating and target.is_floating else (False,):
            attrs = {"DstT": target, "Truncate": cut}
            yield _alone("Cast", source, values, attrs=attrs, ulps=0.5)


def _others() -> Iterator[Edge]:
    for dtype in dtypes("ClipByValue"):
        if not dtype.is_complex:
            for low, high in ((1, 3), (3, 1)):
                clip = functools.partial(_clipped, low, high)
                call = Call("ClipByValue", (edges(dtype),), {}, clip, note=f"{low} {high}")
                yield Edge(call, True, dtype.name)
            a, b, c = map(np.ravel, np.meshgrid(*[edges(dtype)[::3]] * 3))
            yield _alone("ClipByValue", dtype, a, b, c)
    for alpha in (0.0, 0.3, 1.5, -0.5):
        for dtype in dtypes("LeakyRelu"):
            yield _alone("LeakyRelu", dtype, edges(dtype), attrs={"alpha": alpha})
            yield _alone("LeakyReluGrad", dtype, *pairs(edges(dtype)), attrs={"alpha": alpha})


def _clipped(low: float, high: float, x: Any) -> Any:
    limits = (tf.constant(limit, x.dtype) for limit in (low, high))
    return tf.raw_ops.ClipByValue(t=x, clip_value_min=next(limits), clip_value_max=next(limits))


def _of_several() -> Iterator[Edge]:
    for dtype in dtypes("Betainc"):
        v = np.array([0, 1, -1, 2.5, 0.5, np.inf, np.nan, 1e-30, 1e30], dtype.as_numpy_dtype)
        yield _alone("Betainc", dtype, *map(np.ravel, np.meshgrid(v, v, v)), ulps=512)
    for dtype in dtypes("Complex"):
        out = tf.complex128 if dtype == tf.float64 else tf.complex64
        yield _alone("Complex", dtype, *pairs(edges(dtype)), attrs={"Tout": out}, ulps=0)
    for dtype in dtypes("SelectV2"):
        v = edges(dtype)[:60]
        yield _alone("SelectV2", dtype, np.arange(len(v)) % 2 == 0, v, v[::-1].copy(), ulps=0)


def _compared() -> Iterator[Edge]:
    for dtype in dtypes("ApproximateEqual"):
        yield _alone("ApproximateEqual", dtype, *pairs(_few(dtype)))
    for dtype in dtypes("Bucketize"):
        for bounds in ([0.0, 1.0, 2.0], [-np.inf, 0.0, np.inf], []):
            yield _alone("Bucketize", dtype, edges(dtype), attrs={"boundaries": bounds})
    for dtype in dtypes("AddN"):
        call = Call("AddN", pairs(_few(dtype)), {}, lambda x, y: tf.raw_ops.AddN(inputs=[x, y, y]))
        yield Edge(call, True, dtype.name)
    for dtype in dtypes("CheckNumerics"):
        v = edges(dtype)
        yield _alone(
            "CheckNumerics", dtype, v[np.isfinite(v.astype(np.float64))], attrs={"message": "m"}
        )


def _rows(dtype: tf.DType, lengths: Any = (1, 3, 4, 17, 64)) -> Iterator[Any]:
    """Yield matrices whose rows hold special values in several places."""
    rng = np.random.default_rng(7)
    values = edges(dtype)
    plain = np.array([1, 2, 3, 1], values.dtype) if not dtype.is_bool else values
    for length in lengths:
        rows = [np.full(length, v) for v in values]
        for v in values:
            for place in {0, length // 2, length - 1}:
                row = rng.choice(plain, length)
                row[place] = v
                rows.append(row)
        rows += [rng.choice(values, length) for _ in range(40)]
        if dtype.is_floating:
            for some in (
                [0.0, -0.0],
                [np.nan, 1.0],
                [np.inf, -np.inf],
                [np.nan, np.inf],
                [np.inf, 1.0],
                [-np.inf, 1.0],
                [-np.inf, np.nan],
            ):
                rows += [rng.choice(np.array(some, values.dtype), length) for _ in range(12)]
        yield np.stack(rows).astype(values.dtype)


def _reductions() -> Iterator[Edge]:
    for op in words("Sum Prod Mean Max Min All Any ArgMax ArgMin"):
        for dtype in [tf.bool] if op in ("All", "Any") else dtypes(op):
            for x in _rows(dtype):
                for axis in (0, 1):
                    array = x if axis else x.T.copy()
                    how: dict[str, Any] = _SUMS if op in ("Sum", "Prod", "Mean") else {}
                    yield Edge(Call(op, (array, ints(axis)), **how), False, dtype.name)
    for dtype in dtypes("L2Loss"):
        for x in _rows(dtype):
            f = lambda x: tf.stack([tf.raw_ops.L2Loss(t=r) for r in tf.unstack(x[:40])])  # noqa: E731
            yield Edge(Call("L2Loss", (x,), {}, f, ulps=64), False, dtype.name)


def _scans() -> Iterator[Edge]:
    for op in words("Cumsum Cumprod CumulativeLogsumexp"):
        for dtype, exclusive, reverse in itertools.product(
            dtypes(op), (False, True), (False, True)
        ):
            attrs = {"exclusive": exclusive, "reverse": reverse}
            for x in _rows(dtype, (1, 4, 17)):
                yield Edge(Call(op, (x, ints(1)), attrs, ulps=64), False, dtype.name)
                yield Edge(Call(op, (x.T.copy(), ints(0)), attrs, ulps=64), False, dtype.name)


def _sorts() -> Iterator[Edge]:
    for dtype in dtypes("TopKV2"):
        for x in _rows(dtype):
            for k in {1, min(3, x.shape[1]), x.shape[1]}:
                for is_sorted in (True, False):
                    call = Call("TopKV2", (x, ints(k)), {"sorted": is_sorted})
                    yield Edge(call, False, dtype.name)
    for dtype in dtypes("ApproxTopK"):
        for x in _rows(dtype):
            yield Edge(Call("ApproxTopK", (x, ints(1)), {"is_max_k": True}), False, dtype.name)


def _searches() -> Iterator[Edge]:
    for op in ("UpperBound", "LowerBound"):
        for dtype in dtypes(op):
            v = edges(dtype)
            v = np.sort(v[~np.isnan(v.astype(np.float64))]) if dtype.is_floating else np.sort(v)
            yield Edge(Call(op, (v[None], edges(dtype)[None])), False, dtype.name)
            yield Edge(
                Call(op, (edges(dtype)[None], edges(dtype)[None]), note="unsorted"),
                False,
                dtype.name,
            )
    for dtype in dtypes("Unique"):
        yield Edge(Call("Unique", (np.tile(edges(dtype), 2),)), False, dtype.name)
    for dtype in dtypes("ListDiff"):
        v = edges(dtype)
        yield Edge(Call("ListDiff", (v, v[::2])), False, dtype.name)
    for dtype in dtypes("Where"):
        yield Edge(Call("Where", (edges(dtype),)), False, dtype.name)
    for dtype in dtypes("InTopKV2"):
        for x in _rows(tf.float32, (4, 17)):
            targets = np.arange(len(x)).astype(dtype.as_numpy_dtype) % x.shape[1]
            yield Edge(Call("InTopKV2", (x, targets, dtype.as_numpy_dtype(2))), False, dtype.name)


def _softmaxes() -> Iterator[Edge]:
    for op in ("Softmax", "LogSoftmax"):
        for dtype in dtypes(op):
            for x in _rows(dtype):
                yield Edge(Call(op, (x,), ulps=64), False, dtype.name)
    for dtype in dtypes("SoftmaxCrossEntropyWithLogits"):
        for x in _rows(dtype, (1, 4, 17)):
            labels = np.full_like(x, 1 / x.shape[1])
            yield Edge(
                Call("SoftmaxCrossEntropyWithLogits", (x, labels), ulps=64), False, dtype.name
            )
            yield Edge(
                Call("SoftmaxCrossEntropyWithLogits", (np.ones_like(x), x), ulps=64),
                False,
                dtype.name,
            )
            target = np.arange(len(x), dtype=np.int32) % x.shape[1]
            yield Edge(
                Call("SparseSoftmaxCrossEntropyWithLogits", (x, target), ulps=64), False, dtype.name
            )


def _segments() -> Iterator[Edge]:
    for op in words("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd"):
        for dtype in dtypes(op):
            for x in _rows(dtype, (4, 17)):
                ids = np.arange(x.shape[1], dtype=np.int32) // 2 * 2
                yield Edge(
                    Call(op, (x.T.copy(), ids, ints(20)), ulps=64, scale="array"), False, dtype.name
                )
    for op in words(
        "TensorScatterMax TensorScatterMin TensorScatterAdd TensorScatterSub TensorScatterUpdate"
    ):
        for dtype in dtypes(op):
            for x in _rows(dtype, (4, 17)):
                y = x.T.copy()
                ids = np.arange(len(y), dtype=np.int32)[:, None] // 2 * 2
                if op == "TensorScatterUpdate":
                    ids = np.arange(len(y), dtype=np.int32)[:, None]
                yield Edge(
                    Call(op, (y[::-1].copy(), ids, y), ulps=64, scale="array"), False, dtype.name
                )
    for dtype in dtypes("ScatterNd"):
        for x in _rows(dtype, (4, 17)):
            y = x.T.copy()
            ids = np.arange(len(y), dtype=np.int32)[:, None] // 2 * 2
            yield Edge(
                Call("ScatterNd", (ids, y, ints(list(y.shape))), ulps=64, scale="array"),
                False,
                dtype.name,
            )


def _pools() -> Iterator[Edge]:
    for op in ("MaxPool", "AvgPool"):
        for dtype in dtypes(op):
            for x in _rows(dtype, (4, 17)):
                image = x[None, :, :, None]
                for padding, window in itertools.product(
                    ("SAME", "VALID"), ([1, 2, 2, 1], [1, 1, 3, 1], [1, 3, 2, 1])
                ):
                    attrs = {"ksize": window, "strides": [1, 1, window[2], 1], "padding": padding}
                    yield Edge(Call(op, (image,), attrs, ulps=64), False, dtype.name)
                    if op == "MaxPool" and dtype in dtypes("MaxPoolGrad"):
                        top = running.on_cpu(Call(op, (image,), attrs))[0]
                        back = np.arange(top.size).reshape(top.shape).astype(top.dtype)
                        yield Edge(
                            Call("MaxPoolGrad", (image, top, back), attrs), False, dtype.name
                        )


def _norms() -> Iterator[Edge]:
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        for training in (False, True):
            for x in _rows(tf.float32, (4, 17)):
                c = x.shape[1]
                one = np.ones(c, np.float32)
                inputs = (x[:, None, None, :], one, one * 2, one * 3, one * 4)
                yield Edge(
                    Call(op, inputs, {"is_training": training}, ulps=256, scale="array"),
                    False,
                    "float32",
                )
    for op in words("LRN"):
        for x in _rows(tf.float32, (4, 17)):
            yield Edge(Call(op, (x[:, None, None, :],), ulps=256), False, "float32")


def _images() -> Iterator[Edge]:
    for op in words("RGBToHSV HSVToRGB"):
        for dtype in dtypes(op):
            v = edges(dtype)[::2]
            x = np.stack(list(map(np.ravel, np.meshgrid(v, v, v))), -1)
            yield Edge(Call(op, (x,), ulps=16), False, dtype.name)
    for op in words("AdjustContrastv2 AdjustSaturation AdjustHue"):
        for dtype in dtypes(op):
            rng = np.random.default_rng(3)
            x = rng.choice(edges(dtype), (1, 8, 8, 3))
            y = rng.uniform(-1, 1, (1, 8, 8, 3)).astype(x.dtype)
            for image in (x, y):
                for f in (0.0, 0.5, 2.0):
                    yield Edge(Call(op, (image, np.float32(f)), ulps=64), False, dtype.name)


def _quantized() -> Iterator[Edge]:
    x = edges(tf.float32)
    for op in words("FakeQuantWithMinMaxArgs"):
        for low, high in ((-6.0, 6.0), (0.0, 6.0), (-3.1, 4.7)):
            yield _alone(op, tf.float32, x, attrs={"min": low, "max": high}, ulps=8)
            yield _alone(
                f"{op}Gradient", tf.float32, *pairs(x), attrs={"min": low, "max": high}, ulps=8
            )
    for op, more in (
        ("QuantizeAndDequantizeV2", []),
        ("QuantizeAndDequantizeV4", []),
        ("QuantizeAndDequantizeV3", [ints(8)]),
    ):
        for dtype in dtypes(op):
            for given in (True, False):
                one = dtype.as_numpy_dtype
                v = edges(dtype)
                for y in (
                    v,
                    v[np.isfinite(v.astype(np.float64))][::2],
                    np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5], one),
                ):
                    yield Edge(
                        Call(op, (y, one(-3), one(3), *more), {"range_given": given}, ulps=8),
                        False,
                        dtype.name,
                    )


def _makers() -> Iterator[Edge]:
    for dtype in dtypes("LinSpace"):
        for a, b, n in (
            (0, np.inf, 4),
            (-np.inf, 0, 4),
            (np.nan, 0, 3),
            (-1e38, 3e38, 5),
            (1, 2, 1),
            (0.1, 0.7, 50),
        ):
            one = dtype.as_numpy_dtype
            yield Edge(Call("LinSpace", (one(a), one(b), ints(n)), ulps=4), False, dtype.name)
    for dtype in dtypes("OneHot"):
        v = edges(dtype)[:2] if not dtype.is_bool else edges(dtype)
        yield Edge(Call("OneHot", (ints([0, -1, 3, 2]), ints(3), v[0], v[1])), False, dtype.name)
    for dtype in dtypes("Range", "Tidx"):
        one = dtype.as_numpy_dtype
        if dtype.is_floating:
            for a, b, c in (
                (0.1, 1.1, 0.1),
                (0, 1, 0.3),
                (5, 0, -0.7),
                (0.0, 0.0, 1.0),
                (1e8, 1e8 + 50, 3),
            ):
                yield Edge(Call("Range", (one(a), one(b), one(c))), False, dtype.name)


def _counts() -> Iterator[Edge]:
    for dtype in dtypes("Bincount"):
        for n in (4, 1):
            x = ints([0, 1, 1, 7, 3, 0, 2])
            w = edges(dtype)[:7] if len(edges(dtype)) > 6 else np.ones(7, dtype.as_numpy_dtype)
            yield Edge(Call("Bincount", (x, ints(n), w)), False, dtype.name)


def _products() -> Iterator[Edge]:
    for op in ("Cross",):
        for dtype in dtypes(op):
            rng = np.random.default_rng(3)
            a, b = rng.choice(edges(dtype), (99, 3)), rng.choice(edges(dtype), (99, 3))
            yield Edge(Call(op, (a, b)), False, dtype.name)
    for op in ("BiasAdd", "BiasAddGrad"):
        for dtype in dtypes(op):
            for x in _rows(dtype, (4, 17)):
                inputs = (x, x[0]) if op == "BiasAdd" else (x,)
                yield Edge(Call(op, inputs, ulps=64, scale="array"), False, dtype.name)
    for op in words("MatMul BatchMatMulV2"):
        for dtype in dtypes(op):
            for x in _rows(dtype, (3, 17)):
                yield Edge(
                    Call(op, (x[:40], x[:40].T.copy()), ulps=256, scale="array"), False, dtype.name
                )


def _resized() -> Iterator[Edge]:
    for op in words("ResizeNearestNeighbor ResizeBilinear"):
        for dtype in dtypes(op):
            for x in _rows(dtype, (4,)):
                for size in ([7, 7], [200, 9], [1, 1]):
                    for attrs in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
                        yield Edge(
                            Call(op, (x[None, :60, :, None], ints(size)), attrs, ulps=64),
                            False,
                            dtype.name,
                        )


PARTS = (
    *(_unary, _binary, _casts, _others, _of_several, _compared, _reductions, _scans, _sorts),
    *(_searches, _softmaxes, _segments, _pools, _norms, _images, _quantized, _makers, _counts),
    *(_products, _resized),
)


@functools.cache
def all_edges() -> list[Edge]:
    return [edge for part in PARTS for edge in part()]


def expected(edge: Edge) -> tuple[list[Any], Any]:
    """Return the CPU's results, and where they depend on the place of an element, or None."""
    call = edge.call
    if not edge.alone:
        return running.on_cpu(call), None
    count = len(call.inputs[0])
    chance: Any = np.zeros(count, bool)
    ones: list[Any] = []
    for index in range(count):
        inputs = tuple(column[index : index + 1] for column in call.inputs)
        ones += running.on_cpu(dataclasses.replace(call, inputs=inputs))
    inputs = tuple(np.repeat(column, _LENGTH) for column in call.inputs)
    (together,) = running.on_cpu(dataclasses.replace(call, inputs=inputs))
    every = np.concatenate([np.stack(ones), together.reshape(count, _LENGTH)], 1)
    results = every[:, 0]
    for index in range(count):
        chance[index] = len({_bits(v) for v in every[index]}) > 1
    return [results], (chance, every)


def _bits(value: Any) -> bytes:
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return _bits(array.real) + _bits(array.imag)
    if array.dtype.kind not in "iubSO" and np.isnan(array.astype(np.float64)):
        return b"nan"
    return array.tobytes()


def judged(numbers: list[int], mode: str) -> list[Any]:
    calls = all_edges()
    done: dict[int, Any] = {}
    out: list[Any] = []
    for number in numbers:
        try:
            done[number] = expected(calls[number])
        except Exception as error:
            out.append([number, difference.CPU_REFUSES, str(error)[:150], 0, 1])
    _by_xla(calls, done, out, mode)
    return out


def _by_xla(calls: list[Edge], done: dict[int, Any], out: list[Any], mode: str) -> None:
    if not done:
        return
    numbers = list(done)
    try:
        compiled = running.by_xla if mode == STOCK else running.beside_python
        actual = compiled([calls[n].call for n in numbers])
    except Exception as error:
        if len(numbers) == 1:
            out.append([numbers[0], difference.REFUSED, str(error)[:150], 0, 1])
            return
        half = len(numbers) // 2
        for part in (numbers[:half], numbers[half:]):
            _by_xla(calls, {n: done[n] for n in part}, out, mode)
        return
    for number, results in zip(numbers, actual, strict=True):
        cpu, more = done[number]
        edge = calls[number]
        if more is None:
            for one in difference.compare(edge.call, cpu, results):
                out.append([number, one.what, f"result {one.result}: {one.text}", one.error, 1])
            continue
        _elementwise(number, edge, cpu[0], results[0], more, out)


def _elementwise(number: int, edge: Edge, cpu: Any, xla: Any, places: Any, out: list[Any]) -> None:
    chance, every = places
    counts: collections.Counter[str] = collections.Counter()
    examples: dict[str, list[str]] = collections.defaultdict(list)
    for i in range(len(cpu)):
        of_place = every[i]
        found = difference.compare(edge.call, [of_place], [np.full_like(of_place, xla[i])])
        # Where the value agrees in some places, chance decides.
        where = CHANCE if chance[i] and _agrees_somewhere(edge, of_place, xla[i : i + 1]) else ""
        for one in found:
            what = f"{where}: {one.what}" if where else one.what
            counts[what] += 1
            if len(examples[what]) < 4:
                operands = ", ".join(str(column[i]) for column in edge.call.inputs)
                values = sorted({str(value) for value in of_place})
                examples[what].append(f"({operands}): {' or '.join(values)}, {xla[i]} by XLA")
    for what, count in counts.items():
        out.append([number, what, "; ".join(examples[what]), 0, count])


def _agrees_somewhere(edge: Edge, of_place: Any, value: Any) -> bool:
    ends = (of_place[:1], of_place[1:2], of_place[-1:])
    return any(not difference.compare(edge.call, [each], [value]) for each in ends)


def run(only: set[str], modes: list[str]) -> None:
    """Compare the calls, or those of some ops, in processes that may end; print what differs."""
    calls = all_edges()
    numbers = [n for n, edge in enumerate(calls) if not only or edge.call.op in only]
    for mode in modes:
        counts: collections.Counter[str] = collections.Counter()
        with contextlib.closing(Worker(_PREPARATION[mode])) as worker:
            for begin in range(0, len(numbers), _BATCH):
                batch = numbers[begin : begin + _BATCH]
                for number, what, text, _, count in _batch(worker, batch, mode):
                    edge = calls[number]
                    counts[what] += 1
                    said = f"{mode}: {edge.call.op} | {edge.dtype} | {what} | {count} | "
                    print(f"{said}{edge.call.text()[:100]} | {text}", flush=True)
        said = ", ".join(f"{count} {what}" for what, count in counts.most_common())
        print(f"== {mode}: of {len(numbers)} calls differ: {said or 'none'}", flush=True)


def _batch(worker: Worker, numbers: list[int], mode: str) -> list[Any]:
    try:
        return list(worker.run(judged, numbers, mode, limit=_SECONDS_A_BATCH))
    except AssertionError as error:
        if not str(error).startswith("ended with"):
            raise
        if len(numbers) == 1:
            return [[numbers[0], difference.CRASH, "", 0, 1]]
        return [row for n in numbers for row in _batch(worker, [n], mode)]
