"""Results whose shapes nothing in a program looks at: unused ones, and those that are reshaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.consumer_programs import Returns
from tests.support.helpers import OPS, assert_same, jitted, plain, stateless_py_func, to_numpy
from tests.support.versions import one_program_keeps_the_order

FLOAT = tf.float32
STATEFUL_OPS = [op for op in OPS if op is not stateless_py_func]
each_stateful_op = pytest.mark.parametrize("op", STATEFUL_OPS, ids=lambda op: op.__name__)
each_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)


def reshaped(y: tf.Tensor) -> Any:
    return tf.reshape(y, [2, 3]) + 1.0


def reshaped_twice_behind_ops(y: tf.Tensor) -> Any:
    z = tf.cast(tf.abs(y), tf.float64)
    return tf.reshape(z, [3, 2]), tf.reshape(tf.identity(-y), [-1, 6]), tf.reshape(z, [-1])


def reshaped_and_counted(y: tf.Tensor) -> Any:
    return tf.reshape(y, [1, 6]), tf.size(y)


def reshaped_to_the_shape_of_another(y: tf.Tensor) -> Any:
    return tf.reshape(y, tf.shape(tf.zeros([2, 3])))


RESHAPED = [
    *(reshaped, reshaped_twice_behind_ops, reshaped_and_counted, reshaped_to_the_shape_of_another),
]


@each_stateful_op
@pytest.mark.parametrize("taken", RESHAPED, ids=lambda program: program.__name__)
def test_any_shape_of_as_many_elements_will_do(op: Any, taken: Any) -> None:
    function = Returns(2, 3)

    def program(x: tf.Tensor) -> Any:
        return taken(op(function, [x], FLOAT))

    with hostcall.scope(route="custom_call"):
        run, expected = jitted(program), plain(program)
        for shape in [(2, 3), (6,), (3, 2, 1), (1, 6)]:
            function.shape = shape
            assert_same(to_numpy(run(0.0)), to_numpy(expected(0.0)))
        for shape in [(5,), (2, 4), (), (0, 6)]:
            function.shape = shape
            for one in (run, expected):
                with pytest.raises(tf.errors.InvalidArgumentError):
                    one(0.0)
        function.shape = (6, 1)
        assert_same(to_numpy(run(0.0)), to_numpy(expected(0.0)))


@each_op
def test_what_is_not_in_one_piece_is_copied(op: Any) -> None:
    def program(x: tf.Tensor) -> Any:
        y = op(lambda x: np.asarray(x)[::-1].T, [x], FLOAT)
        return tf.reshape(y, [6])

    x = tf.reshape(tf.range(6.0), [2, 3])
    with hostcall.scope(route="custom_call"):
        assert_same(jitted(program)(x).numpy(), x.numpy()[::-1].T.reshape(6))


@each_stateful_op
@pytest.mark.parametrize("stacks", [False, True])
def test_an_unused_result_may_have_any_shape(op: Any, stacks: bool) -> None:
    calls = []

    def two(x: Any) -> Any:
        calls.append(1)
        return [np.ones(len(calls), np.float32), 2.0 * x, np.float32(3.0)]

    def program(x: tf.Tensor) -> Any:
        unused, y, _ = op(two, [x], [FLOAT] * 3)
        if stacks:
            tf.stack([unused, x])  # XLA compiles it, though it does not run
        y.set_shape([2])
        return y

    x = tf.constant([1.0, 2.0])
    with hostcall.scope(route="auto" if stacks else "custom_call"):
        run = jitted(program)
        for _ in range(3):
            assert_same(run(x).numpy(), np.array([2.0, 4.0], np.float32))
    assert len(calls) == 3


@each_op
def test_an_unused_result_is_all_that_there_is(op: Any) -> None:
    calls = []

    def note(x: Any) -> Any:
        calls.append(float(x))
        return np.zeros([len(calls)], np.float32)

    def program(x: tf.Tensor) -> Any:
        op(note, [x], FLOAT)
        return x + 1.0

    stateless = "stateless" in op.__name__
    with hostcall.scope(route="custom_call"):
        run = jitted(program)
        for number in range(3):
            assert float(run(float(number))) == number + 1.0
    assert calls == ([] if stateless else [0.0, 1.0, 2.0])


@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function], ids=["numpy", "eager"])
@pytest.mark.parametrize(
    "returned",
    [[1.0, np.zeros(3, np.complex64)], [1.0, None], [1.0], [np.zeros(2, np.float32), 2.0]],
    ids=["another dtype", "nothing", "too few", "the shape of another"],
)
def test_the_rest_is_checked(op: Any, returned: Any) -> None:
    """As in plain graph mode, where what nobody uses is converted as well."""

    def program(x: tf.Tensor) -> Any:
        y, _ = op(lambda _: returned, [x], [FLOAT, FLOAT])
        return tf.ensure_shape(y, [])

    for one in (jitted(program), plain(program)):
        with pytest.raises(tf.errors.OpError):
            one(0.0)


@one_program_keeps_the_order
@each_op
def test_in_a_loop_and_in_a_branch(op: Any) -> None:
    # Where no effect is ordered, loops are compiled as they are: the op is partitioned.
    route = "auto" if op is stateless_py_func else "custom_call"
    function = Returns(6)

    def program(x: tf.Tensor) -> Any:
        def body(i: tf.Tensor, total: tf.Tensor) -> Any:
            y = tf.reshape(op(function, [x], FLOAT), [2, 3])
            z = tf.cond(x > 0.0, lambda: tf.reshape(op(function, [x], FLOAT), [3, 2]), lambda: none)
            return i + 1, total + y + tf.transpose(z)

        none = tf.zeros([3, 2])
        return tf.while_loop(lambda i, _: i < 3, body, (0, tf.zeros([2, 3])))[1]

    one = tf.ones([])

    with hostcall.scope(route=route):
        assert_same(jitted(program)(one).numpy(), plain(program)(one).numpy())


# Where the shape is looked at after all: as it is.
def returned_too(y: tf.Tensor) -> Any:
    return tf.reshape(y, [6]), y


def asked_for_its_shape(y: tf.Tensor) -> Any:
    return tf.reshape(y, [6]), tf.shape(y), tf.rank(y)


def put_into_order(y: tf.Tensor) -> Any:
    return tf.reshape(tf.reverse(y, [0]), [6])


@each_stateful_op
@pytest.mark.parametrize("taken", [returned_too, asked_for_its_shape, put_into_order])
def test_a_shape_that_is_looked_at_is_the_true_one(op: Any, taken: Any) -> None:
    function = Returns(2, 3)

    def program(x: tf.Tensor) -> Any:
        return taken(op(function, [x], FLOAT))

    run, expected = jitted(program), plain(program)
    for shape in [(2, 3), (6,), (3, 2, 1)]:
        function.shape = shape
        assert_same(to_numpy(run(0.0)), to_numpy(expected(0.0)))


@pytest.mark.parametrize("within", [False, True], ids=["tape around", "tape within"])
def test_gradients_have_the_true_shapes(within: bool) -> None:
    def square(x: tf.Tensor) -> tf.Tensor:
        y, _ = tf.py_function(lambda v: [tf.reshape(v * v, [3, 2]), v], [x], [FLOAT, FLOAT])
        return tf.reshape(y, [6])

    def gradient(program: Any, x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = program(x)
        return tape.gradient(y, x)

    x = tf.reshape(tf.range(6.0), [2, 3])
    inner = jitted(lambda x: gradient(square, x))
    found = inner(x) if within else gradient(jitted(square), x)
    assert_same(found.numpy(), 2.0 * x.numpy())


@pytest.mark.custom_call  # which it tells of
def test_explain_says_that_it_is_one_program() -> None:
    def program(x: tf.Tensor) -> Any:
        return reshaped(tf.numpy_function(Returns(6), [x], FLOAT))

    explanation = hostcall.explain(jitted(program), tf.constant(0.0))
    assert [op.route for op in explanation.script_ops] == ["custom_call"]
