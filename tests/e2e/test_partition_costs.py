"""Clusters that save less time than their launch takes: TensorFlow's kernels do their work."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

import hostcall
from tests.support.helpers import assert_close, jitted, plain

pytestmark = [
    pytest.mark.usefixtures("auto_route"),
    pytest.mark.cpu("clusters for another device are always compiled"),
]


def changed(x: tf.Tensor) -> tf.Tensor:
    """Call Python for a result of unknown size, so that the function is partitioned."""
    return tf.numpy_function(lambda v: v[v > 0], [x], tf.float32)


def chain(x: tf.Tensor, ops: int) -> tf.Tensor:
    for _ in range(ops):
        x = tf.sin(x)
    return x


def mixed(x: tf.Tensor, ops: int) -> tf.Tensor:
    """Let each op depend on its neighbours, so that nothing is known of the order."""
    y = x
    for _ in range(ops // 2):
        x, y = x + y, x * y
    return x


def with_host_op(y: tf.Tensor) -> Any:
    return y, changed(y)


Step = Callable[[tf.Tensor], Any]
# The ops of a program that are compiled, given its argument of some size.
PROGRAMS: dict[str, tuple[Step, int, bool]] = {
    "few on little": (lambda x: with_host_op(chain(x, 16)), 4, False),
    "many on little": (lambda x: with_host_op(chain(x, 17)), 4, True),
    "one on much": (lambda x: with_host_op(chain(x, 1)), 1_000_000, False),
    "few on much": (lambda x: with_host_op(chain(x, 4)), 1_000_000, True),
    "few of unknown size": (lambda x: chain(changed(x), 3), 1_000_000, False),
    "more of unknown size": (lambda x: chain(changed(x), 4), 4, True),
    "few that are mixed": (lambda x: with_host_op(mixed(x, 16)), 4, False),
    "random numbers": (lambda x: changed(x)[:1] + tf.random.uniform([4]), 4, True),
    "a loop": (lambda x: with_host_op(tf.while_loop(_many, lambda v: [v * 2.0], [x])[0]), 4, True),
}


def _many(v: tf.Tensor) -> tf.Tensor:
    return v[0] < 1000.0


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_compiled(name: str) -> None:
    step, size, compiled = PROGRAMS[name]
    x = tf.fill([size], 0.5)
    function = jitted(step)
    assert bool(hostcall.explain(function, x).clusters) is compiled
    if name != "random numbers":
        assert_close(function(x), plain(step)(x))


def test_the_reason_is_explained() -> None:
    function = jitted(lambda x: with_host_op(tf.cos(x)))
    function(tf.ones([4]))
    explanation = hostcall.explain(function, tf.ones([4]))
    assert explanation.clusters == ()
    [cos] = [op for op in explanation.host_ops if op.op == "Cos"]
    assert cos.reason == "a launch of it would take longer"


def test_variables_and_control_dependencies() -> None:
    count = tf.Variable(0.0)

    def step(x: tf.Tensor) -> Any:
        count.assign_add(tf.reduce_sum(x))
        y = changed(x)
        count.assign(count * 2.0)
        return tf.size(y), count + 0.0

    function = jitted(step)
    assert not hostcall.explain(function, tf.ones([2])).clusters
    assert [float(function(tf.ones([2]))[1]) for _ in range(3)] == [4.0, 12.0, 28.0]


def test_an_op_that_only_xla_has_is_compiled() -> None:
    step = jitted(lambda x: gen_xla_ops.xla_sort(input=with_host_op(x)))
    assert hostcall.explain(step, tf.ones([2])).clusters
    np.testing.assert_array_equal(step(tf.constant([3.0, 1.0]))[0], [1.0, 3.0])


def decomposed(x: tf.Tensor) -> Any:
    low = tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True) + 100.0 * tf.eye(x.shape[0]))
    return chain(low, 20), changed(low)


@pytest.mark.parametrize(("size", "reasons"), [(4, []), (64, ["XLA's kernel takes much longer"])])
def test_ops_that_xla_computes_slowly(size: int, reasons: list[str]) -> None:
    x = tf.random.stateless_normal([size, size], [1, 2])
    function = jitted(decomposed)
    host_ops = hostcall.explain(function, x).host_ops
    found = [op.reason for op in host_ops if op.op == "Cholesky"]
    assert [reason.partition(" than")[0] for reason in found] == reasons
    assert_close(function(x), plain(decomposed)(x))
