"""Each op that bounded sizes may reach in one program is right there: the table proves itself."""

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.sizes import flow
from hostcall._compiler.sizes.flow import RULES
from hostcall._ops import settings
from tests.support.helpers import assert_alike

Program = Callable[..., Any]

raw = tf.raw_ops

# The names of a program's parameters tell its inputs:
#   m: at most 5 rows of 3 numbers between 0 and 1, c: 3 rows of at most 5, s: at most 5 rows of at
#   most 4; u and v: the first two columns of m; of the same size, i: integers from 0 to 3, b: truth
#   values, z: complex numbers.


def _stop(values: Any) -> Any:
    """Results of which no gradient is proven, or which have none."""
    return tf.nest.map_structure(tf.stop_gradient, values)


def _call(op: str, *operands: Any) -> Any:
    function = getattr(raw, op)
    names = [name for name in function.__signature__.parameters if name != "name"]
    return function(**dict(zip(names, operands, strict=False)))


# The proofs of ops that are alike.
KINDS: list[tuple[str, Callable[[str], list[Program]]]] = [
    (
        "Abs Acos Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Cos Cosh Elu Erf Erfc Erfinv Exp "
        "Expm1 Floor Inv IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p Ndtri Neg Rank Reciprocal "
        "Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square Tan "
        "Tanh ZerosLike Identity StopGradient",
        lambda op: [lambda u: _call(op, u)],
    ),
    (
        "AddV2 Atan2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual "
        "Maximum Minimum Mul MulNoNan NextAfter NotEqual Pow RealDiv SquaredDifference Sub Xdivy "
        "Xlogy",
        lambda op: [
            lambda u, v: _call(op, u, v),
            lambda m: _call(op, m, tf.constant([0.25, 0.5, 0.75])),
            lambda c: _call(op, tf.constant(0.5), c),
            lambda u, v: _call(op, u[:, None], v[None, :]),
        ],
    ),
    (
        "Complex EluGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SigmoidGrad "
        "SoftplusGrad SqrtGrad TanhGrad",
        lambda op: [lambda u, v: _call(op, u, v)],
    ),
    ("Digamma PreventGradient Snapshot", lambda op: [lambda u: _stop(_call(op, u))]),
    ("SoftsignGrad TruncateMod", lambda op: [lambda u, v: _stop(_call(op, u, v))]),
    (
        "BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift TruncateDiv",
        lambda op: [lambda i: _call(op, i, tf.constant(2))],
    ),
    ("Invert", lambda op: [lambda i: _call(op, i)]),
    ("LogicalNot", lambda op: [lambda b: _call(op, b)]),
    ("LogicalAnd LogicalOr", lambda op: [lambda b: _call(op, b, ~b)]),
    ("Angle Conj Imag Real", lambda op: [lambda z: _call(op, z)]),
    ("Max Mean Min Sum", lambda op: _reductions(getattr(tf, f"reduce_{op.lower()}"))),
    (
        "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum",
        lambda op: [
            lambda u, i: _call(op, u, i, 4),
            lambda m, i: _call(op, m, i % tf.maximum(tf.size(i), 1), tf.size(i)),
        ],
    ),
    (
        "TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub",
        lambda op: [
            lambda u, i: _call(op, tf.ones([4]), i[:, None], u),
            lambda m, i: _call(op, tf.ones([4, 3]), i[:, None], m),
            lambda m, u: _stop(_call(op, m, tf.range(tf.size(u))[:, None], m * u[:, None])),
        ],
    ),
]


def _reductions(reduce: Program) -> list[Program]:
    return [
        lambda u: reduce(u, 0),
        lambda m: [reduce(m, 0), reduce(m, 1), reduce(m, [0, 1])],
        lambda c: [reduce(c, -1, keepdims=True), reduce(c, 0)],
        lambda s: [reduce(s, 0), reduce(s, 1), reduce(s, None)],
    ]


def _fixed(u: Any) -> Any:
    """A vector of fixed size, with zeros behind its elements."""
    return tf.scatter_nd(tf.range(tf.size(u))[:, None], u, [5])


def _rows(m: Any) -> Any:
    """The same of a matrix."""
    return tf.scatter_nd(tf.range(tf.shape(m)[0])[:, None], m, [5, 3])


def _kept_boxes(m: Any) -> Any:
    corners = tf.concat([_rows(m)[:, :2], _rows(m)[:, :2] + 0.5], 1)
    return tf.image.non_max_suppression(corners, _rows(m)[:, 2], 3, 0.2)


def _segments_of_unique(i: Any) -> Any:
    values, positions = tf.unique(i)
    return tf.math.unsorted_segment_sum(tf.cast(i, tf.float32), positions, tf.size(values))


def _masked_loss(x: Any) -> Any:
    """The mean of what a mask leaves, of some kinds."""
    mask = x > 0.4 if x.shape.rank == 1 else tf.reduce_max(x, 1) > 0.6
    kept = tf.boolean_mask(x, mask)
    count = tf.maximum(tf.cast(tf.shape(kept)[0], tf.float32), 1.0)
    log = tf.nn.log_softmax(kept) if x.shape.rank == 2 else tf.math.log1p(kept)
    return [tf.reduce_sum(kept**2) / count, tf.reduce_sum(log), tf.reduce_sum(tf.abs(kept - 0.25))]


PROOFS: dict[str, list[Program]] = {
    **{op: proofs(op) for ops, proofs in KINDS for op in ops.split()},
    "Acosh": [lambda u: tf.acosh(u + 1.5)],
    "AddN": [lambda u, v: tf.add_n([u, v, u])],
    "All": _reductions(lambda x, *args, **kwargs: tf.reduce_all(x > 0.2, *args, **kwargs)),
    "Any": _reductions(lambda x, *args, **kwargs: tf.reduce_any(x > 0.7, *args, **kwargs)),
    "ArgMax": [lambda m: tf.argmax(m, 1), lambda c: tf.argmax(c, 0)],
    "ArgMin": [lambda m: tf.argmin(m, -1), lambda c: tf.argmin(c, 0)],
    "BatchMatMulV2": [
        lambda m: tf.matmul(m[:, :, None], m[:, None, :]),
        lambda m: tf.matmul(tf.stack([m, m]), tf.stack([m, m]), transpose_b=True),
        lambda m: tf.matmul(tf.stack([m, m]), tf.stack([m, m]), transpose_a=True),
        lambda c: tf.matmul(tf.stack([c, c]), tf.stack([c, c]), transpose_b=True),
    ],
    "BiasAdd": [lambda m: tf.nn.bias_add(m, tf.constant([1.0, 2.0, 3.0]))],
    "BiasAddGrad": [lambda m: raw.BiasAddGrad(out_backprop=m)],
    "BroadcastGradientArgs": [lambda u, v: tf.gradients(u[:, None] * v[None, :], [u, v])],
    "BroadcastTo": [
        lambda u: tf.broadcast_to(tf.constant(2.0), tf.shape(u)),
        lambda m: tf.broadcast_to(tf.reduce_sum(m, 0, keepdims=True), tf.shape(m)),
        lambda s: tf.broadcast_to(tf.reduce_sum(s, 1, keepdims=True), tf.shape(s)),
    ],
    "Bitcast": [lambda u: tf.bitcast(u, tf.int32), lambda i: tf.bitcast(i, tf.float32)],
    "Cast": [lambda u: [tf.cast(u * 10.0, tf.int32), tf.cast(u, tf.float64)]],
    "CheckNumerics": [lambda u: tf.debugging.check_numerics(u, "")],
    "ClipByValue": [lambda u: raw.ClipByValue(t=u, clip_value_min=0.2, clip_value_max=0.7)],
    "ConcatOffset": [lambda m: tf.gradients(tf.concat([m, m * m], 1), m)],
    "ConcatV2": [
        lambda u, v: _stop(tf.concat([[1.0, 2.0], u, v, [3.0]], 0)),
        lambda m: _stop(tf.concat([m, 2.0 * m], 0)),
        lambda m: tf.concat([m, m * m], 1),
        lambda c: tf.concat([c, c * c], 0),
        lambda c: _stop(tf.concat([c, c * c], 1)),
        lambda s: _stop([tf.concat([s, s], 0), tf.concat([s, s], 1)]),
    ],
    "Cumprod": [lambda m: tf.math.cumprod(m, 1), lambda c: tf.math.cumprod(c, 0)],
    "Cumsum": [lambda m: tf.cumsum(m, 1, exclusive=True), lambda c: tf.cumsum(c, 0, reverse=True)],
    "DynamicStitch": [lambda m: tf.gradients(tf.reduce_sum(m, 0), m)],
    "DynamicPartition": [
        lambda u: _stop(tf.dynamic_partition(_fixed(u), tf.cast(_fixed(u) > 0.4, tf.int32), 3)),
        lambda m: _stop(tf.dynamic_partition(_rows(m), tf.cast(_rows(m)[:, 1] > 0.3, tf.int32), 2)),
        lambda u: [tf.size(part) for part in tf.dynamic_partition(_fixed(u), [0, 1, 0, 1, 1], 2)],
    ],
    "EnsureShape": [lambda u: tf.ensure_shape(u, [None]), lambda m: tf.ensure_shape(m, [None, 3])],
    "ExpandDims": [lambda m: [tf.expand_dims(m, axis) for axis in (0, 1, -1)]],
    "Fill": [
        lambda u: tf.fill(tf.shape(u), 2.0),
        lambda s: tf.reduce_sum(tf.ones(tf.shape(s))),
        lambda m: tf.ones(tf.stack([tf.shape(m)[0], 2])),
    ],
    "GatherNd": [
        lambda i: tf.gather_nd(tf.constant([0.1, 0.2, 0.3, 0.4]), i[:, None]),
        lambda i: tf.gather_nd(tf.reshape(tf.range(12.0), [4, 3]), tf.stack([i, i % 3], 1)),
        lambda m, i: tf.gather_nd(m, (i % tf.maximum(tf.size(i), 1))[:, None]),
    ],
    "GatherV2": [
        lambda i: tf.gather(tf.constant([0.1, 0.2, 0.3, 0.4]), i),
        lambda i: tf.gather(tf.reshape(tf.range(12.0), [3, 4]), i, axis=1),
        lambda u, i: tf.gather(u, i % tf.maximum(tf.size(i), 1)),
        lambda m, i: tf.gather(m, i % tf.maximum(tf.size(i), 1)),
        lambda c: _stop(tf.gather(c, [2, 0], axis=0)),
        lambda m: _stop(tf.gather(m, [2, 0], axis=1)),
        lambda m, i: _stop(tf.gather(m, (i % 3)[:, None], batch_dims=1)),
    ],
    "IdentityN": [lambda u, v: tf.identity_n([u, v])],
    "InvertPermutation": [lambda m: tf.gradients(tf.transpose(m * m, [1, 0]), m)],
    "L2Loss": [lambda u: tf.nn.l2_loss(u), lambda s: tf.nn.l2_loss(s)],
    "LogSoftmax": [
        lambda u: tf.nn.log_softmax(u),
        lambda m: tf.nn.log_softmax(m),
        lambda s: tf.nn.log_softmax(s),
    ],
    "MatMul": [
        lambda m: tf.matmul(m, m, transpose_b=True),
        lambda m: tf.matmul(m, m, transpose_a=True),
        lambda c: tf.matmul(c, c, transpose_b=True),
        lambda s: tf.matmul(s, s, transpose_a=True),
        lambda m: tf.matmul(m, tf.ones([3, 4])),
        lambda m: tf.matmul(tf.ones([4, 3]), m, transpose_b=True),
        lambda u, v: tf.matmul(u[None, :], v[:, None]),
    ],
    "NonMaxSuppressionV3": [
        lambda m: _stop(_kept_boxes(m)),
        lambda m: tf.gather(_rows(m), _stop(_kept_boxes(m))),
    ],
    "OneHot": [lambda i: [tf.one_hot(i, 4), tf.one_hot(i, 4, axis=0)]],
    "Pack": [
        lambda u, v: [tf.stack([u, v]), tf.stack([u, v, u], axis=1)],
        lambda m: tf.stack([m, m * m], axis=-1),
    ],
    "Pad": [lambda u: _stop(tf.pad(u, [[1, 2]])), lambda c: _stop(tf.pad(c, [[0, 1], [2, 0]]))],
    "PadV2": [
        lambda u: _stop(tf.pad(u, [[1, 2]], constant_values=3.0)),
        lambda s: _stop(tf.pad(s, [[0, 1], [2, 0]], constant_values=3.0)),
    ],
    "Prod": [
        lambda u: _stop(tf.reduce_prod(u)),
        lambda s: _stop([tf.reduce_prod(s, 0), tf.reduce_prod(s, 1)]),
    ],
    "Range": [lambda u: tf.range(tf.size(u)), lambda s: tf.range(tf.shape(s)[1])],
    "Reshape": [
        lambda u: [tf.reshape(u, [-1, 1]), tf.reshape(u, [1, -1])],
        lambda m: [tf.reshape(m, [-1]), tf.reshape(m, [-1, 3, 1]), tf.reshape(m, [tf.size(m)])],
        lambda c: tf.reshape(c, [-1]),
        lambda s: [tf.reshape(s, [-1]), tf.reshape(s * 2.0, tf.shape(s))],
        lambda m: tf.reshape(m[:, :, None] * tf.constant([1.0, 2.0]), [-1, 6]),
        lambda m: tf.reshape(tf.reshape(m, [-1]), tf.shape(m)),
    ],
    "ReverseV2": [
        lambda u: tf.reverse(u, [0]),
        lambda s: tf.reverse(s, [0, 1]),
        lambda m: tf.reverse(m, [1]),
    ],
    "ScatterNd": [
        lambda u, i: tf.scatter_nd(i[:, None], u, [4]),
        lambda m, i: tf.scatter_nd(i[:, None], m, [4, 3]),
    ],
    "Select": [
        lambda u, v: raw.Select(condition=u > v, x=u, y=v),
        lambda u, v: raw.Select(condition=tf.reduce_sum(u) > 1.0, x=u, y=v),
    ],
    "SelectV2": [
        lambda u, v: tf.where(u > v, u, v),
        lambda m: tf.where(m > 0.5, m, tf.constant([1.0, 2.0, 3.0])),
        lambda u, v: tf.where(tf.reduce_sum(u) > 1.0, u, v),
    ],
    "Shape": [lambda s: [tf.shape(s), tf.shape(s, tf.int64)[1]]],
    "ShapeN": [lambda u, s: tf.shape_n([u, s])],
    "Size": [lambda s: [tf.size(s), tf.size(s, tf.int64)]],
    "Slice": [
        lambda m: tf.gradients(tf.concat([m, m * m], 1), m),
        lambda c: _stop(tf.slice(c, [1, 0], [2, -1])),
    ],
    "Softmax": [
        lambda u: tf.nn.softmax(u),
        lambda m: tf.nn.softmax(m),
        lambda s: tf.nn.softmax(s),
        lambda m: tf.nn.softmax(m, 0),
    ],
    "SoftmaxCrossEntropyWithLogits": [
        lambda m: raw.SoftmaxCrossEntropyWithLogits(features=m, labels=m * 0.5).loss,
        lambda c: raw.SoftmaxCrossEntropyWithLogits(features=c, labels=c * 0.5).loss,
    ],
    "SparseSoftmaxCrossEntropyWithLogits": [
        lambda m, i: tf.nn.sparse_softmax_cross_entropy_with_logits(i % 3, m)
    ],
    "Split": [lambda m: _stop(tf.split(m, 3, 1)), lambda c: _stop(tf.split(c, 3, 0))],
    "SplitV": [lambda m: _stop(tf.split(m, [1, 2], 1)), lambda c: _stop(tf.split(c, [1, 2], 0))],
    "Squeeze": [lambda u: [tf.squeeze(u[:, None], 1), tf.squeeze(u[None], 0)]],
    "StridedSlice": [
        lambda u: [u[:2], u[0:3], u[:, None], u[None]],
        lambda m: [m[:, 0], m[:, -1], m[:, 1:], m[:, ::-1], m[:2], m[..., 1], m[:4, :2]],
        lambda c: [c[0], c[-1], c[1:], c[::2], c[:, :3]],
        lambda s: [s[:2], s[:, :2], s[:, None, :3]],
    ],
    "StridedSliceGrad": [
        lambda u: tf.gradients(u[:2] * 3.0, u),
        lambda m: tf.gradients(m[:, 1] * 3.0, m),
    ],
    "TensorScatterUpdate": [
        lambda u: tf.tensor_scatter_nd_update(tf.ones([5]), tf.range(tf.size(u))[:, None], u),
        lambda m: tf.tensor_scatter_nd_update(m, tf.range(tf.shape(m)[0])[:, None], m * 2.0),
    ],
    "Tile": [
        lambda u: _stop(tf.tile(u, [2])),
        lambda s: _stop(tf.tile(s, [2, 3])),
        lambda u: _stop(tf.tile([2.0], tf.shape(u))),
    ],
    "TopKV2": [
        lambda u: _stop([tf.sort(u), tf.sort(u, direction="DESCENDING")]),
        lambda m: _stop([*tf.math.top_k(m, 2), tf.sort(m, 0)]),
        lambda s: _stop(tf.sort(s, 1)),
        lambda u: tf.argsort(u, stable=True),
    ],
    "Transpose": [
        lambda m: tf.transpose(m),
        lambda s: tf.transpose(s),
        lambda m: tf.transpose(m[:, :, None] * tf.ones([2]), [2, 0, 1]),
    ],
    "Unique": [
        lambda u: _stop([*tf.unique(_fixed(u)), tf.size(tf.unique(_fixed(u)).y)]),
        lambda i: _stop(tf.unique(_fixed(i))),
        lambda i: _segments_of_unique(_fixed(i)),
    ],
    "UniqueV2": [
        lambda i: _stop(raw.UniqueV2(x=_fixed(i), axis=tf.zeros([0], tf.int32))),
        lambda i: tf.size(raw.UniqueV2(x=_fixed(i), axis=tf.zeros([0], tf.int32)).y),
    ],
    "Unpack": [lambda m: tf.unstack(m, axis=1), lambda c: tf.unstack(c)],
    "Where": [
        lambda u: tf.where(u > 0.5),
        lambda u: tf.boolean_mask(u, u > 0.5),
        lambda m: tf.boolean_mask(m, m[:, 0] > 0.5),
        lambda m: tf.where(_rows(m) > 0.4),
        lambda m: tf.gather_nd(_rows(m), tf.where(_rows(m) > 0.4)),
        lambda m: tf.boolean_mask(_rows(m), _rows(m) > 0.4),
        lambda u: _masked_loss(_fixed(u)),
        lambda m: _masked_loss(_rows(m)),
    ],
}


pytestmark = pytest.mark.custom_call("between clusters no size is bounded")

BOUND = 5

# The shapes of inputs: -1 stands for the size, -2 for the size, but at most 4.
SHAPES = {"m": [-1, 3], "c": [3, -1], "s": [-1, -2]}


def _bounded(shape: list[int], n: tf.Tensor, padding: tf.Tensor) -> tf.Tensor:
    """Numbers between 0 and 1, no two the same."""

    def numbers(n: Any, padding: Any) -> np.ndarray:
        sizes = [{-1: int(n), -2: min(4, int(n))}.get(size, size) for size in shape]
        count = int(np.prod(sizes))
        order = np.random.default_rng(count).permutation(32)[:count]
        return ((order * 2 + 1) / 64 - padding).reshape(sizes).astype(np.float32)

    bounds = [{-1: BOUND, -2: 4}.get(size, size) for size in shape]
    dims = [dim for dim, size in enumerate(shape) if size < 0]
    spec = hostcall.BoundedSpec(bounds, tf.float32, dims)
    return tf.numpy_function(numbers, [n, padding], spec) + padding


def _inputs(names: set[str], n: tf.Tensor, padding: tf.Tensor) -> dict[str, tf.Tensor]:
    """Make the inputs of a program, by the names of its parameters."""
    needed = names & SHAPES.keys() | ({"m"} if names - SHAPES.keys() else set())
    made = {name: _bounded(SHAPES[name], n, padding) for name in sorted(needed)}
    if "m" in made:
        u, v = made["m"][:, 0], made["m"][:, 1]
        made |= {"u": u, "v": v, "b": u > 0.5, "i": tf.cast(u * 4.0, tf.int32)}
        made["z"] = tf.complex(u, v)
    return made


def _with_gradients(programs: Sequence[Program]) -> Program:
    """Programs, and their gradients, as one of a size and of what lies beyond it."""
    names = [[*inspect.signature(program).parameters] for program in programs]

    def run(n: tf.Tensor, padding: tf.Tensor) -> Any:
        inputs = _inputs({name for some in names for name in some}, n, padding)
        taken = [[inputs[name] for name in some] for some in names]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = [tf.nest.flatten(f(*args)) for f, args in zip(programs, taken, strict=True)]
            numbers = [y for some in results for y in some if y.dtype == tf.float32]
            total = tf.add_n([tf.reduce_sum(tf.sin(y * 1.25)) for y in numbers] + [0.0])
        gradients = tape.gradient(total, [x for args in taken for x in args])
        return results, [tf.convert_to_tensor(g) for g in gradients if g is not None]

    return run


class _Noting(dict[str, Any]):
    asked: set[str]

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def _groups(most: int) -> list[list[str]]:
    """The ops in the table, a few together: a program less is a second less."""
    groups: list[list[str]] = [[]]
    size = 0
    for op, proofs in PROOFS.items():
        if size and size + len(proofs) > most:
            groups, size = [*groups, []], 0
        groups[-1].append(op)
        size += len(proofs)
    return groups


def test_each_op_in_the_table_has_a_proof() -> None:
    assert {*PROOFS} == {*RULES}


@pytest.mark.parametrize("ops", _groups(10), ids=" ".join)
def test_ops_are_right_for_each_size_and_stay_in_one_program(
    ops: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = _Noting(RULES)
    noting.asked = set()
    monkeypatch.setattr(flow, "RULES", noting)
    proofs = [proof for op in ops for proof in PROOFS[op]]
    _assert_right_in_one_program(proofs)
    if not {*ops} <= noting.asked:  # the others are written in other ops
        monkeypatch.setattr(settings.current, "semantics", settings.XLA)
        _assert_right_in_one_program(proofs)
    assert {*ops} <= noting.asked


def test_ones_like_something_of_bounded_size_are_as_many() -> None:
    _assert_right_in_one_program(
        [
            lambda u: tf.reduce_sum(tf.ones_like(u)) * tf.reduce_sum(u),
            lambda m: tf.ones_like(m) * m,
            lambda i: tf.ones_like(i),
            lambda b: tf.ones_like(b),
            lambda z: tf.ones_like(z),
            lambda u: tf.ones_like(u / tf.zeros_like(u)),  # NaNs
        ]
    )


def _assert_right_in_one_program(programs: Sequence[Program]) -> None:
    program = _with_gradients(programs)
    arguments = [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)]
    compiled = tf.function(program, jit_compile=True, autograph=False)
    concrete = compiled.get_concrete_function(*arguments)
    explained = hostcall.explain(concrete)
    assert [found.reason for found in explained.script_ops if found.route == "partition"] == []
    assert [function.mode for function in explained.functions] == ["compiled"]
    expected = tf.function(program, autograph=False)
    # The padding is what elements beyond the true size are, after the addition in `_bounded`.
    for size, padding in itertools.product((BOUND, 0, 1, 3), (9.0, -9.0)):
        args = (tf.constant(size), tf.constant(padding))
        assert_alike(concrete(*args), expected(*args), rtol=2e-5, atol=2e-5)
