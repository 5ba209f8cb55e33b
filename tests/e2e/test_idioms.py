"""Tests of idioms around script ops: compiled, they work as they do in graphs."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tests.support.helpers import (
    MODES,
    OPS,
    assert_equal,
    each_mode,
    each_stateful_op,
    gradient_of,
    stateless_py_func,
)

X = tf.constant([1.0, 2.0, 3.0])
SHAPES = [None, [3]]  # of the result: partitioned, and in one program

each_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
each_way = pytest.mark.parametrize(
    ("op", "mode", "shape"), [*itertools.product(OPS, MODES, SHAPES)]
)


@tf.RegisterGradient("HostcallTestFiveTimes")
def _five_times(op: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    assert len(op.outputs) == 1
    return 5.0 * upstream * op.inputs[0]


@tf.RegisterGradient("HostcallTestByScriptOp")
def _by_script_op(op: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    """The gradient that most programs give: another script op."""
    return tf.numpy_function(lambda x, dy: 5.0 * x * dy, [op.inputs[0], upstream], tf.float32)


GRADIENTS = ["HostcallTestFiveTimes", "HostcallTestByScriptOp"]


@contextmanager
def _overridden(gradient: str) -> Iterator[None]:
    names = dict.fromkeys(["PyFunc", "PyFuncStateless", "EagerPyFunc"], gradient)
    with tf.compat.v1.get_default_graph().gradient_override_map(names):
        yield


def _square(op: Any, x: tf.Tensor, shape: Any, gradient: str = GRADIENTS[0]) -> tf.Tensor:
    """The op with another gradient in the place of its own."""
    with _overridden(gradient):
        y = op(lambda v: v * v, [x], tf.float32)
    y.set_shape(shape)
    return y


@each_way
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_the_gradient_of_an_override_map(op: Any, mode: Any, shape: Any, gradient: str) -> None:
    @mode
    def program(x: tf.Tensor) -> Any:
        y = _square(op, x, shape, gradient)
        return y, tf.gradients(2.0 * y, x)[0]

    for _ in range(2):
        y, dx = program(X)
        np.testing.assert_array_equal(y, X * X)
        np.testing.assert_array_equal(dx, 10.0 * X)


@each_way
def test_a_tape_around_the_function_sees_the_override(op: Any, mode: Any, shape: Any) -> None:
    program = mode(lambda x: _square(op, x, shape))
    np.testing.assert_array_equal(gradient_of(program, X), 5.0 * X)


@each_way
def test_a_tape_in_the_function_does_not(op: Any, mode: Any, shape: Any) -> None:
    """As in TensorFlow: such a tape knows the kind of an op alone."""
    program = mode(lambda x: gradient_of(lambda x: _square(op, x, shape), x))
    for factor in (1.0, 3.0):
        found = program(factor * X)
        if op is tf.py_function:
            np.testing.assert_array_equal(found, 2.0 * factor * X)
        else:
            assert found is None


@each_op
@each_mode
def test_an_override_in_a_loop(op: Any, mode: Any) -> None:
    @mode
    def program(x: tf.Tensor) -> Any:
        def body(i: tf.Tensor, y: tf.Tensor) -> Any:
            return i + 1, _square(op, y, [3])

        loop = tf.while_loop(lambda i, _: i < 2, body, (0, x), maximum_iterations=2)
        return tf.gradients(loop[1], x)[0]

    # The gradient of x to the fourth, with 5 x in the place of 2 x.
    np.testing.assert_array_equal(program(X), 5.0 * X * X * 5.0 * X)


def _last_op() -> tf.Operation:
    return tf.compat.v1.get_default_graph().get_operations()[-1]


@each_way
def test_a_gradient_that_is_put_onto_the_last_op(op: Any, mode: Any, shape: Any) -> None:
    kinds = {tf.py_function: "EagerPyFunc", stateless_py_func: "PyFuncStateless"}

    @mode
    def program(x: tf.Tensor) -> Any:
        y = op(lambda v: v * v, [x], tf.float32)
        last = _last_op()
        assert last is y.op
        assert last.type == kinds.get(op, "PyFunc")
        y.set_shape(shape)
        last._set_attr("_gradient_op_type", attr_value_pb2.AttrValue(s=GRADIENTS[0].encode()))
        with tf.control_dependencies([last]):
            return tf.identity(last.outputs[0]), tf.gradients(2.0 * y, x)[0]

    assert_equal(program(X), (X * X, 10.0 * X))


@each_stateful_op
@each_mode
def test_the_last_op_of_a_call_without_results(op: Any, mode: Any) -> None:
    seen = []

    @mode
    def program(x: tf.Tensor) -> tf.Tensor:
        op(lambda v: seen.append(1), [x], [])
        with tf.control_dependencies([_last_op()]):
            return x + 1.0

    np.testing.assert_array_equal(program(X), X + 1.0)
    assert len(seen) == 1
