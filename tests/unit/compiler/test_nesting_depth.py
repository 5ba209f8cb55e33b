"""Functions that stand in one another, or call one another twice, again and again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2

import hostcall
from hostcall._compiler import kernel_hook
from hostcall._compiler.one_program import ordering
from hostcall._tools.explain import explaining

SCALAR = tf.TensorSpec([], tf.float32)

Concrete = Callable[[tf.Tensor], tf.Tensor]


def increment(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda v: v + np.float32(1), [x], SCALAR)


def calling(inner: Concrete) -> Concrete:
    return lambda x: inner(x) + 1.0


def calling_twice(inner: Concrete) -> Concrete:
    return lambda x: inner(inner(x))


def in_a_branch(inner: Concrete) -> Concrete:
    return lambda x: tf.cond(x > -1.0, lambda: inner(x), lambda: x)


def in_a_loop(inner: Concrete) -> Concrete:
    def once(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < 1, lambda i, y: (i + 1, inner(y)), (0, x))[1]

    return once


def program(wrap: Callable[[Concrete], Concrete], depth: int) -> Any:
    """A compiled function with `increment` wrapped so often."""
    function = tf.function(increment, autograph=False).get_concrete_function(SCALAR)
    for _ in range(depth):
        function = tf.function(wrap(function), autograph=False).get_concrete_function(SCALAR)
    return tf.function(lambda x: function(x), jit_compile=True, autograph=False)


@pytest.mark.parametrize(
    ("wrap", "depth", "expected"),
    [(calling, 20, 21.0), (in_a_branch, 30, 1.0), (in_a_loop, 30, 1.0)],
)
def test_functions_in_functions_run(wrap: Any, depth: int, expected: float) -> None:
    assert program(wrap, depth)(tf.constant(0.0)).numpy() == expected


@pytest.mark.custom_call("a partitioned function runs on the host, where TensorFlow inlines all")
def test_calls_in_one_another_that_tensorflow_would_not_inline_are_an_error() -> None:
    deep = program(calling, 21)
    with pytest.raises(tf.errors.OpError, match="call one another more than 21 deep"):
        deep(tf.constant(0.0))


@pytest.mark.custom_call("a partitioned function inlines nothing")
def test_calls_that_are_inlined_too_often_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program(calling_twice, 5)(tf.constant(0.0)).numpy() == 32.0
    monkeypatch.setattr(ordering, "_MOST_COPIES", 50)
    doubling = program(calling_twice, 5)
    with pytest.raises(tf.errors.OpError, match="directly or not, more than 50 times"):
        doubling(tf.constant(0.0))


def chain(length: int) -> Any:
    """A library of functions each of which calls the next one, the last with a script op."""
    library = function_pb2.FunctionDefLibrary()
    for i in range(length):
        function = library.function.add()
        function.signature.name = f"f{i}"
        node = function.node_def.add(name="call", op=f"f{i + 1}" if i + 1 < length else "PyFunc")
        if node.op == "PyFunc":
            node.attr["token"].s = b"pyfunc_of_nobody"
    return library


def test_functions_that_are_too_deep_for_python_are_an_error() -> None:
    message = "deeper than Python's stack is here"
    with pytest.raises(hostcall.LoweringError, match=message):
        kernel_hook.rewrite_for_kernel(chain(2000).SerializeToString(), "f0")
    with pytest.raises(hostcall.LoweringError, match=message):
        explaining.explain_library(chain(2000), "f0")
