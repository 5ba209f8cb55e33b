"""A coordinator, a parameter server, two workers and a service of tf.data: Python in each.

    python examples/parameter_servers.py

starts all five. The coordinator schedules compiled steps, whose loss in Python runs in the workers.
The service reads the data by a Python function in its own process. Both find the functions by their
names, since all processes run this file.
"""

import os
import socket
import subprocess
import sys

import numpy as np
import tensorflow as tf

import hostcall

service = tf.data.experimental.service


@hostcall.callback(
    result=tf.TensorSpec([2], tf.float32), name="examples::read_record", stateful=False
)
def read_record(index: np.ndarray) -> np.ndarray:
    """Read a record, for example from a file in your own format."""
    return np.array([index, 2 * index + 1], np.float32)


@hostcall.callback(
    kind="eager", result=tf.TensorSpec([], tf.float32), name="examples::squared_error"
)
def squared_error(predicted: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum((predicted - wanted) ** 2)


@hostcall.callback(result=tf.TensorSpec([], tf.int64), name="examples::process")
def process(_: np.ndarray) -> np.ndarray:
    return np.int64(os.getpid())


@tf.function(jit_compile=True)
def gradient(weights: tf.Tensor, records: tf.Tensor) -> tuple:
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = squared_error(weights[0] * records[:, 0] + weights[1], records[:, 1])
    return process(loss), tape.gradient(loss, weights)


def coordinate(cluster: tf.train.ClusterSpec, data: str) -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable([0.0, 0.0])  # on the parameter server

    records = tf.data.Dataset.range(4).map(read_record).repeat(60).batch(4)
    read = records.apply(service.distribute("parallel_epochs", data))

    @tf.function
    def step(batch: tf.Tensor) -> tf.Tensor:
        where, change = gradient(weights.read_value(), batch)
        weights.assign_sub(0.03 * change)
        return where

    batches = list(read)
    run_on_each_worker(strategy, step, batches[0])
    scheduled = [coordinator.schedule(step, (batch,)) for batch in batches]
    coordinator.join()
    where = {int(one.fetch()) for one in scheduled}
    assert os.getpid() not in where
    np.testing.assert_allclose(weights.numpy(), [2.0, 1.0], atol=0.3)
    print(f"{len(scheduled)} steps in other processes, weights near 2 and 1: {weights.numpy()}")


def run_on_each_worker(
    strategy: tf.distribute.Strategy, step: tf.types.experimental.PolymorphicFunction, *args
) -> None:
    """Run a step on one worker after the other.

    TensorFlow 2.21 can mix up functions that run for the first time on several workers at once,
    with Python in them or not: see docs/distributed.md, at its end.
    """
    with strategy.scope():
        traced = step.get_concrete_function(*args)
    for index in range(2):
        with tf.device(f"/job:worker/task:{index}"):
            result = traced(*args)
        with tf.device("/job:chief"):  # where the coordinator fetches it, too
            tf.identity(result)


def serve(job: str, cluster: tf.train.ClusterSpec) -> None:
    """Serve until the coordinator's process has ended, which closes the pipe."""
    if job == "data":
        dispatcher = service.DispatchServer()
        address = dispatcher.target.partition("://")[2]
        worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
        servers = [dispatcher, worker]
        print(dispatcher.target, flush=True)
    else:
        name, _, index = job.partition(":")
        servers = [tf.distribute.Server(cluster, name, int(index), protocol="grpc")]
        print("serves", flush=True)
    sys.stdin.read()
    del servers
    os._exit(0)  # TensorFlow cannot stop such a server


def start() -> None:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(4)]
    first, second, ps, chief = (f"localhost:{one.getsockname()[1]}" for one in sockets)
    for one in sockets:
        one.close()
    cluster = {"worker": [first, second], "ps": [ps], "chief": [chief]}
    jobs = ["worker:0", "worker:1", "ps:0", "data"]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, job, first, second, ps, chief],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for job in jobs
    ]
    said = [process.stdout.readline().strip() for process in started]
    coordinate(tf.train.ClusterSpec(cluster), said[-1])
    # The others end when this process does: their pipes close.


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _, job, first, second, ps, chief = sys.argv
        addresses = {"worker": [first, second], "ps": [ps], "chief": [chief]}
        serve(job, tf.train.ClusterSpec(addresses))
    else:
        start()
