"""Programs of the coordinator of a job, whose Python functions run on workers."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.support.saved import functions

_WORKERS = [f"/job:worker/replica:0/task:{index}/device:CPU:0" for index in range(2)]
_WORKER = _WORKERS[1]


@tf.function(jit_compile=True)
def process_and_cube(x: Any) -> Any:
    """The id of the process in which it runs, and the cube of `x`."""
    process = tf.numpy_function(functions.process, [x], tf.TensorSpec([], tf.int64))
    cube = tf.ensure_shape(tf.py_function(functions.cube, [x], tf.float32), [])
    return process, cube


def parameter_server(strategy: Any) -> list[list[float]]:
    """The process of each step, its cube of 2, and the gradient."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(2.0)

    @tf.function
    def step() -> Any:
        x = variable.read_value()
        with tf.GradientTape() as tape:
            tape.watch(x)
            process, cube = process_and_cube(x)
        return process, cube, tape.gradient(cube, x)

    _run_on_each_worker(strategy, step)
    steps = [coordinator.schedule(step) for _ in range(4)]
    coordinator.join()
    return [[float(value) for value in one.fetch()] for one in steps]


def parameter_server_training(strategy: Any) -> dict[str, Any]:
    """The weights on the parameter server after steps of all workers, and where these ran."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable([1.0, 2.0])

    @tf.function(jit_compile=True)
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.py_function(functions.summed_cubes, [x], tf.TensorSpec([], tf.float32))
        process = tf.numpy_function(functions.process, [x], tf.TensorSpec([], tf.int64))
        return process, tape.gradient(loss, x)

    @tf.function
    def step() -> Any:
        process, change = gradient(tf.constant([2.0, 3.0]))
        weights.assign_sub(change / 4.0)
        return process

    alone = _run_on_each_worker(strategy, step)
    steps = [coordinator.schedule(step) for _ in range(6)]
    coordinator.join()
    return {
        "device": weights.device,
        "weights": weights.numpy().tolist(),
        "processes": [int(one) for one in alone] + [int(one.fetch()) for one in steps],
    }


def _run_on_each_worker(strategy: Any, step: Any) -> list[Any]:
    """Run a step on each worker in turn, before a coordinator runs it on all; return the values.

    TensorFlow 2.21 keeps the remote parts of all functions in one vector, and refers to its
    elements without a lock: a function that first runs on a worker may move what another one
    reads meanwhile ("Unable to parse request"). A function that has run there adds nothing.
    """
    found = []
    with strategy.scope():
        step = step.get_concrete_function()  # as the coordinator does it
    for worker in _WORKERS:
        with tf.device(worker):
            values = step()
        with tf.device("/job:chief"):
            found.append(tf.nest.map_structure(tf.identity, values))
    return found


def remote_device() -> list[float]:
    return [float(value) for value in _on_worker(lambda: process_and_cube(tf.constant(3.0)))]


def version_1(cluster: Any) -> dict[str, list[list[float]]]:
    """The same of sessions, plain and compiled; some ops are added when others have run."""

    def processes() -> Any:
        return tf.compat.v1.py_func(functions.process, [tf.constant(1.0)], tf.int64)

    with tf.Graph().as_default() as there, tf.device("/job:worker/task:0"):
        found = _run(_target(cluster), there, processes)
    with tf.Graph().as_default() as here:
        return {"there": found, "here": _run("", here, processes)}


def _run(target: str, graph: Any, processes: Callable[[], Any]) -> list[list[float]]:
    plain, compiled = processes(), process_and_cube(tf.constant(2.0))
    x = tf.constant(2.0)
    gradient = tf.gradients(tf.py_function(functions.cube, [x], tf.float32), x)
    with tf.compat.v1.Session(target, graph=graph) as session:
        found = [session.run([plain, *compiled, *gradient])]
        found.append(session.run([plain, processes()]))
    return [[float(value) for value in values] for values in found]


def data_service(address: str) -> list[list[float]]:
    """The processes that map the elements of datasets, compiled and plain."""
    numbers = tf.data.Dataset.range(3)
    compiled = numbers.map(lambda i: process_and_cube(tf.cast(i, tf.float32)))
    plain = numbers.map(lambda i: (tf.numpy_function(functions.process, [i], tf.int64), i))
    distribute = tf.data.experimental.service.distribute("parallel_epochs", address)
    elements = [*compiled.apply(distribute), *plain.apply(distribute)]
    return [[float(value) for value in element] for element in elements]


def calling(function: Callable[[Any], Any]) -> Any:
    """A compiled function on the worker that calls this one."""

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        return tf.numpy_function(function, [x], tf.TensorSpec([], tf.float32))

    return _on_worker(lambda: program(tf.constant(1.0)))


def not_named_in_version_1(cluster: Any) -> Any:
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0"):
        plain = tf.compat.v1.py_func(lambda v: v, [tf.constant(1.0)], tf.float32)
        with tf.compat.v1.Session(_target(cluster), graph=graph) as session:
            return session.run(plain)


def error_of(program: Callable[[], Any]) -> str:
    try:
        return f"no error: {program()}"
    except tf.errors.OpError as error:
        return str(error)


def _on_worker(function: Callable[[], Any]) -> Any:
    @tf.function
    def program() -> Any:
        with tf.device(_WORKER):
            return function()

    return program()


def _target(cluster: Any) -> str:
    return f"grpc://{cluster.task_address('worker', 0)}"
