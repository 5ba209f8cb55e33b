"""Shapes that nobody declares, and that the ops tell which take the results of script ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_same, jitted, plain, to_numpy

FLOAT = tf.float32
each_op = pytest.mark.parametrize(
    "op", [tf.numpy_function, tf.py_function], ids=["numpy_function", "py_function"]
)


class Returns:
    """Returns numbers in a shape that is told later."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __call__(self, *_: Any) -> np.ndarray:
        return np.arange(np.prod(self.shape), dtype=np.float32).reshape(self.shape)


VARIABLE = tf.Variable(tf.zeros([2, 3]))
PAIR = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def behind_a_cast(y: tf.Tensor) -> Any:
    z = tf.cast(y, tf.float64)
    z.set_shape([2, 3])
    return 2.0 * z


def behind_many_ops(y: tf.Tensor) -> Any:
    return tf.ensure_shape(tf.abs(tf.identity(-tf.sqrt(y))), [2, 3])


def assigned(y: tf.Tensor) -> Any:
    return VARIABLE.assign(y) + 1.0


def assigned_behind_a_cast(y: tf.Tensor) -> Any:
    VARIABLE.assign(tf.cast(tf.cast(y, tf.float64), FLOAT))
    return VARIABLE + 1.0


def added_to_a_variable(y: tf.Tensor) -> Any:
    VARIABLE.assign(PAIR)
    return VARIABLE.assign_add(y), VARIABLE.assign_sub(2.0 * tf.ensure_shape(y, None))


def applied_to_a_variable(y: tf.Tensor) -> Any:
    VARIABLE.assign(PAIR)
    tf.raw_ops.ResourceApplyGradientDescent(var=VARIABLE.handle, alpha=0.5, delta=y)
    return VARIABLE.read_value()


def stacked(y: tf.Tensor) -> Any:
    return tf.stack([y, PAIR], axis=1)


def stacked_and_told(y: tf.Tensor) -> Any:
    z = tf.stack([y, y], axis=-1)
    z.set_shape([2, 3, 2])
    return z


def unstacked(y: tf.Tensor) -> Any:
    parts = tf.unstack(y, 2)
    return tf.ensure_shape(parts[0], [3]) + parts[1]


def unstacked_from_the_end(y: tf.Tensor) -> Any:
    parts = tf.unstack(y, 3, axis=-1)
    return tf.stack([parts[2], tf.constant([1.0, 2.0])])


def joined(y: tf.Tensor) -> Any:
    return tf.ensure_shape(tf.concat([PAIR, y], axis=0), [4, 3])


def joined_at_the_last(y: tf.Tensor) -> Any:
    return (
        VARIABLE.assign(tf.concat([PAIR[:, :1], tf.concat([y, y], -1)[:, 4:]], axis=-1))
        + (tf.ensure_shape(tf.concat([y, PAIR], axis=-1), [2, 6])[:, :3])
    )


def indices_of_a_gather(y: tf.Tensor) -> Any:
    z = tf.gather(tf.range(30.0), tf.cast(y, tf.int32))
    return tf.ensure_shape(z, [2, 3])


def gathered_from(y: tf.Tensor) -> Any:
    z = tf.gather(y, [1, 0, 1], axis=0)
    return tf.ensure_shape(z, [3, 3]), tf.ensure_shape(tf.gather(y, 1, axis=1), [2])


def added_up(y: tf.Tensor) -> Any:
    return tf.add_n([PAIR, y])


def reshaped_with_a_size_missing(y: tf.Tensor) -> Any:
    y.set_shape([2, None])
    return tf.reshape(y, [3, 2])


def into_a_loop(y: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, _: i < 3,
        lambda i, z: (i + 1, z * 2.0),
        (0, y),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([2, 3])),
    )[1]


TRUE_TO_THEM = [
    *(behind_many_ops, assigned, assigned_behind_a_cast, added_to_a_variable),
    *(applied_to_a_variable, stacked, unstacked, unstacked_from_the_end, joined),
    *(joined_at_the_last, indices_of_a_gather, gathered_from, added_up),
]
PROMISES = [behind_a_cast, stacked_and_told, reshaped_with_a_size_missing, into_a_loop]
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
    line = assigned_behind_a_cast.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} takes no other" in text


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
