"""Shapes that nobody declares: what the ops tell that take the results, if any looks at them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE, on_device
from tests.support.helpers import (
    MODES,
    Returns,
    assert_close,
    assert_same,
    assert_says,
    each_decorator,
    each_op,
    each_stateful_op,
    eagerly,
    failure,
    gradient_of,
    jitted,
    plain,
    stateless_py_func,
    to_numpy,
    value_and_gradient,
)
from tests.support.places import here

FLOAT = tf.float32


with on_device():
    VARIABLE = tf.Variable(tf.zeros([2, 3]))
PAIR = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


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


def shaped(y: tf.Tensor, shape: Sequence[int | None]) -> tf.Tensor:
    y.set_shape(shape)
    return y


TRUE_TO_THEM: dict[str, Callable[[tf.Tensor], Any]] = {
    "behind many ops": lambda y: tf.ensure_shape(tf.abs(tf.identity(-tf.sqrt(y))), [2, 3]),
    "assigned": lambda y: VARIABLE.assign(y) + 1.0,
    "assigned behind a cast": assigned_behind_a_cast,
    "added to a variable": added_to_a_variable,
    "applied to a variable": applied_to_a_variable,
    "stacked": lambda y: tf.stack([y, PAIR], axis=1),
    "unstacked": lambda y: tf.ensure_shape(tf.unstack(y, 2)[0], [3]) + tf.unstack(y, 2)[1],
    "unstacked from the end": lambda y: tf.stack([tf.unstack(y, 3, axis=-1)[2], [1.0, 2.0]]),
    "joined": lambda y: tf.ensure_shape(tf.concat([PAIR, y], axis=0), [4, 3]),
    "joined at the last": lambda y: (
        VARIABLE.assign(tf.concat([PAIR[:, :1], tf.concat([y, y], -1)[:, 4:]], axis=-1))
        + tf.ensure_shape(tf.concat([y, PAIR], axis=-1), [2, 6])[:, :3]
    ),
    "indices of a gather": lambda y: tf.ensure_shape(
        tf.gather(tf.range(30.0), tf.cast(y, tf.int32)), [2, 3]
    ),
    "gathered from": lambda y: (
        tf.ensure_shape(tf.gather(y, [1, 0, 1], axis=0), [3, 3]),
        tf.ensure_shape(tf.gather(y, 1, axis=1), [2]),
    ),
    "added up": lambda y: tf.add_n([PAIR, y]),
}
PROMISES: dict[str, Callable[[tf.Tensor], Any]] = {
    "behind a cast": lambda y: 2.0 * shaped(tf.cast(y, tf.float64), [2, 3]),
    "stacked and told": lambda y: shaped(tf.stack([y, y], axis=-1), [2, 3, 2]),
    "reshaped with a size missing": lambda y: tf.reshape(shaped(y, [2, None]), [3, 2]),
    "into a loop": lambda y: tf.while_loop(
        lambda i, _: i < 3,
        lambda i, z: (i + 1, z * 2.0),
        (0, y),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([2, 3])),
    )[1],
}


def each_consumer(consumers: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("consumer", consumers.values(), ids=consumers)


def _program(op: Any, function: Any, consumer: Callable[[tf.Tensor], Any]) -> Any:
    return lambda x: consumer(op(function, [x], FLOAT))


def _both_fail(run: Any, expected: Any, x: Any = 0.0) -> None:
    for one in (expected, run):
        assert isinstance(failure(one, x), tf.errors.InvalidArgumentError)


Shapes = list[tuple[int, ...]]


def _assert_takes(op: Any, consumer: Any, shapes: Shapes, others: Shapes | None = None) -> None:
    """With results of these shapes it is what plain graph mode is; others are errors in both."""
    function = Returns(*shapes[0])
    program = _program(op, function, consumer)
    run, expected = jitted(program), plain(program)
    for shape in (*shapes, *(others or []), shapes[0]):
        function.shape = shape
        if shape in shapes:
            assert_same(to_numpy(run(0.0)), to_numpy(expected(0.0)))
        else:
            _both_fail(run, expected)


@each_decorator
@each_consumer(TRUE_TO_THEM | PROMISES)
def test_the_function_is_one_program(op: Any, consumer: Any) -> None:
    program = _program(op, Returns(2, 3), consumer)
    expected = to_numpy(plain(program)(0.0))
    with hostcall.scope(route="custom_call"):
        run = jitted(program)
        for _ in range(2):
            assert_same(to_numpy(run(0.0)), expected)
        if consumer is TRUE_TO_THEM["assigned"]:
            (script_op,) = hostcall.explain(run, tf.constant(0.0)).script_ops
            assert [result.shape for result in script_op.results] == ["(2, 3)"]


@pytest.mark.parametrize("name", TRUE_TO_THEM)
def test_another_shape_is_an_error_as_in_plain_graph_mode(name: str) -> None:
    if DEVICE and name.startswith("assigned"):
        pytest.skip("XLA_CPU's own kernel of assignments checks no shapes")
    others: Shapes = [(2, 4), (3, 3), (6,), (2, 3, 1), ()]
    _assert_takes(tf.numpy_function, TRUE_TO_THEM[name], [(2, 3)], others)


@pytest.mark.custom_call  # between clusters the op that takes the result says it itself
def test_the_error_names_the_op_that_takes_no_other_shape() -> None:
    run = jitted(_program(tf.numpy_function, Returns(2, 4), assigned_behind_a_cast))
    error = failure(run, 0.0)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(
        error,
        "has shape (2, 4), but its declared shape is (2, 3)",
        "nothing declares the shape of its result 0: op 'Cast' (Cast) at ",
        f"{here(1, assigned_behind_a_cast)} takes no other",
    )


ANY_SHAPE = tf.Variable(tf.zeros([2, 3]), shape=tf.TensorShape(None))


# What may not run tells nothing: these programs take any shape.
OF_ANY_SHAPE: dict[str, Callable[[tf.Tensor], Any]] = {
    "not used": lambda y: [y, tf.stack([y, PAIR]), tf.ensure_shape(tf.abs(y), [2, 3])][0],
    "in a branch that is not taken": lambda y: tf.cond(
        tf.size(y) > 100, lambda: tf.ensure_shape(-y, [2, 3]) * 1.0, lambda: tf.zeros([4, 2])
    ),
    "in a loop that does not run": lambda y: tf.while_loop(
        lambda i, _: i < tf.size(y) - 100,
        lambda i, z: (i + 1, z + tf.reduce_sum(tf.stack([y, PAIR]))),
        (0, 1.0),
    )[1],
    "into a variable of any shape": lambda y: ANY_SHAPE.assign(y).read_value(),
    "of several shapes": lambda y: (
        tf.reshape(y, [-1]),
        tf.concat([tf.reshape(y, [-1]), [1.0]], 0),
        y[None],
    ),
}


@each_decorator
@each_consumer(OF_ANY_SHAPE)
def test_what_need_not_hold_is_not_taken_for_true(op: Any, consumer: Any) -> None:
    _assert_takes(op, consumer, [(2, 3), (2, 4), (), (5,)])


# Programs of a number that call a function in control flow, `y` being the call.
IN_CONTROL_FLOW: dict[str, Callable[[Any, tf.Tensor], Any]] = {
    "in a branch": lambda y, x: tf.cond(
        x > 0.0, lambda: tf.reduce_sum(tf.stack([y(), PAIR])), lambda: x
    ),
    "out of a branch": lambda y, x: tf.ensure_shape(
        tf.abs(tf.cond(x > 0.0, lambda: -y(), lambda: tf.zeros([2, 3]))), [2, 3]
    ),
    "out of two branches": lambda y, x: tf.stack(
        [tf.cond(x > 0.0, lambda: tf.cond(x > 1.0, y, lambda: PAIR), y), PAIR]
    ),
    "out of a switch": lambda y, x: shaped(
        tf.switch_case(tf.cast(x, tf.int32) - 1, [y, lambda: PAIR, lambda: 2.0 * PAIR]), [2, 3]
    ),
    "in a loop": lambda y, x: tf.while_loop(
        lambda i, _: i < 3, lambda i, z: (i + 1, tf.add_n([z, y()])), (0, PAIR)
    )[1],
}


@each_decorator
@pytest.mark.parametrize("name", IN_CONTROL_FLOW)
def test_branches_and_loops(op: Any, name: str) -> None:
    function = Returns(2, 3)

    def program(x: tf.Tensor) -> Any:
        return IN_CONTROL_FLOW[name](lambda: op(function, [x], FLOAT), x)

    with hostcall.scope(route="custom_call"):
        run, expected = jitted(program), plain(program)
        for x in map(tf.constant, (1.0, 2.0, -1.0)):
            assert_same(to_numpy(run(x)), to_numpy(expected(x)))
    if name != "out of a switch":  # which promises it
        function.shape = (3, 2)
        _both_fail(run, expected, tf.constant(2.0))


def test_what_another_branch_has_for_the_gradient_demands_nothing() -> None:
    def doubled(v: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.py_function(lambda w: 2.0 * w, [v], FLOAT), [None])

    def total(x: tf.Tensor) -> Any:
        v = tf.boolean_mask(x, x > 0.0)
        branches = [lambda: tf.sin(doubled(v)), lambda: tf.cos(doubled(v * 2.0))]
        return tf.reduce_sum(tf.cond(tf.reduce_sum(x) > 0.0, *branches))

    program = functools.partial(value_and_gradient, total)
    compiled = jitted(program)
    for x in ([-3.0, 1.0, 1.0], [-3.0, 1.0, -1.0], [3.0, 1.0, -1.0], [-1.0, -2.0, -3.0]):
        assert_close(compiled(tf.constant(x)), plain(program)(tf.constant(x)))


def test_a_demand_that_contradicts_what_is_declared_is_an_error_of_the_op() -> None:
    function = hostcall.declare(Returns(2, 4), result=tf.TensorSpec([2, None], FLOAT))
    program = _program(tf.numpy_function, function, lambda y: tf.stack([y, PAIR]))
    _both_fail(jitted(program), plain(program))


def test_what_is_declared_is_completed() -> None:
    function = hostcall.declare(Returns(2, 3), result=lambda x: [x.shape[0], None])
    program = _program(tf.numpy_function, function, TRUE_TO_THEM["assigned"])
    with hostcall.scope(route="custom_call"):
        run = tf.function(program, jit_compile=True, input_signature=[tf.TensorSpec([None], FLOAT)])
        assert_same(run(tf.zeros([2])).numpy(), Returns(2, 3)() + 1.0)
        assert isinstance(failure(run, tf.zeros([3])), tf.errors.InvalidArgumentError)


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
            value = mode(loss)(x)
        return value, tape.gradient(value, VARIABLE)

    if DEVICE and around and loops:
        pytest.skip("XLA_CPU has no zeros of a TensorList in eager mode")
    VARIABLE.assign(PAIR)
    found, expected = (
        step(PAIR, mode) if around else mode(lambda x: step(x, eagerly))(PAIR)
        for mode in (jitted, plain)
    )
    assert_close(found, expected)


# Results whose shapes nothing in a program looks at: unused ones, and those that are reshaped.


def reshaped_twice_behind_ops(y: tf.Tensor) -> Any:
    z = tf.cast(tf.abs(y), tf.float64)
    return tf.reshape(z, [3, 2]), tf.reshape(tf.identity(-y), [-1, 6]), tf.reshape(z, [-1])


RESHAPED: dict[str, Callable[[tf.Tensor], Any]] = {
    "reshaped": lambda y: tf.reshape(y, [2, 3]) + 1.0,
    "twice, behind ops": reshaped_twice_behind_ops,
    "and counted": lambda y: (tf.reshape(y, [1, 6]), tf.size(y)),
    "to the shape of another": lambda y: tf.reshape(y, tf.shape(tf.zeros([2, 3]))),
}


@each_stateful_op
@each_consumer(RESHAPED)
def test_any_shape_of_as_many_elements_will_do(op: Any, consumer: Any) -> None:
    with hostcall.scope(route="custom_call"):
        others: Shapes = [(5,), (2, 4), (), (0, 6)]
        _assert_takes(op, consumer, [(2, 3), (6,), (3, 2, 1), (1, 6), (6, 1)], others)


@each_op
def test_what_is_not_in_one_piece_is_copied(op: Any) -> None:
    x = tf.reshape(tf.range(6.0), [2, 3])
    turned = lambda x: tf.reshape(op(lambda x: np.asarray(x)[::-1].T, [x], FLOAT), [6])  # noqa: E731
    with hostcall.scope(route="custom_call"):
        assert_same(jitted(turned)(x).numpy(), x.numpy()[::-1].T.reshape(6))


@each_stateful_op
@pytest.mark.parametrize("stacks", [False, True])
def test_an_unused_result_may_have_any_shape(op: Any, stacks: bool) -> None:
    calls = []

    def three(x: Any) -> Any:
        calls.append(1)
        return [np.ones(len(calls), np.float32), 2.0 * x, np.float32(3.0)]

    def program(x: tf.Tensor) -> Any:
        unused, y, _ = op(three, [x], [FLOAT] * 3)
        if stacks:
            tf.stack([unused, x])  # XLA compiles it, though it does not run
        return shaped(y, [2])

    with hostcall.scope(route="auto" if stacks else "custom_call"):
        run = jitted(program)
        for _ in range(3):
            np.testing.assert_array_equal(run(tf.constant([1.0, 2.0])), [2.0, 4.0])
    assert len(calls) == 3


@each_op
def test_an_unused_result_is_all_that_there_is(op: Any) -> None:
    calls = []

    def note(x: Any) -> Any:
        calls.append(float(x))
        return np.zeros([len(calls)], np.float32)

    with hostcall.scope(route="custom_call"):
        run = jitted(lambda x: (op(note, [x], FLOAT), x + 1.0)[1])
        for number in range(3):
            assert float(run(float(number))) == number + 1.0
    assert calls == ([] if op is stateless_py_func else [0.0, 1.0, 2.0])


@each_decorator
@pytest.mark.parametrize(
    "returned",
    [[1.0, np.zeros(3, np.complex64)], [1.0, None], [1.0], [np.zeros(2, np.float32), 2.0]],
    ids=["another dtype", "nothing", "too few", "the shape of another"],
)
def test_the_rest_is_checked(op: Any, returned: Any) -> None:
    """As in plain graph mode, where what nobody uses is converted as well."""
    for mode in MODES:
        run = mode(lambda x: tf.ensure_shape(op(lambda _: returned, [x], [FLOAT, FLOAT])[0], []))
        failure(run, 0.0)


@each_op
def test_in_a_loop_and_in_a_branch(op: Any) -> None:
    function = Returns(6)

    def program(x: tf.Tensor) -> Any:
        def call(*shape: int) -> tf.Tensor:
            return tf.reshape(op(function, [x], FLOAT), shape)

        def body(i: tf.Tensor, total: tf.Tensor) -> Any:
            y = call(2, 3)
            z = tf.cond(x > 0.0, lambda: call(3, 2), lambda: none)
            return i + 1, total + y + tf.transpose(z)

        none = tf.zeros([3, 2])
        return tf.while_loop(lambda i, _: i < 3, body, (0, tf.zeros([2, 3])))[1]

    # Where no effect is ordered, loops are compiled as they are: the op is partitioned.
    with hostcall.scope(route="auto" if op is stateless_py_func else "custom_call"):
        one = tf.ones([])
        assert_same(jitted(program)(one).numpy(), plain(program)(one).numpy())


LOOKING: dict[str, Callable[[tf.Tensor], Any]] = {
    "returned too": lambda y: (tf.reshape(y, [6]), y),
    "asked for its shape": lambda y: (tf.reshape(y, [6]), tf.shape(y), tf.rank(y)),
    "put into order": lambda y: tf.reshape(tf.reverse(y, [0]), [6]),
}


@each_stateful_op
@each_consumer(LOOKING)
def test_a_shape_that_is_looked_at_is_the_true_one(op: Any, consumer: Any) -> None:
    _assert_takes(op, consumer, [(2, 3), (6,), (3, 2, 1)])


@pytest.mark.parametrize("within", [False, True], ids=["tape around", "tape within"])
def test_gradients_have_the_true_shapes(within: bool) -> None:
    def square(x: tf.Tensor) -> tf.Tensor:
        y, _ = tf.py_function(lambda v: [tf.reshape(v * v, [3, 2]), v], [x], [FLOAT, FLOAT])
        return tf.reshape(y, [6])

    x = tf.reshape(tf.range(6.0), [2, 3])
    run = jitted(lambda x: gradient_of(square, x) if within else square(x))
    assert_same((run(x) if within else gradient_of(run, x)).numpy(), 2.0 * x.numpy())
