"""Variables, side effects, errors and gradients of functions that are partitioned."""

from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    MODES,
    assert_same,
    distinct,
    failure,
    gradient_of,
    jitted,
    partitioned,
    plain,
    to_numpy,
)

X = tf.constant([3.0, 1.0, 2.0, 2.0])


def test_assertions_hold_as_in_plain_graph_mode() -> None:
    def program(x: tf.Tensor) -> Any:
        y = distinct(x)
        tf.debugging.assert_greater(tf.reduce_sum(y), 0.0, message="not positive")
        return y * 2.0

    function = jitted(program)
    function(X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
        function(-X)
    function(X)


def checked(x: tf.Tensor) -> tf.Tensor:
    y = distinct(tf.math.log(x))
    return tf.debugging.check_numerics(tf.sqrt(y) * 2.0, "of the roots") + 1.0


def checked_beside(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.check_numerics(tf.sqrt(x), "of the roots")]):
        return tf.identity(distinct(x))


def checked_gradient(x: tf.Tensor) -> Any:
    def total(x: tf.Tensor) -> tf.Tensor:
        y = tf.debugging.check_numerics(tf.sqrt(x), "of the roots")
        return tf.reduce_sum(y) + tf.reduce_sum(distinct(x))

    return gradient_of(total, x)


CHECKED = {
    "straight": checked,
    "in a branch": lambda x: tf.cond(x[0] < 9.0, lambda: checked(x), lambda: distinct(x)),
    "in a function": lambda x: plain(checked)(x) * 2.0,
    "beside a call": checked_beside,
    "in a gradient": checked_gradient,
}


@pytest.mark.parametrize("program", CHECKED.values(), ids=CHECKED)
def test_numbers_are_checked_as_in_plain_graph_mode(program: Any) -> None:
    good, bad = tf.constant([3.0, 2.0, 3.0]), tf.constant([-1.0, 2.0])
    assert_same(to_numpy(jitted(program)(good)), to_numpy(plain(program)(good)))
    for run in (plain(program), jitted(program)):
        error = failure(run, bad)
        assert type(error) is tf.errors.InvalidArgumentError
        assert "of the roots : Tensor had NaN values" in str(error)


def test_explain_tells_of_checked_numbers(every_cluster: None) -> None:
    explained = hostcall.explain(jitted(checked), tf.TensorSpec([3], tf.float32))
    assert {check.op for check in explained.checks} == {"CheckNumerics"}
    messages = {check.message for check in explained.checks}
    assert "of the roots : Tensor had NaN values" in messages


def test_prints_come_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    def program(x: tf.Tensor) -> Any:
        tf.print("one", x[0])
        y = distinct(x)
        tf.print("two", y)
        return y * 2.0

    jitted(program)(X)
    assert capfd.readouterr().err == "one 3\ntwo [1 2 3]\n"


def test_the_gradient_of_a_function_that_the_user_has_partitioned() -> None:
    """Its gradient holds an op without an XLA kernel, too, and nothing marks that."""

    def program(x: tf.Tensor) -> tf.Tensor:
        indices = tf.constant([[0, 1], [1, 0]], tf.int64)
        sparse = tf.SparseTensor(indices, x[:2], [2, 2])
        return tf.reduce_sum(tf.sparse.sparse_dense_matmul(sparse, [[1.0], [2.0]]) ** 2)

    gradients = [gradient_of(mode(program), X) for mode in (plain, partitioned)]
    assert_same(*(tf.convert_to_tensor(gradient).numpy() for gradient in gradients))


def test_the_gradient_of_a_branch_that_is_not_taken() -> None:
    """Its intermediates are made up, of any shape, and the gradient holds no script op."""

    def program(x: tf.Tensor) -> tf.Tensor:
        if x[0] > 1.0:
            z = tf.numpy_function(lambda v: v, [x], tf.float32) * x
        else:
            z = tf.clip_by_value(x * x * 2.0, -8.0, 8.0) * x
        return tf.reduce_sum(z)

    for x in (tf.constant([2.0, 1.0]), tf.constant([0.5, 1.0])):
        assert_same(*(to_numpy(gradient_of(mode(program), x)) for mode in MODES))
