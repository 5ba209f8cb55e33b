"""The training of each worker of a MultiWorkerMirroredStrategy, and the same in one process."""

import os
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall

# One pair of rows for each worker. All sums are exact, in any order.
INPUTS = np.arange(8, dtype=np.float32).reshape(4, 2)
TARGETS = np.arange(4, dtype=np.float32)
RATE = 1.0 / 64.0
STEPS = 3


class Loss:
    """A loss in Python, and the numbers of rows that it was called with."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        hostcall.declare(self, result=tf.TensorSpec([], tf.float32))

    def __call__(self, predicted: Any, wanted: Any) -> Any:
        self.rows.append(len(wanted))
        return tf.reduce_sum((predicted - wanted) ** 2)

    def gradient(self, weights: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
        """To be compiled: the loss, and its gradient with respect to the weights."""
        with tf.GradientTape() as tape:
            tape.watch(weights)
            predicted = tf.linalg.matvec(inputs, weights)
            loss = tf.py_function(self, [predicted, targets], tf.float32)
        return loss, tape.gradient(loss, weights)


def train(index: int) -> dict[str, Any]:
    """Trains with the other workers, which TF_CONFIG names, on the rows of this one."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
    )
    with strategy.scope():
        weights = tf.Variable([1.0, 2.0], aggregation=tf.VariableAggregation.SUM)
    loss, noted = Loss(), []
    gradient = tf.function(loss.gradient, jit_compile=True)
    note = hostcall.callback(lambda value: noted.append(float(value)), result=[])

    @tf.function
    def step(inputs: Any, targets: Any) -> Any:
        def of_worker(inputs: Any, targets: Any) -> Any:
            own, change = gradient(weights.read_value(), inputs, targets)
            note(own)
            weights.assign_sub(RATE * change)  # the workers' changes are summed
            return own

        each = strategy.run(of_worker, (inputs, targets))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    rows = slice(2 * index, 2 * index + 2)
    batch = tf.constant(INPUTS[rows]), tf.constant(TARGETS[rows])
    return {
        "losses": [float(step(*batch)) for _ in range(STEPS)],
        "weights": weights.numpy().tolist(),
        "rows": loss.rows,
        "own losses": noted,
        "process": os.getpid(),
        "replicas": strategy.num_replicas_in_sync,
    }


def train_alone() -> dict[str, Any]:
    weights, losses = tf.Variable([1.0, 2.0]), []
    gradient = tf.function(Loss().gradient, jit_compile=True)
    for _ in range(STEPS):
        loss, change = gradient(weights.read_value(), tf.constant(INPUTS), tf.constant(TARGETS))
        weights.assign_sub(RATE * change)
        losses.append(float(loss))
    return {"losses": losses, "weights": weights.numpy().tolist()}
