"""Uses of a value whose size is known only at run time: usual ops, a line for each.

The names of the parameters say what a use takes, which `operands` makes of the value:
  v: a vector of floats; m: a matrix of floats, of 3 columns for most sources; i: a vector of
  integers from 0 to 3; x: the vector of 6 floats that the program takes, whose size is known.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Use = Callable[..., Any]

raw = tf.raw_ops


def operands(use: Use, value: Any, x: Any) -> list[Any]:
    """Make what a use takes of a value: a vector or a matrix of numbers."""
    number = tf.cast(value, tf.float32)
    vector = number if number.shape.rank == 1 else _line(number)
    made = {
        "v": lambda: vector,
        "m": lambda: vector[:, None] * [1.0, -0.5, 2.0] if number is vector else number,
        "i": lambda: tf.cast(tf.abs(vector) * 8.0, tf.int32) % 4,
        "x": lambda: x,
    }
    return [made[name]() for name in inspect.signature(use).parameters]


def _line(matrix: Any) -> Any:
    """Take a column or a row, along a dimension whose size tracing does not know."""
    return matrix[:, 0] if matrix.shape[0] is None else matrix[0]


def total(results: Any) -> Any:
    """Sum up something of all results that have gradients."""
    numbers = []
    for y in tf.nest.flatten(results):
        real = tf.math.real(y) if y.dtype.is_complex else y
        if real.dtype.is_floating:
            numbers.append(tf.reduce_sum(tf.sin(tf.cast(real, tf.float32) * 1.25)))
    return tf.add_n([*numbers, tf.constant(0.0)])


def whole(results: Any) -> Any:
    """Sum up all results, those without gradients too."""
    flat = tf.nest.flatten(results)
    others = [y for y in flat if not (y.dtype.is_floating or y.dtype.is_complex)]
    return total(results) + tf.add_n(
        [tf.reduce_sum(tf.cast(y, tf.float32)) for y in others] + [tf.constant(0.0)]
    )


def _real(n: Any) -> Any:
    return tf.cast(n, tf.float32)


def _gram(v: Any) -> Any:
    """Make a matrix that is symmetric and positive definite."""
    n = tf.size(v)
    return v[:, None] * v[None, :] + (_real(n) + 1.0) * tf.eye(n)


def _positions(v: Any) -> Any:
    return tf.range(tf.size(v))


def _after(op: Any, v: Any) -> Any:
    with tf.control_dependencies([op]):
        return v * 2.0


def _padded(v: Any, size: int) -> Any:
    """Fill a vector up to a size that is known."""
    padded = tf.pad(v, [[0, tf.maximum(size - tf.size(v), 0)]])
    return tf.ensure_shape(padded[:size], [size])


def _rows_in_array(m: Any) -> Any:
    n = tf.shape(m)[0]
    array = tf.TensorArray(tf.float32, n, element_shape=m.shape[1:])
    step = lambda i, rows: (i + 1, rows.write(i, m[i] * _real(i)))  # noqa: E731
    return tf.while_loop(lambda i, _: i < n, step, (0, array))[1].stack()


def _dynamic_array(v: Any) -> Any:
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[])
    step = lambda i, rows: (i + 1, rows.write(i, v[i] * 2.0))  # noqa: E731
    return tf.while_loop(lambda i, _: i < tf.size(v), step, (0, array))[1].stack()


def _count_down(v: Any) -> Any:
    return tf.while_loop(
        lambda n, _: n > 0,
        lambda n, y: (n - 1, y + v[n - 1] * _real(n)),
        (tf.size(v), 0.0),
    )[1]


def _carried_slice(v: Any) -> Any:
    return tf.while_loop(
        lambda i, _: i < 2,
        lambda i, w: (i + 1, tf.concat([w[1:], w[:1] + 1.0], 0)),
        (0, v),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )[1]


def _layer_norm(m: Any) -> Any:
    mean, variance = tf.nn.moments(m, [1], keepdims=True)
    return tf.nn.batch_normalization(m, mean, variance, 0.5, 2.0, 1e-3)


def _batch_norm(m: Any) -> Any:
    mean, variance = tf.nn.moments(m, [0])
    return tf.nn.batch_normalization(m, mean, variance, None, None, 1e-3)


def _attention(m: Any) -> Any:
    scores = tf.matmul(m, m, transpose_b=True) / tf.sqrt(_real(tf.shape(m)[0]) + 1.0)
    return tf.matmul(tf.nn.softmax(scores), m)


def _image(m: Any, size: list[int], method: str) -> Any:
    return tf.image.resize(m[None, :, :, None], size, method=method)


def _stitched(v: Any) -> Any:
    n = tf.size(v)
    return tf.dynamic_stitch([tf.range(n), tf.range(n, n + 6)], [v, tf.range(6.0)])


def _reduced(reduce: Callable[..., Any]) -> Use:
    return lambda v, m: [reduce(v), reduce(m, 0), reduce(m, 1), reduce(m, keepdims=True)]


_ELEMENTWISE: dict[str, Use] = {
    "chain": lambda v: tf.sin(v) * tf.exp(v) - v / 3.0,
    "cast": lambda v: [tf.cast(v * 8.0, tf.int32), tf.cast(v, tf.float64)],
    "bitcast": lambda v: tf.bitcast(v, tf.int32),
    "compare": lambda v: [v > 0.25, tf.equal(v, v[::-1])],
    "clip": lambda v: tf.clip_by_value(v, -0.25, 0.25),
    "where": lambda v: tf.where(v > 0.25, v * 2.0, -v),
    "where_zeros": lambda v: tf.where(v > 0.25, v, tf.zeros_like(v)),
    "where_by_size": lambda v: tf.where(tf.size(v) > 2, v, v * 2.0),
    "where_full": lambda v, x: tf.where(x > 0.0, x, v),
    "times_full": lambda v, x: v * x,
    "outer": lambda v: v[:, None] * v[None, :],
    "outer_full": lambda v, x: v[:, None] + x[None, :],
    "times_row": lambda m: m * [1.0, 2.0, 3.0],
    "times_column": lambda m, v: m * v[:, None] + v[:1, None],
    "center": lambda m: m - tf.reduce_mean(m, 0, keepdims=True),
    "broadcast_to": lambda v, x: tf.broadcast_to(x[0], tf.shape(v)),
    "broadcast_rows": lambda v: tf.broadcast_to(v, [2, tf.size(v)]),
    "broadcast_shapes": lambda m, v: tf.broadcast_dynamic_shape(tf.shape(m), [tf.size(v), 1]),
    "add_n": lambda v: tf.add_n([v, v * v, v[::-1]]),
    "dropout": lambda v: tf.nn.dropout(v, 0.0),
    "meshgrid": lambda v, x: tf.meshgrid(v, x[:2]),
    "times_size": lambda v: v * _real(tf.size(v)) + _real(tf.shape(v)[0]),
    "complex": lambda v: tf.abs(tf.complex(v, v + 1.0) * tf.complex(1.0, 2.0)),
    "ensure_shape": lambda v: tf.ensure_shape(v, [None]) * 2.0,
    "ensure_size": lambda v: tf.ensure_shape(v, [4]) * 2.0,
    "check_numerics": lambda v: tf.debugging.check_numerics(v, "of the value") * 2.0,
    "relu_bias": lambda m: tf.nn.relu(tf.nn.bias_add(m, [0.5, -0.5, 0.25])),
}

_LAYOUT: dict[str, Use] = {
    "last": lambda v: v[-1],
    "first": lambda v: v[0],
    "second": lambda v: v[1],
    "tail": lambda v: v[1:],
    "but_last": lambda v: v[:-1],
    "last_two": lambda v: v[-2:],
    "differences": lambda v: v[1:] - v[:-1],
    "every_other": lambda v: [v[::2], v[1::2]],
    "backwards": lambda v: v[::-1],
    "slice_by_size": lambda v: v[tf.size(v) // 2 :],
    "last_row": lambda m: [m[-1], m[-1:], m[1:, 1:]],
    "head": lambda v: v[:2],
    "tf_slice": lambda v: tf.slice(v, [1], [-1]),
    "roll": lambda v: tf.roll(v, 1, 0),
    "roll_rows": lambda m: tf.roll(m, [2, 1], [0, 1]),
    "reverse": lambda v: tf.reverse(v, [0]),
    "reverse_sequence": lambda m: tf.reverse_sequence(m, tf.ones_like(m[:, 0], tf.int32) * 2, 1, 0),
    "tile": lambda v: tf.tile(v, [2]),
    "tile_by_size": lambda v, x: tf.tile(x[:2], [tf.size(v)]),
    "tile_rows": lambda m: tf.tile(m, [2, 2]),
    "concat_self": lambda v: tf.concat([v, v * v], 0),
    "concat_constants": lambda v: tf.concat([[1.0, 2.0], v, [3.0]], 0),
    "concat_full": lambda v, x: tf.concat([v, x, v], 0) * 2.0,
    "concat_rows": lambda m: [tf.concat([m, -m], 0), tf.concat([m, -m], 1)],
    "stack": lambda v: [tf.stack([v, -v]), tf.stack([v, -v, v], 1)],
    "stitch": _stitched,
    "stitch_back": lambda v: tf.dynamic_stitch([_positions(v)[::-1]], [v]),
    "pad": lambda v: tf.pad(v, [[1, 2]], constant_values=9.0),
    "pad_reflect": lambda v: tf.pad(v, [[1, 0]], "REFLECT"),
    "pad_symmetric": lambda v: tf.pad(v, [[1, 1]], "SYMMETRIC"),
    "pad_to_size": lambda v: _padded(v, 8),
    "pad_by_size": lambda v: tf.pad(v, [[0, tf.size(v)]]),
    "unstack_padded": lambda v: tf.unstack(_padded(v, 4)),
    "flatten": lambda m: tf.reshape(m, [-1]),
    "reshape_column": lambda v: tf.reshape(v, [tf.size(v), 1]) * 2.0,
    "reshape_row": lambda v: tf.reshape(v, [1, -1]),
    "reshape_pairs": lambda v: tf.reshape(v, [2, -1]),
    "reshape_pairs_back": lambda v: tf.reshape(v, [-1, 2]),
    "reshape_turned": lambda m: tf.reshape(m, [3, -1]),
    "transpose": lambda m: tf.transpose(m) * 2.0,
    "transpose_three": lambda m: tf.transpose(m[:, :, None] * [1.0, 2.0], [2, 0, 1]),
    "expand_squeeze": lambda v: [tf.squeeze(v[:, None], 1), tf.expand_dims(v, 0)],
    "squeeze": lambda v: tf.squeeze(v),
    "split": lambda m: tf.split(m, 3, 1),
    "split_halves": lambda v: tf.split(v, 2),
    "split_by_size": lambda v: tf.split(v, [1, tf.size(v) - 1]),
    "repeat": lambda v: tf.repeat(v, 2),
    "repeat_rows": lambda m: tf.repeat(m, 2, axis=0),
    "repeat_by": lambda v, i: tf.repeat(v, i),
    "eye": lambda v: tf.eye(tf.size(v)) * 2.0,
    "diag": lambda v: tf.linalg.diag(v),
    "diag_part": lambda v: [tf.linalg.diag_part(v[:, None] * v), tf.linalg.trace(v[:, None] * v)],
    "set_diag": lambda v: tf.linalg.set_diag(v[:, None] * v[None, :], v),
    "band_part": lambda v: tf.linalg.band_part(v[:, None] * v[None, :], -1, 0),
    "ones_like": lambda v: [tf.reduce_sum(tf.ones_like(v)), tf.zeros_like(v) + 1.0],
    "fill": lambda v: [tf.fill(tf.shape(v), 2.0), tf.ones([tf.size(v), 2])],
    "range": lambda v: tf.range(tf.size(v)),
    "range_down": lambda v: tf.range(tf.size(v), 0, -1),
    "range_steps": lambda v: tf.range(1, tf.size(v) + 2, 2),
    "linspace": lambda v: tf.linspace(0.0, 1.0, tf.size(v)),
    "shape_arithmetic": lambda m: [tf.shape(m)[0] * 2 + 1, tf.size(m), tf.shape(m[1:]), tf.rank(m)],
    "random_shape": lambda v: tf.ones_like(tf.random.stateless_uniform(tf.shape(v), [1, 2])),
    "random_rows": lambda v: tf.zeros_like(tf.random.normal([tf.size(v), 2])) + v[:, None],
}

_REDUCTIONS: dict[str, Use] = {
    "sum": _reduced(tf.reduce_sum),
    "mean": _reduced(tf.reduce_mean),
    "max": _reduced(tf.reduce_max),
    "min": _reduced(tf.reduce_min),
    "prod": _reduced(tf.reduce_prod),
    "logsumexp": _reduced(tf.reduce_logsumexp),
    "std": _reduced(tf.math.reduce_std),
    "variance": _reduced(tf.math.reduce_variance),
    "any_all": lambda v: [tf.reduce_any(v > 0.25), tf.reduce_all(v < 0.5)],
    "count_nonzero": lambda v: tf.math.count_nonzero(v > 0.25),
    "moments": lambda m: tf.nn.moments(m, [0]),
    "norm": lambda m: [tf.norm(m), tf.norm(m, axis=1), tf.norm(m, ord=1, axis=0)],
    "clip_by_norm": lambda v: tf.clip_by_norm(v, 0.5),
    "l2_normalize": lambda m: tf.math.l2_normalize(m, 1),
    "l2_loss": lambda v: tf.nn.l2_loss(v),
    "argmax": lambda v: tf.argmax(v),
    "argmax_rows": lambda m: [tf.argmax(m, 1), tf.argmin(m, 0)],
    "cumsum": lambda v: tf.cumsum(v),
    "cumsum_reverse": lambda v: tf.cumsum(v, exclusive=True, reverse=True),
    "cumsum_rows": lambda m: [tf.cumsum(m, 0), tf.cumsum(m, 1)],
    "cumprod": lambda v: tf.math.cumprod(v),
    "cumulative_logsumexp": lambda v: tf.math.cumulative_logsumexp(v),
    "softmax": lambda v: tf.nn.softmax(v),
    "softmax_columns": lambda m: [tf.nn.softmax(m), tf.nn.softmax(m, 0)],
    "log_softmax": lambda v: tf.nn.log_softmax(v),
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "mse": lambda m: tf.reduce_mean(tf.keras.losses.mse(tf.zeros_like(m), m)),
    "cross_entropy": lambda m: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(m), m * 2.0),
    "sparse_cross_entropy": lambda m, i: tf.nn.sparse_softmax_cross_entropy_with_logits(i % 3, m),
    "sigmoid_cross_entropy": lambda v: tf.nn.sigmoid_cross_entropy_with_logits(v * v, v),
    "histogram": lambda v: tf.histogram_fixed_width(v, [0.0, 1.0], 4),
    "bincount": lambda i: tf.math.bincount(i, minlength=4, maxlength=4),
    "bincount_size": lambda i: tf.math.bincount(i),
    "confusion": lambda i: tf.math.confusion_matrix(i, 3 - i, 4),
    "median": lambda v: tf.sort(v)[tf.size(v) // 2],
    "in_top_k": lambda m, i: tf.math.in_top_k(i % 3, m, 1),
}

_LOOKUPS: dict[str, Use] = {
    "sort": lambda v: [tf.sort(v), tf.sort(v, direction="DESCENDING")],
    "sort_rows": lambda m: [tf.sort(m, 0), tf.sort(m, 1)],
    "argsort": lambda v: tf.argsort(v, stable=True),
    "top_k": lambda v: tf.math.top_k(v, 2),
    "top_one": lambda v: tf.math.top_k(v),
    # XLA takes -0.0 for less than 0.0 (docs/sharp-bits.md).
    "top_k_rows": lambda m: tf.math.top_k(m + 16.0, 2),
    "one_hot": lambda i: [tf.one_hot(i, 4), tf.one_hot(i, 4, axis=0)],
    "one_hot_size": lambda v: tf.one_hot(0, tf.size(v)),
    "gather_full": lambda i, x: tf.gather(x, i),
    "gather_self": lambda v: tf.gather(v, _positions(v)[::-1]),
    "gather_last": lambda v: tf.gather(v, tf.size(v) - 1),
    "gather_outside": lambda v: tf.gather(v, [0, 3]),
    "gather_nd": lambda i, x: tf.gather_nd(x, i[:, None]),
    "gather_batches": lambda m, i: tf.gather(m, (i % 3)[:, None], batch_dims=1),
    "embedding": lambda i: tf.nn.embedding_lookup(tf.reshape(tf.range(12.0), [4, 3]), i),
    "scatter": lambda v, i: tf.scatter_nd(i[:, None], v, [4]),
    "scatter_by_size": lambda v: tf.scatter_nd(_positions(v)[:, None], v, [tf.size(v) + 1]),
    "update": lambda v, x: tf.tensor_scatter_nd_update(x, _positions(v)[:, None], v),
    "update_self": lambda v: tf.tensor_scatter_nd_update(v, [[0]], [7.0]),
    "scatter_max": lambda v, i: tf.tensor_scatter_nd_max(tf.zeros([4]), i[:, None], v),
    "segment_sum": lambda v: tf.math.segment_sum(v, _positions(v) // 2),
    "segment_mean": lambda m: tf.math.segment_mean(m, tf.range(tf.shape(m)[0]) // 2),
    "unsorted_sum": lambda v, i: tf.math.unsorted_segment_sum(v, i, 4),
    "unsorted_max": lambda v, i: tf.math.unsorted_segment_max(v, i, 4),
    "unsorted_mean": lambda m, i: tf.math.unsorted_segment_mean(m, i, 4),
    "unsorted_by_size": lambda v: tf.math.unsorted_segment_sum(v, _positions(v), tf.size(v)),
    "sequence_mask": lambda i: tf.sequence_mask(i, 4),
    "sequence_mask_size": lambda v: tf.sequence_mask(tf.size(v), 6),
    "searchsorted": lambda v: tf.searchsorted(tf.sort(v), [0.1, 0.3]),
    "searchsorted_full": lambda v, x: tf.searchsorted(tf.sort(x), v, side="right"),
    "mask_again": lambda v: tf.boolean_mask(v, v > 0.25),
    "mask_rows": lambda m: tf.boolean_mask(m, m[:, 0] > 0.25),
    "where_index": lambda v: tf.where(v > 0.25),
    "unique": lambda i: tf.unique(i),
    "partition": lambda v, i: tf.dynamic_partition(v, i % 2, 2),
    "setdiff": lambda i: tf.sets.difference([i], [[1, 2]]).values,
    "string": lambda i: tf.strings.reduce_join(tf.strings.as_string(i), separator=" "),
}

# Convolutions get more elements, since TensorFlow's kernel is wrong for fewer than the filter has,
# and averages one more, since XLA has no gradient of averages of empty arrays.
_ALGEBRA: dict[str, Use] = {
    "matmul": lambda m: [tf.matmul(m, m, transpose_b=True), tf.matmul(m, m, transpose_a=True)],
    "dense": lambda m: tf.nn.relu(tf.matmul(m, tf.ones([3, 4])) + tf.range(4.0)),
    "matvec": lambda m, v: tf.linalg.matvec(m, v, transpose_a=True),
    "einsum": lambda m: [tf.einsum("ij,kj->ik", m, m), tf.einsum("ij->j", m)],
    "tensordot": lambda v, m: [tf.tensordot(v, v, 1), tf.tensordot(m, m, [[0], [0]])],
    "attention": _attention,
    "cholesky": lambda v: tf.linalg.cholesky(_gram(v)),
    "inverse": lambda v: tf.linalg.inv(_gram(v)),
    "determinant": lambda v: [tf.linalg.det(_gram(v)), tf.linalg.logdet(_gram(v))],
    "solve": lambda v: tf.linalg.solve(_gram(v), v[:, None]),
    "triangular_solve": lambda v: tf.linalg.triangular_solve(_gram(v), v[:, None]),
    "least_squares": lambda m: tf.linalg.solve(
        tf.matmul(m, m, transpose_a=True) + 2.0 * tf.eye(3), tf.transpose(m)
    ),
    "singular_values": lambda v: tf.linalg.svd(_gram(v), compute_uv=False),
    "qr": lambda v: tf.abs(tf.linalg.qr(_gram(v))[1]),
    "eigenvalues": lambda v: tf.linalg.eigvalsh(_gram(v)),
    "fft": lambda v: tf.signal.fft(tf.cast(v, tf.complex64)),
    # For empty arrays, TensorFlow's own kernels of these ops end the process.
    "rfft": lambda v: tf.signal.rfft(tf.pad(v, [[1, 0]])),
    "conv": lambda v: tf.nn.conv1d(
        tf.pad(v, [[1, 0]])[None, :, None], tf.ones([3, 1, 2]), 1, "SAME"
    ),
    "conv_valid": lambda v: tf.nn.conv1d(
        tf.pad(v, [[2, 0]])[None, :, None], tf.ones([2, 1, 1]), 1, "VALID"
    ),
    "max_pool": lambda v: tf.nn.max_pool1d(tf.pad(v, [[1, 0]])[None, :, None], 2, 1, "SAME"),
    "avg_pool": lambda v: tf.nn.avg_pool1d(tf.pad(v, [[1, 0]])[None, :, None], 2, 2, "SAME"),
    # For empty arrays, graph mode returns no more channels than it takes.
    "conv_batch": lambda m: tf.nn.conv1d(
        tf.pad(m, [[1, 0], [0, 0]])[:, :, None], tf.ones([2, 1, 1]), 1, "SAME"
    ),
    "resize": lambda m: _image(m, [4, 4], "bilinear"),
    "resize_nearest": lambda m: _image(m, [2, 6], "nearest"),
    "convolve_by_hand": lambda v: tf.signal.frame(v, 2, 1),
}

_CONTROL: dict[str, Use] = {
    "map_rows": lambda m: tf.map_fn(lambda row: row * 2.0 + 1.0, m),
    "map_scalars": lambda v: tf.map_fn(tf.sin, v),
    "map_to_integers": lambda v: tf.map_fn(
        lambda e: tf.cast(e * 8.0, tf.int32), v, fn_output_signature=tf.int32
    ),
    "vectorized_map": lambda m: tf.vectorized_map(tf.reduce_sum, m),
    "scan": lambda v: tf.scan(lambda a, e: a * 0.5 + e, v),
    "scan_from": lambda m: tf.scan(lambda a, r: a + tf.reduce_sum(r), m, initializer=0.0),
    "foldl": lambda v: tf.foldl(lambda a, e: a * 0.5 + e, v, initializer=1.0),
    "foldr": lambda v: tf.foldr(lambda a, e: a * 0.5 + e, v, initializer=1.0),
    "rows_in_array": _rows_in_array,
    "dynamic_array": _dynamic_array,
    "array_unstack": lambda v: tf.TensorArray(tf.float32, tf.size(v)).unstack(v).gather([0, 0]),
    "count_down": _count_down,
    "carried": lambda v: tf.while_loop(
        lambda i, _: i < 3, lambda i, w: (i + 1, w * 0.5 + v), (0, v)
    )[1],
    "carried_slice": _carried_slice,
    "loop_to_size": lambda v: tf.while_loop(
        lambda i, y: i < tf.size(v), lambda i, y: (i + 1, y * 1.5), (0, 1.0)
    ),
    "cond_on_size": lambda v: tf.cond(tf.size(v) > 2, lambda: v * 2.0, lambda: v + 1.0),
    "cond_slice": lambda v: tf.cond(tf.size(v) > 2, lambda: v[1:], lambda: v),
    "cond_sum": lambda v: tf.cond(tf.size(v) > 0, lambda: v[-1], lambda: 0.0),
    "switch": lambda v: tf.switch_case(tf.size(v) % 2, [lambda: v, lambda: -v]),
    "assert_size": lambda v: _after(tf.debugging.assert_less(tf.size(v), 5), v),
    "function": lambda v: tf.function(lambda w: w * 2.0 + w[:1], autograph=False)(v),
    "recompute": lambda v: tf.recompute_grad(lambda w: tf.sin(w) * w)(v),
    "numpy_function": lambda v: tf.ensure_shape(
        tf.numpy_function(lambda w: w.sum(), [v], tf.float32), []
    ),
    "py_function": lambda v: tf.ensure_shape(
        tf.py_function(lambda w: w * 2.0, [v], tf.float32), [None]
    ),
    "print_value": lambda v: _after(tf.print(v, output_stream="file:///dev/null"), v),
}

USES = _ELEMENTWISE | _LAYOUT | _REDUCTIONS | _LOOKUPS | _ALGEBRA | _CONTROL
