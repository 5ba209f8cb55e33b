"""Programs of TensorFlow 1, for `test_unchanged.py`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
X = np.array([1.0, 2.0, 3.0], np.float32)
PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    """Adds a program, which gets a graph of its own."""

    def in_graph() -> Any:
        with tf.Graph().as_default():
            return function()

    PROGRAMS[function.__name__] = in_graph
    return function


def run(fetches: Any) -> Any:
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


@program
def variables_of_both_kinds() -> Any:
    variable = v1.get_variable("v", initializer=X)
    resource = v1.get_variable("r", initializer=X, use_resource=True)
    results = []
    for v in (variable, resource):
        read = [op(lambda v: v + v, [v], tf.float32) for op in (tf.numpy_function, tf.py_function)]
        with tf.control_dependencies(read):
            doubled = v1.py_func(lambda v: v * np.float32(2), [v], tf.float32)
        results += [*read, v1.assign(v, doubled)]
    return run(results)


@program
def operations_of_the_graph() -> Any:
    x = tf.constant(X)
    last = []
    for op in (v1.py_func, tf.numpy_function, tf.py_function):
        y = op(lambda x: x, [x], tf.float32)
        made = v1.get_default_graph().get_operations()[-1]
        inputs = [tensor.name for tensor in made.inputs]
        last.append([made.name, made.type, made is y.op, y.name, inputs])
    return last


@program
def one_shot_iterator() -> Any:
    dataset = v1.data.Dataset.range(4)
    dataset = dataset.map(lambda i: tuple(v1.py_func(lambda i: (i, i * i), [i], [tf.int64] * 2)))
    dataset = dataset.map(lambda i, j: (tf.py_function(lambda i: i + 1, [i], tf.int64), j))
    element = v1.data.make_one_shot_iterator(dataset).get_next()
    return elements(element)


@program
def initializable_iterator_of_a_generator() -> Any:
    dataset = v1.data.Dataset.from_generator(lambda: iter([[1], [2, 3]]), tf.int32, [None])
    iterator = v1.data.make_initializable_iterator(dataset)
    return elements(iterator.get_next(), iterator.initializer)


def elements(element: Any, *initializers: Any) -> Any:
    results = []
    with v1.Session() as session:
        session.run(initializers)
        while True:
            try:
                results.append(session.run(element))
            except tf.errors.OutOfRangeError as error:
                return results, type(error).__name__


@program
def queue_runners() -> Any:
    numbers = iter(range(100))
    number = v1.py_func(lambda: np.int64(next(numbers)), [], tf.int64)
    number.set_shape([])
    ten = tf.queue.FIFOQueue(10, [tf.int64], [[]])
    v1.train.add_queue_runner(v1.train.QueueRunner(ten, [ten.enqueue(number)]))
    taken = ten.dequeue() * 2
    with v1.Session() as session:
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator)
        results = [session.run(taken) for _ in range(20)]
        coordinator.request_stop()
        session.run(ten.close(cancel_pending_enqueues=True))
        coordinator.join(threads)
    return results


@program
def errors_of_a_session() -> Any:
    def raised(op: Callable[..., Any], kind: Callable[..., Any]) -> Any:
        def fail(*args: Any) -> Any:
            raise kind("text")

        result = op(fail, [1.0], tf.float32)
        try:
            return run(result)
        except tf.errors.OpError as error:
            return [type(error).__name__, error.op.type, f"{kind.__name__}: text" in error.message]

    kinds = [ValueError, StopIteration, RuntimeError, NotImplementedError, MemoryError]
    return [raised(op, kind) for op in (v1.py_func, tf.py_function) for kind in kinds]


@program
def a_trained_variable_in_a_finalized_graph() -> Any:
    v1.train.get_or_create_global_step()
    variable = v1.get_variable("v", initializer=2.0, use_resource=True)
    y = tf.py_function(lambda x: x * 3.0, [variable * X], tf.float32)
    z = v1.py_func(lambda: np.float32(2.0), [], tf.float32)
    step = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y), var_list=[variable])
    with v1.train.MonitoredSession() as session:
        return [session.run([y, z, step])[:2] for _ in range(3)]


@program
def partial_run() -> Any:
    x, w = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    y = tf.py_function(lambda x: x + 1.0, [x], tf.float32)
    z = tf.py_function(lambda y, w: y * w, [y, w], tf.float32)
    with v1.Session() as session:
        handle = session.partial_run_setup([y, z], [x, w])
        first = session.partial_run(handle, y, {x: 2.0})
        return first, session.partial_run(handle, z, {w: 5.0})


@program
def defun_of_tensorflow_1() -> Any:
    from tensorflow.python.framework import function

    @function.Defun(tf.float32)
    def f(x: Any) -> Any:
        return v1.py_func(lambda x: x * np.float32(3.0), [x], tf.float32)

    return run(f(tf.constant(X)))
