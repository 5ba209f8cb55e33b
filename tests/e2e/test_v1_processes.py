"""Compiled functions in a process of TensorFlow 1, whose threads are all in graph mode."""

from collections.abc import Callable

import pytest

_PROGRAM = """
import numpy as np, tensorflow as tf, hostcall
tf.compat.v1.{mode}()
hostcall.configure(route="{route}")

def program(x):
    y = tf.py_function(lambda x: x * x, [x], tf.float32)
    y.set_shape([2])
    plain = tf.py_function(lambda x: x.numpy() + np.float32(1), [tf.stop_gradient(y)], tf.float32)
    plain.set_shape([2])
    several = tf.py_function(lambda x: (x, 3), [y], [tf.float32, tf.int32])
    several[0].set_shape([2])
    several[1].set_shape([])
    return y + plain, *several, *tf.gradients(y, x)

compiled, plain = (tf.function(program, jit_compile=jit) for jit in (True, None))
x = tf.constant([1.0, 2.0])
with tf.compat.v1.Session() as session:
    for _ in range(2):
        found, expected = session.run([compiled(x), plain(x)])
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
print(found[-1])
"""


@pytest.mark.parametrize("route", ["auto", "partition"])
@pytest.mark.parametrize("mode", ["disable_eager_execution", "disable_v2_behavior"])
def test_compiled_functions_are_the_same_as_plain_ones(
    run_python: Callable[..., str], mode: str, route: str
) -> None:
    assert run_python(_PROGRAM.format(mode=mode, route=route)).endswith("[2. 4.]\n")
