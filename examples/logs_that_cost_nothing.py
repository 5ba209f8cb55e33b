"""Logs that cost nothing: a compiled training step hands its figures over and goes on.

The log is slow, as one that writes to a disk or a server is. The steps do not wait for it, and yet
no entry is lost and all are in order.
"""

import threading

import numpy as np
import tensorflow as tf

import hostcall

entries: list[tuple[int, float]] = []
may_write = threading.Event()


@hostcall.callback(result=[], wait=False, queue=100)
def log(step: np.ndarray, loss: np.ndarray) -> None:
    may_write.wait()  # the slowest log there is: it writes when the training is over
    entries.append((int(step), float(loss)))


def step_on(weights: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    error = tf.linalg.matvec(x, weights) - y
    loss = tf.reduce_mean(error**2)
    return weights - 0.1 * tf.linalg.matvec(x, error, transpose_a=True) / 16.0, loss


@tf.function(jit_compile=True)
def train(weights: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    for step in tf.range(50):
        weights, loss = step_on(weights, x, y)
        log(step, loss)
    return weights


def main() -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=[16, 3]), tf.float32)
    y = tf.linalg.matvec(x, [1.0, -2.0, 3.0])
    weights = train(tf.zeros([3]), x, y)
    written = len(entries)
    may_write.set()
    hostcall.barrier()  # where the entries are needed: all are written, and errors are raised here
    print(f"when the training was over, {written} entries were written; now {len(entries)}")
    for step, loss in entries[::10]:
        print(f"step {step}: loss {loss:.4f}")

    expected, losses = tf.zeros([3]), []
    for _ in range(50):
        expected, loss = step_on(expected, x, y)
        losses.append(float(loss))
    np.testing.assert_allclose(weights, expected, rtol=1e-4)
    np.testing.assert_allclose([loss for _, loss in entries], losses, rtol=1e-3, atol=1e-6)
    assert [step for step, _ in entries] == list(range(50))
    assert written == 0


if __name__ == "__main__":
    main()
