"""Compiled functions with script ops in a graph of TensorFlow 1, run by a Session."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def run(*fetches: Any, feed: dict[Any, Any] | None = None, times: int = 1) -> Any:
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(times):
            values = session.run(fetches, feed)
    return values[0] if len(fetches) == 1 else values


def shaped(result: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    result.set_shape(like.shape)
    return result


def test_stateful_calls_run_once_each_in_order_in_each_run() -> None:
    entries: list[list[float]] = []

    def say(*args: Any) -> None:
        v1.py_func(lambda *args: entries.append([float(value) for value in args]), args, [])

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        say()
        for i in tf.range(2):
            say(i)
        say(x)
        return x + 1.0

    result = program(tf.constant(1.0))
    assert run(result, times=2) == 2.0
    assert entries == [[], [0.0], [1.0], [1.0]] * 2


def test_an_exception_comes_out_of_the_session_and_leaves_it_sound() -> None:
    class WrongError(TypeError):
        pass

    def picky(x: np.ndarray) -> np.ndarray:
        if x < 0.0:
            raise WrongError("negative")
        return np.sqrt(x)

    x = v1.placeholder(tf.float32, [])
    function = tf.function(
        lambda x: shaped(v1.py_func(picky, [x], tf.float32), x), jit_compile=True
    )
    result = function(x)
    with v1.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="WrongError: negative") as caught:
            session.run(result, {x: -1.0})
        assert isinstance(hostcall.last_error(caught.value), WrongError)
        assert session.run(result, {x: 9.0}) == 3.0


# Compiled functions in a process of TensorFlow 1, whose threads are all in graph mode.

_PROGRAM = """
import numpy as np, tensorflow as tf, hostcall
tf.compat.v1.{mode}()

def program(x):
    y = tf.py_function(lambda x: x * x, [x], tf.float32)
    y.set_shape([2])
    plain = tf.py_function(lambda x: x.numpy() + np.float32(1), [tf.stop_gradient(y)], tf.float32)
    plain.set_shape([2])
    several = tf.py_function(lambda x: (x, 3), [y], [tf.float32, tf.int32])
    several[0].set_shape([2])
    several[1].set_shape([])
    return y + plain, *several, *tf.gradients(y, x)

x = tf.constant([1.0, 2.0])
for route in ("auto", "partition"):
    hostcall.configure(route=route)
    compiled, plain = (tf.function(program, jit_compile=jit) for jit in (True, None))
    with tf.compat.v1.Session() as session:
        for _ in range(2):
            found, expected = session.run([compiled(x), plain(x)])
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)
    print(found[-1])
"""


@pytest.mark.parametrize("mode", ["disable_eager_execution", "disable_v2_behavior"])
def test_compiled_functions_are_the_same_as_plain_ones(
    run_python: Callable[..., str], mode: str
) -> None:
    assert run_python(_PROGRAM.format(mode=mode)).endswith("[2. 4.]\n" * 2)
