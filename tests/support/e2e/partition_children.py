"""Functions that test_partition_places.py runs in processes of their own."""

import numpy as np
import tensorflow as tf

import hostcall

hostcall.declare(np.unique, route="partition")  # as it would be anyway, and the log need not say so


def distinct(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(np.unique, [x], tf.float32)


def run_shapes() -> None:
    function = tf.function(
        lambda x: distinct(tf.sin(x)) * 2.0, jit_compile=True, reduce_retracing=True
    )
    for values in ([1, 2, 2, 3], [2, 4, 4, 5], [1, 2, 3, 3, 3, 4], [7, 7, 8, 9]):
        x = np.array(values, np.float32)
        np.testing.assert_allclose(function(x), np.unique(np.sin(x)) * 2.0, rtol=1e-6)


def run_loop() -> None:
    def square_often(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * y), (0, x))[1]

    function = tf.function(lambda x: square_often(distinct(square_often(x))), jit_compile=True)
    np.testing.assert_array_equal(function(tf.ones([4])), [1.0])


def run_chains() -> None:
    """Ten chains of two script ops each, in an order that lets them share."""

    def program(x: tf.Tensor) -> tf.Tensor:
        first = [distinct(tf.sin(x + float(i))) for i in range(10)]
        second = [distinct(tf.cos(y)) for y in first]
        return tf.add_n([tf.reduce_sum(y) for y in second])

    x = np.arange(4, dtype=np.float32)
    expected = sum(np.unique(np.cos(np.unique(np.sin(x + i)))).sum() for i in range(10))
    np.testing.assert_allclose(tf.function(program, jit_compile=True)(x), expected, rtol=1e-5)


def run_replicas() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = tf.Variable([1.0, 2.0])

    @tf.function(jit_compile=True)
    def compiled(x: tf.Tensor) -> tf.Tensor:
        return distinct(x * v) + v

    def step(x: tf.Tensor) -> tf.Tensor:  # of the replicas' own, or they are one program
        return compiled(x)

    @tf.function
    def everywhere(x: tf.Tensor) -> tf.Tensor:
        return strategy.run(step, [x])

    x = tf.constant([3.0, 1.0])
    for result in strategy.experimental_local_results(everywhere(x)):
        np.testing.assert_array_equal(result, [3.0, 5.0])
