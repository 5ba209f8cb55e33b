"""Uses of the ops whose kernels of TensorFlow's raise for some values, with such values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_NAN, _INF = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True, eq=False)
class Use:
    """A use of an op.

    Attributes:
      op: the op whose kernel raises.
      run: a function of tensors that has the op.
      good: arguments for which it does not raise.
      bad: arguments for which it does.
      lines: the lines of this file that make the op.
      is_seen: whether XLA itself refuses the bad values if it knows them when it compiles, as it
        knows arguments.
      is_compiled: whether the op is in the program; else TensorFlow's kernel runs on the host.
    """

    op: str
    run: Callable[..., Any]
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    lines: tuple[int, int]
    is_seen: bool
    is_compiled: bool

    def is_made_by(self, line: int) -> bool:
        """Return whether a line of this file makes the op."""
        first, last = self.lines
        return first <= line <= last


USES: dict[str, Use] = {}
_SEEN = {"Slice", "StridedSlice", "StridedSliceGrad"}
_ON_HOST = {
    "Pow",  # of which XLA takes exponents modulo 64
    "ResourceGatherNd",
    "ResourceScatterNdMax",
    "ResourceScatterNdMin",
    "StridedSliceGrad",  # whose operand is not a constant
    "TensorListSplit",
}


def _use(
    op: str,
    run: Callable[..., Any],
    good: Sequence[Any],
    bad: Sequence[Any],
    on_variable: bool = False,
    made_by: Callable[..., Any] | None = None,
) -> None:
    constants = [tuple(map(tf.constant, values)) for values in (good, bad)]
    lines = [line for *_, line in (made_by or run).__code__.co_lines() if line]
    count = sum(use.op == op for use in USES.values())
    name = f"{op}_{count + 1}" if count else op
    USES[name] = Use(
        op,
        _on_variable(run) if on_variable else run,
        constants[0],
        constants[1],
        (min(lines), max(lines)),
        is_seen=op in _SEEN,
        is_compiled=name not in _ON_HOST,
    )


def _on_variable(use: Callable[..., Any]) -> Callable[..., Any]:
    """Return the use of a variable, which is set to the first argument before."""
    made: list[tf.Variable] = []

    def run(x: Any, *rest: Any) -> Any:
        with tf.init_scope():
            if not made:
                made.append(tf.Variable(tf.zeros(x.shape, x.dtype)))
        made[0].assign(x)
        result = use(made[0], *rest)
        return made[0].read_value() if isinstance(result, tf.Operation) else result

    return run


_ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
_THREE = [1.0, 2.0, 3.0]
_ALL, _TWO = [True, True, True], [True, False, True]


def _asserted(x: Any, condition: Any) -> Any:
    tf.debugging.Assert(condition, ["wrong", x])
    return x * 2.0


def _checked(x: Any) -> Any:
    return tf.debugging.check_numerics(tf.sqrt(x), "the roots") * 2.0


_use("Assert", _asserted, (_THREE, True), (_THREE, False))
_use("CheckNumerics", _checked, ([4.0, 1.0],), ([4.0, -1.0],))
_use("CheckNumerics", _checked, ([4.0, 1.0],), ([4.0, _INF],))

# Divisions.
_DIVIDED = ([7, -8, 9], [2, 3, -4]), ([7, -8, 9], [2, 0, -4])
_use("Div", lambda x, y: tf.raw_ops.Div(x=x, y=y) + 1, *_DIVIDED)
_use("FloorDiv", lambda x, y: x // y + 1, *_DIVIDED)
_use("FloorDiv", lambda x, y: x // y + 1, ([7, 8], 2), ([7, 8], 0))
_use("FloorMod", lambda x, y: x % y + 1, *_DIVIDED)
_use("Mod", lambda x, y: tf.raw_ops.Mod(x=x, y=y) + 1, *_DIVIDED)
_use("TruncateDiv", lambda x, y: tf.truncatediv(x, y) + 1, *_DIVIDED)
_use("TruncateMod", lambda x, y: tf.truncatemod(x, y) + 1, *_DIVIDED)
_use("Pow", lambda x, y: tf.pow(x, y) + 1, ([2, 3], [3, 0]), ([2, 3], [3, -1]))
_use(
    "Pow",
    lambda x, mask: tf.pow(tf.boolean_mask(x, mask), -3) + 1,
    ([2, 3], [False, False]),
    ([2, 3], [True, False]),
)

# Rows that indices take, and rows that they replace.
_TAKEN, _PLACED = ((_ROWS, [0, 2]), (_ROWS, [0, 3])), ((_ROWS, [[0], [2]]), (_ROWS, [[0], [-1]]))
_use("Gather", lambda x, i: tf.raw_ops.Gather(params=x, indices=i) * 2.0, *_TAKEN)
_use("GatherV2", lambda x, i: tf.gather(x, i) * 2.0, *_TAKEN)
_use("GatherV2", lambda x, i: tf.gather(x, i, axis=1), (_ROWS, [0, 1]), (_ROWS, [0, -1]))
_use("GatherV2", lambda x, i: tf.nn.embedding_lookup(x, i) * 2.0, *_TAKEN)
_use(
    "GatherV2",
    lambda x, i, axis: tf.gather(x, i, axis=axis),
    (_ROWS, [0, 1], 1),
    (_ROWS, [0, 2], 1),
)
_use("GatherNd", lambda x, i: tf.gather_nd(x, i) * 2.0, *_PLACED)
_use(
    "GatherNd",
    lambda x, i: tf.gather_nd(x, i) * 2.0,
    (_ROWS, [[0, 1], [2, 0]]),
    (_ROWS, [[0, 1], [2, 2]]),
)
_use("ScatterNd", lambda x, i: tf.scatter_nd(i, x[:2], [3, 2]) * 2.0, *_PLACED)
for _op, _scatter in {
    "TensorScatterUpdate": tf.tensor_scatter_nd_update,
    "TensorScatterAdd": tf.tensor_scatter_nd_add,
    "TensorScatterSub": tf.tensor_scatter_nd_sub,
    "TensorScatterMin": tf.tensor_scatter_nd_min,
    "TensorScatterMax": tf.tensor_scatter_nd_max,
}.items():
    _use(_op, lambda x, i, scatter=_scatter: scatter(x, i, x[:2] * 2.0) * 2.0, *_PLACED)
_use("ResourceGather", lambda v, i: tf.gather(v, i) * 2.0, *_TAKEN, on_variable=True)
_use("ResourceGatherNd", lambda v, i: v.gather_nd(i) * 2.0, *_PLACED, on_variable=True)


def _scattered(op: str) -> Callable[..., Any]:
    return lambda v, i: getattr(tf.raw_ops, op)(
        resource=v.handle, indices=i, updates=tf.constant([[2.0, 4.0], [3.0, 5.0]])
    )


def _scattered_nd(op: str) -> Callable[..., Any]:
    return lambda v, i: getattr(tf.raw_ops, op)(
        ref=v.handle, indices=i, updates=tf.constant([[2.0, 4.0], [3.0, 5.0]])
    )


for _what in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update"):
    _op = f"ResourceScatter{_what}"
    _use(_op, _scattered(_op), *_TAKEN, on_variable=True)
_use(
    "ResourceScatterDiv",
    lambda v, y: tf.raw_ops.ResourceScatterDiv(resource=v.handle, indices=[0, 2], updates=y),
    (_ROWS, [[2.0, 4.0], [3.0, _NAN]]),
    (_ROWS, [[2.0, 4.0], [3.0, 0.0]]),
    on_variable=True,
)
for _what in ("Add", "Sub", "Update", "Min", "Max"):
    _op = f"ResourceScatterNd{_what}"
    _use(_op, _scattered_nd(_op), *_PLACED, on_variable=True)

for _op, _segment in {
    "UnsortedSegmentSum": tf.math.unsorted_segment_sum,
    "UnsortedSegmentProd": tf.math.unsorted_segment_prod,
    "UnsortedSegmentMin": tf.math.unsorted_segment_min,
    "UnsortedSegmentMax": tf.math.unsorted_segment_max,
}.items():
    _use(
        _op,
        lambda x, ids, segment=_segment: segment(x, ids, 2) * 2.0,
        (_THREE, [0, 1, -1]),
        (_THREE, [0, 2, 1]),
    )

# Places in a tensor.
_use("StridedSlice", lambda x, i: x[i] * 2.0, (_THREE, -3), (_THREE, 3))
_use("StridedSlice", lambda x, i: x[:, i] * 2.0, (_ROWS, 1), (_ROWS, -3))
_use("StridedSlice", lambda x, i: x[0, tf.newaxis, i] * 2.0, (_ROWS, 1), (_ROWS, 2))
_use("StridedSlice", lambda x, i: x[..., i] * 2.0, (_ROWS, 1), (_ROWS, 2))
_use(
    "StridedSliceGrad",
    lambda i, y: tf.raw_ops.StridedSliceGrad(
        shape=[3], begin=[i], end=[i + 1], strides=[1], dy=y, shrink_axis_mask=1
    ),
    (2, 5.0),
    (3, 5.0),
)
_use("Slice", lambda x, i: tf.slice(x, [i], [2]) * 2.0, (_THREE, 1), (_THREE, 2))
_use("Slice", lambda x, i: tf.slice(x, i, [2, 1]) * 2.0, (_ROWS, [1, 0]), (_ROWS, [-1, 0]))
_use(
    "ReverseSequence",
    lambda x, lengths: tf.reverse_sequence(x, lengths, seq_axis=1) * 2.0,
    (_ROWS, [0, 2, 1]),
    (_ROWS, [0, 3, 1]),
)
_use(
    "SparseToDense",
    lambda i, x: tf.raw_ops.SparseToDense(
        sparse_indices=i, output_shape=[3], sparse_values=x, default_value=0.0
    ),
    ([[0], [2]], [1.0, 2.0]),
    ([[2], [0]], [1.0, 2.0]),
)
_use(
    "SparseToDense",
    lambda i, x: tf.raw_ops.SparseToDense(
        sparse_indices=i,
        output_shape=[3, 2],
        sparse_values=x,
        default_value=0.0,
        validate_indices=False,
    ),
    ([[2, 1], [0, 0]], [1.0, 2.0]),
    ([[2, 1], [0, 2]], [1.0, 2.0]),
)

# Labels, numbers of classes and permutations.
_use(
    "SparseSoftmaxCrossEntropyWithLogits",
    lambda x, labels: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x),
    (_ROWS, [0, 1, 1]),
    (_ROWS, [0, 2, 1]),
)
_use(
    "DynamicPartition",
    lambda x, parts: tf.reduce_sum(tf.dynamic_partition(x, parts, 2)[1]),
    (_THREE, [0, 1, 1]),
    (_THREE, [0, 2, 1]),
)
_use(
    "Bincount",
    lambda x: tf.raw_ops.Bincount(arr=x, size=4, weights=tf.constant([], tf.int32)) + 1,
    ([1, 3, 1, 9],),
    ([1, 3, -1],),
)
_use(
    "DenseBincount",
    lambda x: tf.raw_ops.DenseBincount(input=x, size=4, weights=tf.constant([], tf.int32)) + 1,
    ([1, 3, 1, 9],),
    ([1, 3, -1, 0],),
)
_use("InvertPermutation", lambda x: tf.math.invert_permutation(x) + 1, ([1, 0],), ([1, 1],))
_use("InvertPermutation", lambda x: tf.math.invert_permutation(x) + 1, ([1, 0],), ([1, 2],))


def _chosen(boxes: Any, threshold: Any) -> Any:
    scores = tf.constant([0.5, 0.9, 0.7])
    return tf.reduce_sum(tf.image.non_max_suppression(boxes, scores, 2, threshold))


def _chosen_and_padded(boxes: Any, threshold: Any) -> Any:
    return tf.raw_ops.NonMaxSuppressionV4(
        boxes=boxes,
        scores=[0.5, 0.9, 0.7],
        max_output_size=2,
        iou_threshold=threshold,
        score_threshold=0.0,
        pad_to_max_output_size=True,
    )


_BOXES = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9], [2.0, 2.0, 3.0, 3.0]]
_use("NonMaxSuppressionV3", _chosen, (_BOXES, 0.5), (_BOXES, 1.5))
_use("NonMaxSuppressionV4", _chosen_and_padded, (_BOXES, 0.5), (_BOXES, _NAN))

# Lists, which TensorArrays of TensorFlow 2 are, and the arrays of TensorFlow 1.


def _listed(x: Any) -> Any:
    return tf.TensorArray(x.dtype, size=3).unstack(x)


_use("TensorListGetItem", lambda x, i: _listed(x).read(i) * 2.0, (_ROWS, 2), (_ROWS, 3))
_use(
    "TensorListSetItem",
    lambda x, i: _listed(x).write(i, x[0]).stack() * 2.0,
    (_ROWS, 2),
    (_ROWS, -1),
)
_use("TensorListGather", lambda x, i: _listed(x).gather(i) * 2.0, *_TAKEN)
_use(
    "TensorListSplit",
    lambda x, mask: tf.TensorArray(tf.float32, 2).split(tf.boolean_mask(x, mask), [2, 1]).read(0),
    (_THREE, _ALL),
    (_THREE, _TWO),
)


class _Array:
    """A TensorArray of TensorFlow 1 for three rows of two numbers."""

    def __init__(self) -> None:
        made = tf.raw_ops.TensorArrayV3(size=3, dtype=tf.float32, element_shape=[2])
        self.handle, self.flow = made

    def scattered(self, x: Any, indices: Any) -> Any:
        self.flow = tf.raw_ops.TensorArrayScatterV3(
            handle=self.handle, indices=indices, value=x, flow_in=self.flow
        )
        return self

    def written(self, x: Any, index: Any) -> Any:
        self.flow = tf.raw_ops.TensorArrayWriteV3(
            handle=self.handle, index=index, value=x, flow_in=self.flow
        )
        return self

    def gathered(self, indices: Any) -> Any:
        return tf.raw_ops.TensorArrayGatherV3(
            handle=self.handle, indices=indices, flow_in=self.flow, dtype=tf.float32,
            element_shape=[2],
        )  # fmt: skip

    def read(self, index: Any) -> Any:
        return tf.raw_ops.TensorArrayReadV3(
            handle=self.handle, index=index, flow_in=self.flow, dtype=tf.float32
        )


_ORDER = [0, 1, 2]
_use(
    "TensorArrayReadV3",
    lambda x, i: _Array().scattered(x, _ORDER).read(i) * 2.0,
    (_ROWS, 1),
    (_ROWS, 3),
    made_by=_Array.read,
)
_use(
    "TensorArrayGatherV3",
    lambda x, i: _Array().scattered(x, _ORDER).gathered(i) * 2.0,
    *_TAKEN,
    made_by=_Array.gathered,
)
_use(
    "TensorArrayWriteV3",
    lambda x, i: _Array().written(x[0], i).gathered([i]) * 2.0,
    (_ROWS, 1),
    (_ROWS, 3),
    made_by=_Array.written,
)
_use(
    "TensorArrayScatterV3",
    lambda x, i: _Array().scattered(x, i).gathered(i) * 2.0,
    (_ROWS, [2, 0, 1]),
    (_ROWS, [2, 0, 3]),
    made_by=_Array.scattered,
)

# Bands, ranges and rates.
_use("MatrixBandPart", lambda x, n: tf.linalg.band_part(x, n, 0), (_ROWS, 3), (_ROWS, 4))
_use("MatrixBandPart", lambda x, n: tf.linalg.band_part(x, -1, n), (_ROWS, -5), (_ROWS, 3))
for _op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4"):
    _use(
        _op,
        lambda x, least, op=_op: getattr(tf.raw_ops, op)(
            input=x, input_min=least, input_max=4.0, range_given=True, num_bits=8
        ),
        (_ROWS, 4.0),
        (_ROWS, _NAN),
    )
for _bad in (0, 62):
    _use(
        "QuantizeAndDequantizeV3",
        lambda x, bits: tf.raw_ops.QuantizeAndDequantizeV3(
            input=x, input_min=0.0, input_max=0.0, num_bits=bits, range_given=False
        ),
        (_ROWS, 8),
        (_ROWS, _bad),
    )


def _dequantized(x: Any, scale: Any) -> Any:
    return tf.raw_ops.UniformDequantize(
        input=tf.cast(x, tf.qint8), scales=scale, zero_points=3, Tout=tf.float32,
        quantization_min_val=-128, quantization_max_val=127,
    )  # fmt: skip


def _requantized(x: Any, scale: Any, other: Any) -> Any:
    requantized = tf.raw_ops.UniformRequantize(
        input=tf.cast(x, tf.qint8), input_scales=scale, input_zero_points=3, output_scales=other,
        output_zero_points=1, Tout=tf.qint8, input_quantization_min_val=-128,
        input_quantization_max_val=127, output_quantization_min_val=-128,
        output_quantization_max_val=127,
    )  # fmt: skip
    return tf.cast(requantized, tf.int32)


def _of_two_quantized(op: str, kind: tf.DType, limits: tuple[int, int]) -> Callable[..., Any]:
    """Return the use of an op of two operands, with the limits of their dtype."""
    wide = tf.int32.min, tf.int32.max
    sides = {"lhs": limits, "rhs": limits, "output": wide}
    ends = {
        f"{side}_quantization_{end}_val": value
        for side, values in sides.items()
        for end, value in zip(("min", "max"), values, strict=True)
    }

    def run(x: Any, one: Any, other: Any, result: Any) -> Any:
        found = getattr(tf.raw_ops, op)(
            lhs=tf.cast(x, kind), rhs=tf.cast(x, kind), lhs_scales=one, rhs_scales=other,
            output_scales=result, lhs_zero_points=0, rhs_zero_points=0, output_zero_points=0,
            **ends, **({"Tout": tf.qint32} if op == "UniformQuantizedDot" else {}),
        )  # fmt: skip
        return tf.cast(found, tf.int32)

    return run


_WHOLE = [[1, 2], [3, 4]]
_use("UniformDequantize", _dequantized, (_WHOLE, 0.5), (_WHOLE, _NAN))
_use("UniformRequantize", _requantized, (_WHOLE, 0.5, 0.25), (_WHOLE, _INF, 0.25))
_use("UniformRequantize", _requantized, (_WHOLE, 0.5, 0.25), (_WHOLE, 0.5, _NAN))
for _op, _kind, _limits in (
    ("UniformQuantizedAdd", tf.qint32, (tf.int32.min, tf.int32.max)),
    ("UniformQuantizedDot", tf.qint8, (-128, 127)),
):
    for _place in (1, 2, 3):
        _good = [_WHOLE, 0.5, 0.25, 0.125]
        _wrong = [_INF if place == _place else value for place, value in enumerate(_good)]
        _use(_op, _of_two_quantized(_op, _kind, _limits), _good, _wrong)


def _adapted(made: list[tf.Variable]) -> Callable[..., Any]:
    """Return the use of a variable and of another one, which is put into a list."""

    def run(v: Any, rate: Any, lasso: Any, ridge: Any) -> Any:
        with tf.init_scope():
            if not made:
                made.append(tf.Variable(tf.ones(v.shape)))
        made[0].assign(tf.ones(v.shape))
        return tf.raw_ops.ResourceApplyProximalAdagrad(
            var=v.handle, accum=made[0].handle, lr=rate, l1=lasso, l2=ridge, grad=v * 2.0
        )

    return run


for _number in (1, 2, 3):
    _rates = [_ROWS, 0.5, 0.0, 0.25]
    _wrong = [_NAN if place == _number else value for place, value in enumerate(_rates)]
    _use("ResourceApplyProximalAdagrad", _adapted([]), _rates, _wrong, on_variable=True)

# Random numbers: the good ones have no choice.


def _truncated(mean: Any, spread: Any) -> Any:
    return tf.round(
        tf.raw_ops.ParameterizedTruncatedNormal(
            shape=[3], means=mean, stdevs=spread, minvals=0.9, maxvals=1.1
        )
    )


_use("ParameterizedTruncatedNormal", _truncated, (1.0, 1.0), (1.0, 0.0))
_use("ParameterizedTruncatedNormal", _truncated, (1.0, 1.0), (_INF, 1.0))
_use(
    "RandomUniformInt",
    lambda low, high: tf.random.uniform([3], low, high, tf.int32),
    (3, 4),
    (3, 3),
)
_use(
    "StatelessRandomUniformInt",
    lambda low, high: tf.raw_ops.StatelessRandomUniformInt(
        shape=[3], seed=[1, 2], minval=low, maxval=high
    ),
    (3, 4),
    (4, 3),
)
_use(
    "StatelessRandomUniformIntV2",
    lambda low, high: tf.random.stateless_uniform([3], [1, 2], low, high, tf.int32),
    (3, 4),
    (4, 3),
)


def hidden(values: Sequence[Any], zero: Any) -> list[Any]:
    """Return the values as XLA cannot know them when it compiles: zero is a float that it does not.

    XLA takes an argument for a constant where it needs one.
    """
    return [
        tf.logical_and(value, zero < 1.0)
        if value.dtype.is_bool
        else value + tf.cast(zero, value.dtype)
        for value in values
    ]
