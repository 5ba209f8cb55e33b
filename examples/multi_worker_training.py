"""Two processes train one model, and the steps of each call a loss in Python.

    python examples/multi_worker_training.py

starts both. Each compiles its step with XLA. TensorFlow sums the gradients of the workers between
the compiled functions, since XLA's programs for CPUs cannot talk to other processes.
"""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import tensorflow as tf

import hostcall

WORKERS = 2
INPUTS = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
TARGETS = INPUTS @ np.array([1.0, -2.0, 3.0], np.float32)


@hostcall.callback(kind="eager", result=lambda predicted, _: tf.TensorSpec([], predicted.dtype))
def huber(predicted: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    error = tf.abs(predicted - wanted)
    if float(tf.reduce_max(error)) < 1.0:  # any Python
        return tf.reduce_sum(error**2)
    return tf.reduce_sum(2.0 * error - 1.0)


@tf.function(jit_compile=True)
def loss_and_gradient(weights: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor) -> tuple:
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = huber(tf.linalg.matvec(inputs, weights), targets)
    return loss, tape.gradient(loss, weights)


def train(worker: int) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # finds the others by TF_CONFIG
    with strategy.scope():
        weights = tf.Variable(tf.zeros(3), aggregation=tf.VariableAggregation.SUM)

    def of_worker(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        loss, gradient = loss_and_gradient(weights.read_value(), inputs, targets)
        weights.assign_sub(0.02 * gradient)  # here TensorFlow sums what the workers say
        return loss

    @tf.function
    def step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(of_worker, (inputs, targets))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    mine = slice(worker, None, WORKERS)
    inputs, targets = tf.constant(INPUTS[mine]), tf.constant(TARGETS[mine])
    losses = [float(step(inputs, targets)) for _ in range(20)]
    assert losses[-1] < losses[0] / 2, losses
    np.testing.assert_allclose(weights.numpy(), alone(), rtol=1e-4, atol=1e-5)
    if worker == 0:
        print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}, weights {weights.numpy().round(2)}")


def alone() -> np.ndarray:
    """Compute the same in one process, with each half as its worker has it."""
    weights = tf.zeros(3)
    for _ in range(20):
        halves = [slice(worker, None, WORKERS) for worker in range(WORKERS)]
        gradients = [loss_and_gradient(weights, INPUTS[h], TARGETS[h])[1] for h in halves]
        weights -= 0.02 * tf.add_n(gradients)
    return weights.numpy()


def start() -> None:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(WORKERS)]
    addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    started = []
    for worker in range(WORKERS):
        task = {"type": "worker", "index": worker}
        job = json.dumps({"cluster": {"worker": addresses}, "task": task})
        environment = {**os.environ, "TF_CONFIG": job}
        command = [sys.executable, __file__, str(worker)]
        started.append(subprocess.Popen(command, env=environment))
    assert [process.wait(timeout=240) for process in started] == [0] * WORKERS
    print(f"{WORKERS} workers have trained one model")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(int(sys.argv[1]))
    else:
        start()
