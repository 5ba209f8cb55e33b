"""contract.md, "Results": a declared shape is used, and checked at run time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import MODES, OPS, assert_same, jitted, to_numpy

FLOAT = tf.float32
SPEC = tf.TensorSpec([2, None], FLOAT)
Program = Callable[[tf.Tensor], Any]


class Returns:
    """A function of its own each time, that returns a shape that is told later."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __call__(self, *arrays: Any) -> Any:
        return np.ones(self.shape, np.float32)


def by_tout(op: Any, function: Any) -> Program:
    return lambda x: op(function, [x], tf.TensorSpec([2, 3], FLOAT))


def by_set_shape(op: Any, function: Any) -> Program:
    def program(x: tf.Tensor) -> tf.Tensor:
        result = op(function, [x], FLOAT)
        result.set_shape([2, 3])
        return result

    return program


def by_ensure_shape(op: Any, function: Any) -> Program:
    return lambda x: tf.ensure_shape(op(function, [x], FLOAT), [2, 3])


def by_declared_spec(op: Any, function: Any) -> Program:
    hostcall.declare(function, result=tf.TensorSpec([2, 3], FLOAT))
    return lambda x: op(function, [x], FLOAT)


def by_declared_shape(op: Any, function: Any) -> Program:
    hostcall.declare(function, result=[2, 3])
    return lambda x: op(function, [x], FLOAT)


def by_rule(op: Any, function: Any) -> Program:
    hostcall.declare(function, result=lambda x: tf.TensorSpec([x.shape[0], 3], x.dtype))
    return lambda x: op(function, [x], FLOAT)


def by_two_halves(op: Any, function: Any) -> Program:
    hostcall.declare(function, result=tf.TensorSpec([None, 3], FLOAT))
    return lambda x: op(function, [x], SPEC)


def by_callback(op: Any, function: Any) -> Program:
    kind = "eager" if op is tf.py_function else "numpy"
    return hostcall.callback(function, result=tf.TensorSpec([2, 3], FLOAT), kind=kind)


WAYS = [
    *(by_tout, by_set_shape, by_ensure_shape, by_declared_spec, by_declared_shape),
    *(by_rule, by_two_halves, by_callback),
]
X = tf.constant([1.0, 2.0])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("declare", WAYS)
def test_a_declared_shape_is_used_and_checked(op: Any, declare: Any) -> None:
    function = Returns(2, 3)
    run = jitted(declare(op, function))
    assert run(X).shape == [2, 3]
    for wrong in [(2, 4), (3, 3), (3, 2), (6,), (), (2, 0), (2, 3, 1)]:
        function.shape = wrong
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            run(X)
        text = str(caught.value)
        assert "0-th value returned by pyfunc_" in text
        assert f"has shape {wrong}, but its declared shape is (2, 3)" in text
    function.shape = (2, 3)
    assert_same(run(X).numpy(), np.ones([2, 3], np.float32))


@pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "declare", [by_tout, by_ensure_shape, by_declared_spec, by_rule, by_two_halves, by_callback]
)
def test_plain_graph_mode_checks_it_too(op: Any, declare: Any) -> None:
    function = Returns(2, 3)
    run = tf.function(declare(op, function))
    assert run(X).shape == [2, 3]
    function.shape = (2, 4)
    if op is tf.py_function and declare is by_tout:
        # Stock TensorFlow takes the spec, and does not look at its shape.
        assert run(X).shape == [2, 4]
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        run(X)
    function.shape = (2, 3)
    assert run(X).shape == [2, 3]


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
def test_the_static_shape_is_known_in_tracing(build: Any, op: Any) -> None:
    shapes = []

    def program(x: tf.Tensor) -> Any:
        result = by_rule(op, Returns(2, 3))(x)
        shapes.append(result.shape.as_list())
        return result

    build(program)(X)
    assert shapes == [[2, 3]]


@pytest.mark.parametrize("op", OPS)
def test_the_wrong_one_of_several_results_is_named(op: Any) -> None:
    specs = [tf.TensorSpec([i], FLOAT) for i in range(4)]
    arrays = [np.zeros(i, np.float32) for i in (0, 1, 3, 3)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"2-th value .*\(3,\).*\(2,\)"):
        jitted(lambda: op(lambda: arrays, [], specs))()


@pytest.mark.parametrize("op", OPS)
def test_more_elements_never_overflow_and_fewer_never_leave_garbage(op: Any) -> None:
    function = Returns(1_000_000)
    run = jitted(lambda: op(function, [], tf.TensorSpec([2], FLOAT)))
    for _ in range(5):
        function.shape = (1_000_000,)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\(1000000,\)"):
            run()
        function.shape = (2,)
        assert run().numpy().tolist() == [1, 1]


@pytest.mark.parametrize("build", MODES)
def test_composite_tensors_go_in_and_out(build: Any) -> None:
    def program(values: tf.Tensor) -> Any:
        ragged = tf.RaggedTensor.from_row_splits(values, [0, 1, 4])
        sparse = tf.sparse.from_dense(tf.constant([[0.0, 5.0], [6.0, 0.0]]))
        return tf.py_function(look, [ragged, sparse], tf.TensorSpec([3], tf.float32))

    def look(ragged: Any, sparse: Any) -> Any:
        assert isinstance(ragged, tf.RaggedTensor)
        assert isinstance(sparse, tf.SparseTensor)
        dense = tf.sparse.to_dense(sparse)
        return tf.stack([ragged[1, 2], dense[0, 1], tf.cast(tf.size(ragged), tf.float32)])

    result = build(program)(tf.constant([1.0, 2.0, 3.0, 4.0]))
    assert result.numpy().tolist() == [4, 5, 4]


def ragged_parts(ragged: tf.RaggedTensor) -> Any:
    return [tf.TensorSpec([4], FLOAT), tf.TensorSpec([3], tf.int64)]


@pytest.mark.parametrize("build", MODES)
def test_a_ragged_result_of_declared_parts(build: Any) -> None:
    def double(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
        return ragged * 2.0

    hostcall.declare(double, result=ragged_parts)

    def program(values: tf.Tensor) -> Any:
        ragged = tf.RaggedTensor.from_row_splits(values, tf.constant([0, 1, 4], tf.int64))
        result = tf.py_function(double, [ragged], tf.RaggedTensorSpec([2, None], FLOAT))
        return result.flat_values, result.row_splits

    values, partitions = build(program)(tf.constant([1.0, 2.0, 3.0, 4.0]))
    assert_same(
        to_numpy((values, partitions)),
        (np.array([2, 4, 6, 8], np.float32), np.array([0, 1, 4], np.int64)),
    )


@pytest.mark.parametrize("build", MODES)
def test_a_sparse_result_of_declared_parts(build: Any) -> None:
    def double(sparse: tf.SparseTensor) -> tf.SparseTensor:
        return sparse.with_values(sparse.values * 2.0)

    hostcall.declare(double, result=lambda sparse: sparse)

    def program(values: tf.Tensor) -> Any:
        sparse = tf.SparseTensor([[0, 1], [1, 0]], values, [2, 2])
        result = tf.py_function(double, [sparse], tf.SparseTensorSpec([2, 2], FLOAT))
        return result.indices, result.values, result.dense_shape

    parts = to_numpy(build(program)(X))
    assert_same(
        parts,
        (
            np.array([[0, 1], [1, 0]], np.int64),
            np.array([2, 4], np.float32),
            np.array([2, 2], np.int64),
        ),
    )


@pytest.mark.parametrize("build", MODES)
def test_a_composite_result_that_does_not_match_tout(build: Any) -> None:
    def wrong() -> Any:
        return tf.constant([1.0])

    spec = tf.RaggedTensorSpec([2, None], FLOAT)
    hostcall.declare(wrong, result=lambda: [[4], [3]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="did not match Tout"):
        build(lambda: tf.py_function(wrong, [], spec).flat_values)()
    ragged = tf.ragged.constant([[1.0], [2.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="has no len"):
        build(lambda: tf.ensure_shape(tf.py_function(lambda: ragged, [], FLOAT), [2]))()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"(?s)did not match Tout.* not a Tensor"
    ):
        build(lambda: tf.py_function(lambda: ragged, [], tf.TensorSpec([2], FLOAT)))()


# Untrue, and computed with where a graph knows the shape of a tensor.
def with_an_untrue_spec(x: tf.Tensor) -> Any:
    y = tf.py_function(lambda x: x[:1], [x], tf.TensorSpec([2], FLOAT))
    return y, tf.shape(y), tf.size(y), tf.reshape(y, [-1])


@pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")
def test_an_untrue_spec_in_the_tout_of_a_py_function_changes_nothing_in_plain_graphs() -> None:
    expected = ([1.0], [1], 1, [1.0])
    for found in (tf.function(with_an_untrue_spec)(X), with_an_untrue_spec(X)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(tf.errors.InvalidArgumentError, match="declared shape is"):
        tf.function(with_an_untrue_spec, jit_compile=True)(X)


@pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")
def test_an_untrue_shape_of_an_argument_changes_nothing_in_plain_graphs() -> None:
    def program(x: tf.Tensor) -> Any:
        y = tf.py_function(lambda x: x[:1], [x], FLOAT)
        y.set_shape([2])
        z = tf.py_function(lambda y: y * y, [y], FLOAT)
        return z, tf.gradients(z, [y, x])

    z, (of_y, of_x) = tf.function(program)(X)
    for found, expected in ((z, [1.0]), (of_y, [2.0]), (of_x, [2.0, 0.0])):
        np.testing.assert_array_equal(found, expected)
