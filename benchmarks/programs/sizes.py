"""Programs with sizes that only the run knows, and with many small calls."""

import concurrent.futures
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.programs.program import Decorator, Function, Program, draws
from benchmarks.steps import Array


def points_of_mask(part: Decorator) -> Function:
    """Build the places of the pixels above a limit, their center and their spread."""

    @part
    def weighed(image: Any) -> Any:
        return tf.nn.avg_pool2d(image[None, :, :, None], 3, 1, "SAME")[0, :, :, 0]

    def step(image: Any) -> Any:
        smooth = weighed(image)
        points = tf.cast(tf.where(smooth > 0.5), tf.float32)
        tf.print(tf.shape(points)[0], output_stream="file:///dev/null")
        return tf.reduce_mean(points, axis=0), tf.math.reduce_std(points, axis=0)

    return step


def ragged_range(part: Decorator) -> Function:
    """Build the squares of ragged ranges, summed."""

    @part
    def squared(values: Any) -> Any:
        return tf.cast(values, tf.float32) ** 2

    def step(limits: Any) -> Any:
        ranges = tf.ragged.range(limits)
        return tf.reduce_sum(ranges.with_flat_values(squared(ranges.flat_values)), axis=1)

    return step


def counted(part: Decorator) -> Function:
    """Build the means of the rows of each label, by the labels that there are."""

    @part
    def normalized(rows: Any) -> Any:
        return tf.nn.l2_normalize(rows, axis=1)

    def step(rows: Any, labels: Any) -> Any:
        found, numbers, counts = tf.unique_with_counts(labels)
        sums = tf.math.unsorted_segment_sum(normalized(rows), numbers, tf.size(found))
        return found, sums / tf.cast(counts, tf.float32)[:, None]

    return step


def row_by_row(part: Decorator) -> Function:
    """Build tf.map_fn of a function of NumPy's on each row."""

    @part
    def shifted(rows: Any) -> Any:
        return rows - tf.reduce_mean(rows, axis=1, keepdims=True)

    def median(row: Any) -> Any:
        found = tf.numpy_function(lambda v: np.median(v).astype(v.dtype), [row], tf.float32)
        found.set_shape([])
        return found

    return lambda rows: tf.map_fn(median, shifted(rows))


def vectorized(_: Decorator) -> Function:
    """Build the gradients of each row, by a custom gradient under tf.vectorized_map."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def clipped(x: Any) -> Any:
        y = tf.numpy_function(lambda v: np.clip(v, -1, 1), [x], tf.float32)
        y.set_shape(x.shape)
        return y, lambda upstream: upstream * tf.cast(tf.abs(x) < 1, tf.float32)

    def of_row(row: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(row)
            loss = tf.reduce_sum(clipped(row * 2.0) ** 2)
        return tape.gradient(loss, row)

    return lambda rows: tf.vectorized_map(of_row, rows)


def centers(part: Decorator) -> Function:
    """Build ten steps of k-means, with NumPy's choice for the clusters that are empty."""

    @part
    def assigned(points: Any, middles: Any) -> Any:
        distance = tf.reduce_sum((points[:, None] - middles[None]) ** 2, axis=-1)
        nearest = tf.argmin(distance, axis=1)
        return tf.one_hot(nearest, middles.shape[0])

    @part
    def moved(points: Any, chosen: Any) -> Any:
        total = tf.reduce_sum(chosen, axis=0)[:, None]
        return tf.matmul(chosen, points, transpose_a=True) / tf.maximum(total, 1.0), total

    def filled(middles: Array, total: Array, points: Array) -> Array:
        empty = total[:, 0] == 0
        return np.where(empty[:, None], points[: len(middles)], middles)

    def step(points: Any, middles: Any) -> Any:
        for _ in tf.range(10):
            means, total = moved(points, assigned(points, middles))
            means = tf.numpy_function(filled, [means, total, points], tf.float32)
            middles = tf.ensure_shape(means, middles.shape)
        return middles

    return step


def scalar_loop(_: Decorator) -> Function:
    """Build a loop that asks a function of eager mode a hundred times."""

    def step(x: Any) -> Any:
        for _ in tf.range(100):
            x = tf.py_function(lambda v: 0.5 * v + 1.0, [x], tf.float32)
            x.set_shape([])
        return x

    return step


def of_thread(part: Decorator) -> Function:
    """Build the step that eight threads call."""

    @part
    def layers(x: Any) -> Any:
        for _ in range(3):
            x = tf.nn.relu(tf.matmul(x, x) * 0.01)
        return x

    def step(x: Any) -> Any:
        y = tf.numpy_function(lambda v: v + 1, [layers(x)], tf.float32)
        y.set_shape(x.shape)
        return layers(y)

    return step


THREADS = 8
POOL = concurrent.futures.ThreadPoolExecutor(THREADS)


def by_threads(function: Function, arguments: Sequence[Any]) -> Any:
    """Call a function on each thread, and return the last result."""
    *_, last = POOL.map(lambda _: function(*arguments), range(THREADS))
    return last


def programs() -> list[Program]:
    labels = tf.constant(np.random.default_rng(0).integers(0, 40, 500), tf.int32)
    limits = tf.constant(np.random.default_rng(0).integers(0, 50, 100), tf.int32)
    middles = draws(8, 2, seed=1)
    return [
        Program("the points of a mask", points_of_mask, (draws(128, 128),)),
        Program("a ragged range", ragged_range, (limits,)),
        Program("the means of labels", counted, (draws(500, 64), labels)),
        Program("a median for each row", row_by_row, (draws(32, 100),)),
        Program("a custom gradient, vectorized", vectorized, (draws(64, 100),)),
        Program("k-means", centers, (draws(500, 2), middles)),
        Program("100 calls of py_function in a loop", scalar_loop, (tf.constant(1.0),)),
        Program("eight threads", of_thread, (draws(128, 128),), by_threads),
    ]
