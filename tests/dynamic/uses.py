"""Uses of a value whose size is known only at run time: usual ops, a line for each.

The names of the parameters say what a use takes, which `operands` makes of the value:
  v: a vector of floats; m: a matrix of floats, of 3 columns for most sources; i: a vector of
  integers from 0 to 3; x: the vector of 6 floats that the program takes, whose size is known.
"""

import inspect
import types
from collections.abc import Callable, Iterator
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


def _reduced(reduce: Callable[..., Any], v: Any, m: Any) -> list[Any]:
    return [reduce(v), reduce(m, 0), reduce(m, 1), reduce(m, keepdims=True)]


_ELEMENTWISE = """
chain: tf.sin(v) * tf.exp(v) - v / 3.0; cast: [tf.cast(v * 8.0, tf.int32), tf.cast(v, tf.float64)];
bitcast: tf.bitcast(v, tf.int32); compare: [v > 0.25, tf.equal(v, v[::-1])];
clip: tf.clip_by_value(v, -0.25, 0.25); where: tf.where(v > 0.25, v * 2.0, -v);
where_zeros: tf.where(v > 0.25, v, tf.zeros_like(v));
where_by_size: tf.where(tf.size(v) > 2, v, v * 2.0); where_full: tf.where(x > 0.0, x, v);
times_full: v * x; outer: v[:, None] * v[None, :]; outer_full: v[:, None] + x[None, :];
times_row: m * [1.0, 2.0, 3.0]; times_column: m * v[:, None] + v[:1, None];
center: m - tf.reduce_mean(m, 0, keepdims=True); broadcast_to: tf.broadcast_to(x[0], tf.shape(v));
broadcast_rows: tf.broadcast_to(v, [2, tf.size(v)]);
broadcast_shapes: tf.broadcast_dynamic_shape(tf.shape(m), [tf.size(v), 1]);
add_n: tf.add_n([v, v * v, v[::-1]]); dropout: tf.nn.dropout(v, 0.0);
meshgrid: tf.meshgrid(v, x[:2]); times_size: v * _real(tf.size(v)) + _real(tf.shape(v)[0]);
complex: tf.abs(tf.complex(v, v + 1.0) * tf.complex(1.0, 2.0));
ensure_shape: tf.ensure_shape(v, [None]) * 2.0; ensure_size: tf.ensure_shape(v, [4]) * 2.0;
check_numerics: tf.debugging.check_numerics(v, "of the value") * 2.0;
relu_bias: tf.nn.relu(tf.nn.bias_add(m, [0.5, -0.5, 0.25]))
"""

_LAYOUT = """
last: v[-1]; first: v[0]; second: v[1]; tail: v[1:]; but_last: v[:-1]; last_two: v[-2:];
differences: v[1:] - v[:-1]; every_other: [v[::2], v[1::2]]; backwards: v[::-1];
slice_by_size: v[tf.size(v) // 2 :]; last_row: [m[-1], m[-1:], m[1:, 1:]]; head: v[:2];
tf_slice: tf.slice(v, [1], [-1]); roll: tf.roll(v, 1, 0); roll_rows: tf.roll(m, [2, 1], [0, 1]);
reverse: tf.reverse(v, [0]);
reverse_sequence: tf.reverse_sequence(m, tf.ones_like(m[:, 0], tf.int32) * 2, 1, 0);
tile: tf.tile(v, [2]); tile_by_size: tf.tile(x[:2], [tf.size(v)]); tile_rows: tf.tile(m, [2, 2]);
concat_self: tf.concat([v, v * v], 0); concat_constants: tf.concat([[1.0, 2.0], v, [3.0]], 0);
concat_full: tf.concat([v, x, v], 0) * 2.0;
concat_rows: [tf.concat([m, -m], 0), tf.concat([m, -m], 1)];
stack: [tf.stack([v, -v]), tf.stack([v, -v, v], 1)];
stitch: tf.dynamic_stitch([tf.range(tf.size(v)), tf.range(tf.size(v), tf.size(v) + 6)], [v,
    tf.range(6.0)]);
stitch_back: tf.dynamic_stitch([_positions(v)[::-1]], [v]);
pad: tf.pad(v, [[1, 2]], constant_values=9.0); pad_reflect: tf.pad(v, [[1, 0]], "REFLECT");
pad_symmetric: tf.pad(v, [[1, 1]], "SYMMETRIC"); pad_to_size: _padded(v, 8);
pad_by_size: tf.pad(v, [[0, tf.size(v)]]); unstack_padded: tf.unstack(_padded(v, 4));
flatten: tf.reshape(m, [-1]); reshape_column: tf.reshape(v, [tf.size(v), 1]) * 2.0;
reshape_row: tf.reshape(v, [1, -1]); reshape_pairs: tf.reshape(v, [2, -1]);
reshape_pairs_back: tf.reshape(v, [-1, 2]); reshape_turned: tf.reshape(m, [3, -1]);
transpose: tf.transpose(m) * 2.0;
transpose_three: tf.transpose(m[:, :, None] * [1.0, 2.0], [2, 0, 1]);
expand_squeeze: [tf.squeeze(v[:, None], 1), tf.expand_dims(v, 0)]; squeeze: tf.squeeze(v);
split: tf.split(m, 3, 1); split_halves: tf.split(v, 2);
split_by_size: tf.split(v, [1, tf.size(v) - 1]); repeat: tf.repeat(v, 2);
repeat_rows: tf.repeat(m, 2, axis=0); repeat_by: tf.repeat(v, i); eye: tf.eye(tf.size(v)) * 2.0;
diag: tf.linalg.diag(v);
diag_part: [tf.linalg.diag_part(v[:, None] * v), tf.linalg.trace(v[:, None] * v)];
set_diag: tf.linalg.set_diag(v[:, None] * v[None, :], v);
band_part: tf.linalg.band_part(v[:, None] * v[None, :], -1, 0);
ones_like: [tf.reduce_sum(tf.ones_like(v)), tf.zeros_like(v) + 1.0];
fill: [tf.fill(tf.shape(v), 2.0), tf.ones([tf.size(v), 2])]; range: tf.range(tf.size(v));
range_down: tf.range(tf.size(v), 0, -1); range_steps: tf.range(1, tf.size(v) + 2, 2);
linspace: tf.linspace(0.0, 1.0, tf.size(v));
shape_arithmetic: [tf.shape(m)[0] * 2 + 1, tf.size(m), tf.shape(m[1:]), tf.rank(m)];
random_shape: tf.ones_like(tf.random.stateless_uniform(tf.shape(v), [1, 2]));
random_rows: tf.zeros_like(tf.random.normal([tf.size(v), 2])) + v[:, None]
"""

_REDUCTIONS = """
sum: _reduced(tf.reduce_sum, v, m); mean: _reduced(tf.reduce_mean, v, m);
max: _reduced(tf.reduce_max, v, m); min: _reduced(tf.reduce_min, v, m);
prod: _reduced(tf.reduce_prod, v, m); logsumexp: _reduced(tf.reduce_logsumexp, v, m);
std: _reduced(tf.math.reduce_std, v, m); variance: _reduced(tf.math.reduce_variance, v, m);
any_all: [tf.reduce_any(v > 0.25), tf.reduce_all(v < 0.5)];
count_nonzero: tf.math.count_nonzero(v > 0.25); moments: tf.nn.moments(m, [0]);
norm: [tf.norm(m), tf.norm(m, axis=1), tf.norm(m, ord=1, axis=0)];
clip_by_norm: tf.clip_by_norm(v, 0.5); l2_normalize: tf.math.l2_normalize(m, 1);
l2_loss: tf.nn.l2_loss(v); argmax: tf.argmax(v); argmax_rows: [tf.argmax(m, 1), tf.argmin(m, 0)];
cumsum: tf.cumsum(v); cumsum_reverse: tf.cumsum(v, exclusive=True, reverse=True);
cumsum_rows: [tf.cumsum(m, 0), tf.cumsum(m, 1)]; cumprod: tf.math.cumprod(v);
cumulative_logsumexp: tf.math.cumulative_logsumexp(v); softmax: tf.nn.softmax(v);
softmax_columns: [tf.nn.softmax(m), tf.nn.softmax(m, 0)]; log_softmax: tf.nn.log_softmax(v);
layer_norm: tf.nn.batch_normalization(m, *tf.nn.moments(m, [1], keepdims=True), 0.5, 2.0, 1e-3);
batch_norm: tf.nn.batch_normalization(m, *tf.nn.moments(m, [0]), None, None, 1e-3);
mse: tf.reduce_mean(tf.keras.losses.mse(tf.zeros_like(m), m));
cross_entropy: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(m), m * 2.0);
sparse_cross_entropy: tf.nn.sparse_softmax_cross_entropy_with_logits(i % 3, m);
sigmoid_cross_entropy: tf.nn.sigmoid_cross_entropy_with_logits(v * v, v);
histogram: tf.histogram_fixed_width(v, [0.0, 1.0], 4);
bincount: tf.math.bincount(i, minlength=4, maxlength=4); bincount_size: tf.math.bincount(i);
confusion: tf.math.confusion_matrix(i, 3 - i, 4); median: tf.sort(v)[tf.size(v) // 2];
in_top_k: tf.math.in_top_k(i % 3, m, 1)
"""

_LOOKUPS = """
sort: [tf.sort(v), tf.sort(v, direction="DESCENDING")]; sort_rows: [tf.sort(m, 0), tf.sort(m, 1)];
argsort: tf.argsort(v, stable=True); top_k: tf.math.top_k(v, 2); top_one: tf.math.top_k(v);
# XLA takes -0.0 for less than 0.0 (docs/sharp-bits.md).
top_k_rows: tf.math.top_k(m + 16.0, 2); one_hot: [tf.one_hot(i, 4), tf.one_hot(i, 4, axis=0)];
one_hot_size: tf.one_hot(0, tf.size(v)); gather_full: tf.gather(x, i);
gather_self: tf.gather(v, _positions(v)[::-1]); gather_last: tf.gather(v, tf.size(v) - 1);
gather_outside: tf.gather(v, [0, 3]); gather_nd: tf.gather_nd(x, i[:, None]);
gather_batches: tf.gather(m, (i % 3)[:, None], batch_dims=1);
embedding: tf.nn.embedding_lookup(tf.reshape(tf.range(12.0), [4, 3]), i);
scatter: tf.scatter_nd(i[:, None], v, [4]);
scatter_by_size: tf.scatter_nd(_positions(v)[:, None], v, [tf.size(v) + 1]);
update: tf.tensor_scatter_nd_update(x, _positions(v)[:, None], v);
update_self: tf.tensor_scatter_nd_update(v, [[0]], [7.0]);
scatter_max: tf.tensor_scatter_nd_max(tf.zeros([4]), i[:, None], v);
segment_sum: tf.math.segment_sum(v, _positions(v) // 2);
segment_mean: tf.math.segment_mean(m, tf.range(tf.shape(m)[0]) // 2);
unsorted_sum: tf.math.unsorted_segment_sum(v, i, 4);
unsorted_max: tf.math.unsorted_segment_max(v, i, 4);
unsorted_mean: tf.math.unsorted_segment_mean(m, i, 4);
unsorted_by_size: tf.math.unsorted_segment_sum(v, _positions(v), tf.size(v));
sequence_mask: tf.sequence_mask(i, 4); sequence_mask_size: tf.sequence_mask(tf.size(v), 6);
searchsorted: tf.searchsorted(tf.sort(v), [0.1, 0.3]);
searchsorted_full: tf.searchsorted(tf.sort(x), v, side="right");
mask_again: tf.boolean_mask(v, v > 0.25); mask_rows: tf.boolean_mask(m, m[:, 0] > 0.25);
where_index: tf.where(v > 0.25); unique: tf.unique(i); partition: tf.dynamic_partition(v, i % 2, 2);
setdiff: tf.sets.difference([i], [[1, 2]]).values;
string: tf.strings.reduce_join(tf.strings.as_string(i), separator=" ")
"""

# Convolutions get more elements, since TensorFlow's kernel is wrong for fewer than the filter has,
# and averages one more, since XLA has no gradient of averages of empty arrays.
_ALGEBRA = """
matmul: [tf.matmul(m, m, transpose_b=True), tf.matmul(m, m, transpose_a=True)];
dense: tf.nn.relu(tf.matmul(m, tf.ones([3, 4])) + tf.range(4.0));
matvec: tf.linalg.matvec(m, v, transpose_a=True);
einsum: [tf.einsum("ij,kj->ik", m, m), tf.einsum("ij->j", m)];
tensordot: [tf.tensordot(v, v, 1), tf.tensordot(m, m, [[0], [0]])];
attention: tf.matmul(tf.nn.softmax(tf.matmul(m, m, transpose_b=True) / tf.sqrt(_real(tf.shape(m)[0])
    + 1.0)), m);
cholesky: tf.linalg.cholesky(_gram(v)); inverse: tf.linalg.inv(_gram(v));
determinant: [tf.linalg.det(_gram(v)), tf.linalg.logdet(_gram(v))];
solve: tf.linalg.solve(_gram(v), v[:, None]);
triangular_solve: tf.linalg.triangular_solve(_gram(v), v[:, None]);
least_squares: tf.linalg.solve(tf.matmul(m, m, transpose_a=True) + 2.0 * tf.eye(3),
    tf.transpose(m));
singular_values: tf.linalg.svd(_gram(v), compute_uv=False); qr: tf.abs(tf.linalg.qr(_gram(v))[1]);
eigenvalues: tf.linalg.eigvalsh(_gram(v)); fft: tf.signal.fft(tf.cast(v, tf.complex64));
# For empty arrays, TensorFlow's own kernels of these ops end the process.
rfft: tf.signal.rfft(tf.pad(v, [[1, 0]]));
conv: tf.nn.conv1d(tf.pad(v, [[1, 0]])[None, :, None], tf.ones([3, 1, 2]), 1, "SAME");
conv_valid: tf.nn.conv1d(tf.pad(v, [[2, 0]])[None, :, None], tf.ones([2, 1, 1]), 1, "VALID");
max_pool: tf.nn.max_pool1d(tf.pad(v, [[1, 0]])[None, :, None], 2, 1, "SAME");
avg_pool: tf.nn.avg_pool1d(tf.pad(v, [[1, 0]])[None, :, None], 2, 2, "SAME");
# For empty arrays, graph mode returns no more channels than it takes.
conv_batch: tf.nn.conv1d(tf.pad(m, [[1, 0], [0, 0]])[:, :, None], tf.ones([2, 1, 1]), 1, "SAME");
resize: tf.image.resize(m[None, :, :, None], [4, 4], "bilinear");
resize_nearest: tf.image.resize(m[None, :, :, None], [2, 6], "nearest");
convolve_by_hand: tf.signal.frame(v, 2, 1)
"""

_CONTROL = """
map_rows: tf.map_fn(lambda row: row * 2.0 + 1.0, m); map_scalars: tf.map_fn(tf.sin, v);
map_to_integers: tf.map_fn(lambda e: tf.cast(e * 8.0, tf.int32), v, fn_output_signature=tf.int32);
vectorized_map: tf.vectorized_map(tf.reduce_sum, m); scan: tf.scan(lambda a, e: a * 0.5 + e, v);
scan_from: tf.scan(lambda a, r: a + tf.reduce_sum(r), m, initializer=0.0);
foldl: tf.foldl(lambda a, e: a * 0.5 + e, v, initializer=1.0);
foldr: tf.foldr(lambda a, e: a * 0.5 + e, v, initializer=1.0); rows_in_array: _rows_in_array(m);
dynamic_array: _dynamic_array(v);
array_unstack: tf.TensorArray(tf.float32, tf.size(v)).unstack(v).gather([0, 0]);
count_down: tf.while_loop(lambda n, _: n > 0, lambda n, y: (n - 1, y + v[n - 1] * _real(n)),
    (tf.size(v), 0.0))[1];
carried: tf.while_loop(lambda i, _: i < 3, lambda i, w: (i + 1, w * 0.5 + v), (0, v))[1];
carried_slice: tf.while_loop(lambda i, _: i < 2, lambda i, w: (i + 1, tf.concat([w[1:], w[:1] +
    1.0], 0)), (0, v), shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])))[1];
loop_to_size: tf.while_loop(lambda i, y: i < tf.size(v), lambda i, y: (i + 1, y * 1.5), (0, 1.0));
cond_on_size: tf.cond(tf.size(v) > 2, lambda: v * 2.0, lambda: v + 1.0);
cond_slice: tf.cond(tf.size(v) > 2, lambda: v[1:], lambda: v);
cond_sum: tf.cond(tf.size(v) > 0, lambda: v[-1], lambda: 0.0);
switch: tf.switch_case(tf.size(v) % 2, [lambda: v, lambda: -v]);
assert_size: _after(tf.debugging.assert_less(tf.size(v), 5), v);
function: tf.function(lambda w: w * 2.0 + w[:1], autograph=False)(v);
recompute: tf.recompute_grad(lambda w: tf.sin(w) * w)(v);
numpy_function: tf.ensure_shape(tf.numpy_function(lambda w: w.sum(), [v], tf.float32), []);
py_function: tf.ensure_shape(tf.py_function(lambda w: w * 2.0, [v], tf.float32), [None]);
print_value: _after(tf.print(v, output_stream="file:///dev/null"), v)
"""


def _read(text: str) -> Iterator[tuple[str, Use]]:
    """Yield each use of a text: a name and an expression, with semicolons between them."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for entry in " ".join(lines).split(";"):
        name, _, expression = entry.partition(": ")
        free = _names(compile(expression.strip(), name, "eval"))
        taken = ", ".join(operand for operand in "vmix" if operand in free)
        yield name.strip(), eval(f"lambda {taken}: {expression}", globals())


def _names(code: types.CodeType) -> set[str]:
    """Return the names that an expression takes from outside, its lambdas too."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return {*code.co_names}.union(*inner)


_TABLES = (_ELEMENTWISE, _LAYOUT, _REDUCTIONS, _LOOKUPS, _ALGEBRA, _CONTROL)
USES: dict[str, Use] = {name: use for table in _TABLES for name, use in _read(table)}
