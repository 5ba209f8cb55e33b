"""Steps of training that measure, log and check."""

import itertools
import tempfile
from typing import Any

import numpy as np
import sklearn.metrics  # type: ignore[import-untyped]
import tensorflow as tf

from benchmarks.programs.program import Decorator, Function, Program, draws
from benchmarks.steps import Array

BATCH, SIZE = 64, 128


class Layers:
    """A network of two layers, whose step of training is one part."""

    def __init__(self, part: Decorator) -> None:
        self.weights = [tf.Variable(0.1 * draws(SIZE, SIZE)), tf.Variable(0.1 * draws(SIZE, 1))]
        self.trained = part(self._trained)

    def predicted(self, x: Any) -> Any:
        return tf.sigmoid(tf.matmul(tf.nn.relu(tf.matmul(x, self.weights[0])), self.weights[1]))

    def _trained(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            found = self.predicted(x)
            loss = tf.reduce_mean((found - y) ** 2)
        gradients = tape.gradient(loss, self.weights)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.assign_sub(1e-6 * gradient)
        return loss, found, gradients[0]


def area(labels: Array, found: Array) -> Array:
    return np.array(sklearn.metrics.roc_auc_score(labels[:, 0], found[:, 0]), np.float32)


def metric(part: Decorator) -> Function:
    """Build a step that computes a metric of scikit-learn."""
    layers = Layers(part)

    def step(x: Any, y: Any) -> Any:
        loss, found, _ = layers.trained(x, y)
        return loss, tf.numpy_function(area, [y, found], tf.float32)

    return step


def progress(part: Decorator) -> Function:
    """Build a step that prints a line every tenth time."""
    layers, steps = Layers(part), tf.Variable(0)

    def step(x: Any, y: Any) -> Any:
        loss, _, _ = layers.trained(x, y)
        steps.assign_add(1)
        if steps % 10 == 0:
            tf.print("step", steps, "loss", loss, output_stream="file:///dev/null")
        return loss

    return step


def summaries(part: Decorator) -> Function:
    """Build a step that writes its loss and what it found to a file of summaries."""
    layers, numbers = Layers(part), tf.Variable(0, dtype=tf.int64)
    writer = tf.summary.create_file_writer(tempfile.mkdtemp())

    def step(x: Any, y: Any) -> Any:
        loss, found, _ = layers.trained(x, y)
        numbers.assign_add(1)
        with writer.as_default():
            tf.summary.write("loss", loss, step=numbers)
            tf.summary.write("found", found, step=numbers)
        return loss

    return step


def checks(part: Decorator) -> Function:
    """Build a step that checks its input and its gradient."""
    layers = Layers(part)

    def step(x: Any, y: Any) -> Any:
        tf.debugging.assert_less_equal(y, 1.0, message="labels are 0 or 1")
        loss, _, gradient = layers.trained(x, y)
        tf.debugging.check_numerics(gradient, "the gradient")
        return loss

    return step


def log(part: Decorator) -> Function:
    """Build a step that appends its loss to a list of Python's."""
    layers, losses = Layers(part), []

    def keep(loss: Any) -> None:
        losses.append(float(loss))

    def step(x: Any, y: Any) -> Any:
        loss, _, _ = layers.trained(x, y)
        tf.py_function(keep, [loss], [])
        return loss

    return step


def augmented(part: Decorator) -> Function:
    """Build a step on a batch that NumPy has changed at random."""
    layers, seeds = Layers(part), itertools.count()

    def shifted(x: Array) -> Array:
        random = np.random.default_rng(next(seeds))
        return np.roll(x, random.integers(-3, 4), axis=1) * np.float32(random.uniform(0.9, 1.1))

    def step(x: Any, y: Any) -> Any:
        changed = tf.numpy_function(shifted, [x], tf.float32)
        changed.set_shape(x.shape)
        loss, _, _ = layers.trained(changed, y)
        return loss

    return step


def masked(part: Decorator) -> Function:
    """Build the loss of the places that a mask leaves, and its gradient."""

    @part
    def loss_of(found: Any, y: Any, mask: Any) -> Any:
        off = tf.boolean_mask(found - y, mask)
        return tf.reduce_mean(off**2)

    def step(found: Any, y: Any, mask: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(found)
            loss = loss_of(found, y, mask)
        tf.print(loss, output_stream="file:///dev/null")
        return loss, tape.gradient(loss, found)

    return step


def programs() -> list[Program]:
    batch = (draws(BATCH, SIZE), tf.cast(draws(BATCH, 1, seed=1) > 0, tf.float32))
    return [
        Program("a metric of scikit-learn", metric, batch),
        Program("a progress line", progress, batch),
        Program("summaries", summaries, batch),
        Program("assertions and a check of the gradient", checks, batch),
        Program("a log of the loss", log, batch),
        Program("a batch augmented by NumPy", augmented, batch),
        Program(
            "a masked loss, with gradient",
            masked,
            (draws(256, SIZE), draws(256, SIZE, seed=1), draws(256, SIZE, seed=2) > 0),
        ),
    ]
