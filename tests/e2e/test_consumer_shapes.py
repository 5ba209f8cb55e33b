"""Shapes that nobody declares, and that the ops tell which take the results of script ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE
from tests.support.e2e.consumer_programs import (
    FLOAT,
    PAIR,
    PROMISES,
    TRUE_TO_THEM,
    VARIABLE,
    Returns,
    assigned,
    assigned_behind_a_cast,
)
from tests.support.helpers import assert_same, jitted, plain, to_numpy

each_op = pytest.mark.parametrize(
    "op", [tf.numpy_function, tf.py_function], ids=["numpy_function", "py_function"]
)


each_program = pytest.mark.parametrize(
    "consumer", [*TRUE_TO_THEM, *PROMISES], ids=lambda program: program.__name__
)


def _program(op: Any, function: Any, consumer: Callable[[tf.Tensor], Any]) -> Any:
    return lambda x: consumer(op(function, [x], FLOAT))


@each_op
@each_program
def test_the_function_is_one_program(op: Any, consumer: Any) -> None:
    function = Returns(2, 3)
    expected = to_numpy(plain(_program(op, function, consumer))(0.0))
    with hostcall.scope(route="custom_call"):
        run = jitted(_program(op, function, consumer))
        for _ in range(2):
            assert_same(to_numpy(run(0.0)), expected)


@each_program
def test_it_is_what_plain_graph_mode_does(consumer: Any) -> None:
    function = Returns(2, 3)
    program = _program(tf.numpy_function, function, consumer)
    assert_same(to_numpy(jitted(program)(0.0)), to_numpy(plain(program)(0.0)))


@pytest.mark.parametrize("consumer", TRUE_TO_THEM, ids=lambda program: program.__name__)
@pytest.mark.parametrize("wrong", [(2, 4), (3, 3), (6,), (2, 3, 1), ()], ids=str)
def test_another_shape_is_an_error_as_in_plain_graph_mode(consumer: Any, wrong: Any) -> None:
    if DEVICE and consumer.__name__.startswith("assigned"):
        pytest.skip("XLA_CPU's own kernel of assignments checks no shapes")
    function = Returns(2, 3)
    program = _program(tf.numpy_function, function, consumer)
    run, expected = jitted(program), plain(program)
    run(0.0)
    function.shape = wrong
    for one in (expected, run):
        with pytest.raises(tf.errors.InvalidArgumentError):
            one(0.0)
    function.shape = (2, 3)
    assert_same(to_numpy(run(0.0)), to_numpy(expected(0.0)))


@pytest.mark.custom_call  # between clusters the op that takes the result says it itself
def test_the_error_names_the_op_that_takes_no_other_shape() -> None:
    function = Returns(2, 4)
    run = jitted(_program(tf.numpy_function, function, assigned_behind_a_cast))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        run(0.0)
    text = str(caught.value)
    assert "has shape (2, 4), but its declared shape is (2, 3)" in text
    assert "nothing declares the shape of its result 0: op 'Cast' (Cast) at " in text
    code = assigned_behind_a_cast.__code__
    assert f"{code.co_filename}:{code.co_firstlineno + 1} takes no other" in text


# What may not run tells nothing: these programs take any shape.
def not_used(y: tf.Tensor) -> Any:
    tf.stack([y, PAIR])
    tf.ensure_shape(tf.abs(y), [2, 3])
    return y


def in_a_branch_that_is_not_taken(y: tf.Tensor) -> Any:
    return tf.cond(
        tf.size(y) > 100, lambda: tf.ensure_shape(-y, [2, 3]) * 1.0, lambda: tf.zeros([4, 2])
    )


def in_a_loop_that_does_not_run(y: tf.Tensor) -> Any:
    def body(i: tf.Tensor, z: tf.Tensor) -> Any:
        return i + 1, z + tf.reduce_sum(tf.stack([y, PAIR]))

    return tf.while_loop(lambda i, _: i < tf.size(y) - 100, body, (0, 1.0))[1]


def into_a_variable_of_any_shape(y: tf.Tensor) -> Any:
    return ANY_SHAPE.assign(y).read_value()


def of_several_shapes(y: tf.Tensor) -> Any:
    return tf.reshape(y, [-1]), tf.concat([tf.reshape(y, [-1]), [1.0]], 0), y[None]


ANY_SHAPE = tf.Variable(tf.zeros([2, 3]), shape=tf.TensorShape(None))


@each_op
@pytest.mark.parametrize(
    "consumer",
    [
        *(not_used, in_a_branch_that_is_not_taken, in_a_loop_that_does_not_run),
        *(into_a_variable_of_any_shape, of_several_shapes),
    ],
    ids=lambda program: program.__name__,
)
def test_what_need_not_hold_is_not_taken_for_true(op: Any, consumer: Any) -> None:
    function = Returns(2, 3)
    program = _program(op, function, consumer)
    run, expected = jitted(program), plain(program)
    for shape in [(2, 3), (2, 4), (), (5,)]:
        function.shape = shape
        assert_same(to_numpy(run(0.0)), to_numpy(expected(0.0)))


def _in_a_branch(op: Any, function: Any) -> Any:
    def taken() -> Any:
        return tf.reduce_sum(tf.stack([op(function, [0.0], FLOAT), PAIR]))

    return lambda x: tf.cond(x > 0.0, taken, lambda: x)


def _out_of_a_branch(op: Any, function: Any) -> Any:
    def program(x: tf.Tensor) -> Any:
        y = tf.cond(x > 0.0, lambda: -op(function, [x], FLOAT), lambda: tf.zeros([2, 3]))
        return tf.ensure_shape(tf.abs(y), [2, 3])

    return program


def _out_of_two_branches(op: Any, function: Any) -> Any:
    def program(x: tf.Tensor) -> Any:
        def inner() -> Any:
            return tf.cond(x > 1.0, lambda: op(function, [x], FLOAT), lambda: PAIR)

        return tf.stack([tf.cond(x > 0.0, inner, lambda: op(function, [x], FLOAT)), PAIR])

    return program


def _out_of_a_switch(op: Any, function: Any) -> Any:
    def program(x: tf.Tensor) -> Any:
        branches = [lambda: op(function, [x], FLOAT), lambda: PAIR, lambda: 2.0 * PAIR]
        y = tf.switch_case(tf.cast(x, tf.int32) - 1, branches)
        y.set_shape([2, 3])
        return y

    return program


def _in_a_loop(op: Any, function: Any) -> Any:
    def program(x: tf.Tensor) -> Any:
        def body(i: tf.Tensor, y: tf.Tensor) -> Any:
            return i + 1, tf.add_n([y, op(function, [x], FLOAT)])

        return tf.while_loop(lambda i, _: i < 3, body, (0, PAIR))[1]

    return program


@each_op
@pytest.mark.parametrize(
    "build", [_in_a_branch, _out_of_a_branch, _out_of_two_branches, _out_of_a_switch, _in_a_loop]
)
def test_branches_and_loops(op: Any, build: Any) -> None:
    function = Returns(2, 3)
    with hostcall.scope(route="custom_call"):
        run = jitted(build(op, function))
        expected = plain(build(op, function))
        for x in (1.0, 2.0, -1.0):
            x = tf.constant(x)
            assert_same(to_numpy(run(x)), to_numpy(expected(x)))
    if build is not _out_of_a_switch:  # which promises it
        function.shape = (3, 2)
        for one in (run, expected):
            with pytest.raises(tf.errors.InvalidArgumentError):
                one(tf.constant(2.0))


def test_a_demand_that_contradicts_what_is_declared_is_an_error_of_the_op() -> None:
    function = hostcall.declare(Returns(2, 4), result=tf.TensorSpec([2, None], FLOAT))

    def program(x: tf.Tensor) -> Any:
        return tf.stack([tf.numpy_function(function, [x], FLOAT), PAIR])

    for mode in (plain, jitted):
        with pytest.raises(tf.errors.InvalidArgumentError):
            mode(program)(0.0)


def test_what_is_declared_is_completed() -> None:
    function = hostcall.declare(Returns(2, 3), result=lambda x: [x.shape[0], None])

    def program(x: tf.Tensor) -> Any:
        return VARIABLE.assign(tf.numpy_function(function, [x], FLOAT)) + 0.0

    with hostcall.scope(route="custom_call"):
        run = tf.function(program, jit_compile=True, input_signature=[tf.TensorSpec([None], FLOAT)])
        assert_same(run(tf.zeros([2])).numpy(), Returns(2, 3)())
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(tf.zeros([3]))


def test_explain_shows_the_shape() -> None:
    program = jitted(_program(tf.numpy_function, Returns(2, 3), assigned))
    (script_op,) = hostcall.explain(program, tf.constant(0.0)).script_ops
    assert [result.shape for result in script_op.results] == ["(2, 3)"]


@pytest.mark.parametrize("shape", [[], [2], [2, 3, 4, 5]], ids=str)
def test_what_set_shape_says_may_be_nonsense(shape: list[int]) -> None:
    """Tracing goes on, as in TensorFlow; what becomes of it is another matter."""

    def program(x: tf.Tensor) -> Any:
        y = tf.numpy_function(Returns(2, 3), [x], FLOAT)
        stacked, joined = tf.stack([y, y], axis=-1), tf.concat([y, y], axis=1)
        gathered = tf.gather(y, [0], axis=1)
        for tensor in (stacked, joined, gathered):
            tensor.set_shape(shape)
        parts = tf.unstack(y, 2, axis=1)
        return stacked, joined, gathered, parts

    for mode in (plain, jitted):
        mode(program).get_concrete_function(tf.TensorSpec([], FLOAT))


def _loss(x: tf.Tensor) -> tf.Tensor:
    def square(v: tf.Tensor) -> tf.Tensor:
        return tf.py_function(lambda v: v * v, [v], FLOAT)

    y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: square(x * VARIABLE), lambda: x)
    z = tf.reshape(square(x), [6]) * tf.reshape(VARIABLE, [6])
    return tf.reduce_sum(tf.stack([y, PAIR])) + tf.reduce_sum(z)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("around", [False, True])
def test_gradients_are_those_of_plain_graph_mode(loops: bool, around: bool) -> None:
    def loss(x: tf.Tensor) -> tf.Tensor:
        if not loops:
            return _loss(x)
        body = lambda i, total: (i + 1, total + _loss(x))  # noqa: E731
        return tf.while_loop(lambda i, _: i < 3, body, (0, 0.0), maximum_iterations=3)[1]

    def step(x: tf.Tensor, mode: Any) -> Any:
        with tf.GradientTape() as tape:
            value = mode(loss)(x) if around else loss(x)
        return value, tape.gradient(value, VARIABLE)

    if DEVICE and around and loops:
        pytest.skip("XLA_CPU has no zeros of a TensorList in eager mode")
    VARIABLE.assign(PAIR)
    found, expected = (
        step(PAIR, mode) if around else mode(lambda x: step(x, plain))(PAIR)
        for mode in (jitted, plain)
    )
    for one, other in zip(to_numpy(found), to_numpy(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
