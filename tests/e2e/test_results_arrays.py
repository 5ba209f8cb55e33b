"""contract.md, "Results": declared shapes, whose memory is whose, and what no tensor can hold."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    MODES,
    Returns,
    assert_equal,
    assert_same,
    assert_says,
    each_op,
    failure,
    jitted,
    plain,
    returning,
    to_numpy,
)

FLOAT = tf.float32
SPEC = tf.TensorSpec([2, None], FLOAT)
Program = Callable[[tf.Tensor], Any]


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


def by_declaring(result: Any) -> Callable[[Any, Any], Program]:
    def declare(op: Any, function: Any) -> Program:
        hostcall.declare(function, result=result)
        return lambda x: op(function, [x], FLOAT)

    return declare


by_spec = by_declaring(tf.TensorSpec([2, 3], FLOAT))
by_shape = by_declaring([2, 3])
by_rule = by_declaring(lambda x: tf.TensorSpec([x.shape[0], 3], x.dtype))


def by_two_halves(op: Any, function: Any) -> Program:
    hostcall.declare(function, result=tf.TensorSpec([None, 3], FLOAT))
    return lambda x: op(function, [x], SPEC)


def by_callback(op: Any, function: Any) -> Program:
    kind: Any = "eager" if op is tf.py_function else "numpy"
    return hostcall.callback(function, result=tf.TensorSpec([2, 3], FLOAT), kind=kind)


WAYS = [
    *(by_tout, by_set_shape, by_ensure_shape, by_spec, by_shape),
    *(by_rule, by_two_halves, by_callback),
]
X = tf.constant([1.0, 2.0])
# Plain graphs check the half of the shape that is declared.
HALF_BELIEVED = (tf.py_function, by_two_halves, (3, 3))
on_the_cpu = pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")


@pytest.mark.pairwise
@pytest.mark.parametrize("mode", [jitted, pytest.param(plain, marks=on_the_cpu)])
@each_op
@pytest.mark.parametrize("declare", WAYS)
def test_a_declared_shape_is_used_and_checked(mode: Any, op: Any, declare: Any) -> None:
    # Plain graphs believe a `set_shape`, and those of stock TensorFlow the spec of a py_function.
    believing = [by_set_shape, by_tout] if op is tf.py_function else [by_set_shape]
    function = Returns(2, 3)
    run = mode(declare(op, function))
    assert run(X).shape == [2, 3]
    for wrong in [(2, 4), (3, 3), (3, 2), (6,), (), (2, 0), (2, 3, 1)]:
        function.shape = wrong
        unseen = declare in believing or (op, declare, wrong) == HALF_BELIEVED
        if mode is plain and unseen:
            assert run(X).shape == wrong
            continue
        error = failure(run, X)
        assert isinstance(error, tf.errors.InvalidArgumentError)
        declared = f"has shape {wrong}, but its declared shape is (2, 3)"
        said = ["0-th value returned by pyfunc_", declared] if mode is jitted else ["shape"]
        assert_says(error, *said)
    function.shape = (2, 3)
    assert_same(run(X).numpy(), function())


@each_op
def test_the_wrong_one_of_several_results_is_named(op: Any) -> None:
    specs = [tf.TensorSpec([i], FLOAT) for i in range(4)]
    arrays = [np.zeros(i, np.float32) for i in (0, 1, 3, 3)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"2-th value .*\(3,\).*\(2,\)"):
        jitted(lambda: op(lambda: arrays, [], specs))()


@pytest.mark.parametrize("build", MODES)
def test_composite_tensors_go_in_and_out(build: Any) -> None:
    parts = [tf.TensorSpec([4], FLOAT), tf.TensorSpec([3], tf.int64)]
    double = hostcall.declare(lambda ragged: ragged * 2.0, result=lambda ragged: parts)

    def scaled(sparse: tf.SparseTensor, ragged: tf.RaggedTensor) -> tf.SparseTensor:
        return sparse.with_values(sparse.values * ragged[0, 0])

    hostcall.declare(scaled, result=lambda sparse, ragged: sparse)

    def program(values: tf.Tensor) -> Any:
        ragged = tf.RaggedTensor.from_row_splits(values, tf.constant([0, 1, 4], tf.int64))
        rows = tf.py_function(double, [ragged], tf.RaggedTensorSpec([2, None], FLOAT))
        sparse = tf.SparseTensor([[0, 1], [1, 0], [1, 1], [2, 2]], values, [3, 3])
        result = tf.py_function(scaled, [sparse, rows], tf.SparseTensorSpec([3, 3], FLOAT))
        return rows.flat_values, rows.row_splits, result.indices, result.values, result.dense_shape

    twos = np.array([2, 4, 6, 8], np.float32)
    indices, shape = np.array([[0, 1], [1, 0], [1, 1], [2, 2]]), np.array([3, 3])
    found = to_numpy(build(program)(tf.constant([1.0, 2.0, 3.0, 4.0])))
    assert_same(found, (twos, np.array([0, 1, 4]), indices, twos, shape))


@pytest.mark.parametrize("build", MODES)
def test_a_composite_result_that_does_not_match_tout(build: Any) -> None:
    def wrong() -> Any:
        return tf.constant([1.0])

    spec = tf.RaggedTensorSpec([2, None], FLOAT)
    hostcall.declare(wrong, result=lambda: [[4], [3]])
    error = failure(build(lambda: tf.py_function(wrong, [], spec).flat_values))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error, "did not match Tout")
    ragged, spec = tf.ragged.constant([[1.0], [2.0]]), tf.TensorSpec([2], FLOAT)
    error = failure(build(lambda: tf.py_function(lambda: ragged, [], spec)))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error, "did not match Tout", "not a Tensor")


# Untrue, and computed with where a graph knows the shape of a tensor.
def with_an_untrue_spec(x: tf.Tensor) -> Any:
    y = tf.py_function(lambda x: x[:1], [x], tf.TensorSpec([2], FLOAT))
    return y, tf.shape(y), tf.size(y), tf.reshape(y, [-1])


@on_the_cpu
def test_an_untrue_spec_in_the_tout_of_a_py_function_changes_nothing_in_plain_graphs() -> None:
    expected = [np.array(value) for value in ([1.0], [1], 1, [1.0])]
    for found in (tf.function(with_an_untrue_spec)(X), with_an_untrue_spec(X)):
        assert_equal(found, expected)
    with pytest.raises(tf.errors.InvalidArgumentError, match="declared shape is"):
        tf.function(with_an_untrue_spec, jit_compile=True)(X)


@on_the_cpu
def test_an_untrue_shape_of_an_argument_changes_nothing_in_plain_graphs() -> None:
    def program(x: tf.Tensor) -> Any:
        y = tf.py_function(lambda x: x[:1], [x], FLOAT)
        y.set_shape([2])
        z = tf.py_function(lambda y: y * y, [y], FLOAT)
        return z, tf.gradients(z, [y, x])

    z, (of_y, of_x) = tf.function(program)(X)
    assert_equal([z, of_y, of_x], [np.array([1.0]), np.array([2.0]), np.array([2.0, 0.0])])


# contract.md, "Results": whose memory is whose, and very many results.


SIZES = [3, 1000, 300_000]


def shaped(results: Any, size: int) -> Any:
    return tf.nest.map_structure(lambda tensor: tf.ensure_shape(tensor, [size]), results)


@pytest.mark.each_value
@pytest.mark.parametrize("build", MODES)
@each_op
@pytest.mark.parametrize("size", SIZES)
def test_inputs_as_results(build: Any, op: Any, size: int) -> None:
    """One as several results, whole and in views that overlap, and two crosswise."""

    def views(x: Any, y: Any) -> Any:
        return [x[1:], x[:-1], x[::-1][1:], y[1:], x[1:]]

    def program(x: tf.Tensor, y: tf.Tensor) -> Any:
        same = shaped(op(lambda a: a, [x], FLOAT), size)
        a, b, c = shaped(op(lambda a: [a, a, a], [x * 1.0], [FLOAT] * 3), size)
        parts = shaped(op(views, [x, x * 2.0], [FLOAT] * 5), size - 1)
        for _ in range(3):
            x, y = shaped(op(lambda a, b: [b, a], [x, y], [FLOAT] * 2), size)
        return same, same + 1.0, a * 1.0, b * 2.0, c * 3.0, [part * 1.0 for part in parts], x, y

    run = build(program)
    for step in range(3):
        x = np.arange(size, dtype=np.float32) + step
        expected = [x[1:], x[:-1], x[::-1][1:], 2 * x[1:], x[1:]]
        results = to_numpy(run(tf.constant(x), tf.constant(-x)))
        assert_same(results, (x, x + 1, x, x * 2, x * 3, expected, -x, x))


@each_op
@pytest.mark.parametrize("size", SIZES)
def test_an_array_returned_again_and_again_is_never_written_to(op: Any, size: int) -> None:
    mine = np.arange(size, dtype=np.float32)
    mine.flags.writeable = False
    expected = mine.copy()

    def program(x: tf.Tensor) -> Any:
        y = shaped(op(lambda: mine, [], FLOAT), size)
        # What XLA computes it may compute in the memory of its operands.
        for _ in range(5):
            y = tf.reverse(y, [0]) * x + y
        return y

    run = jitted(program)
    first = run(tf.constant(2.0)).numpy()
    for step in range(20):
        run(tf.constant(float(step)))
        assert_same(mine, expected)
    assert_same(run(tf.constant(2.0)).numpy(), first)


@each_op
@pytest.mark.parametrize("size", SIZES)
def test_kept_results_and_arguments_stay_as_they_were(op: Any, size: int) -> None:
    kept = []

    def keep(x: Any, computed: Any) -> Any:
        result = x * np.float32(2)
        kept.append((x, computed, result))
        return result

    run = jitted(lambda x: shaped(op(keep, [x, x * 3.0], FLOAT), size) + 1.0)
    for step in range(40):
        assert (run(tf.fill([size], float(step))).numpy() == 2 * step + 1).all()
    assert len(kept) == 40
    for step, (x, computed, result) in enumerate(kept):
        assert (np.asarray(x) == step).all()
        assert (np.asarray(computed) == 3 * step).all()
        assert (np.asarray(result) == 2 * step).all()


@each_op
def test_a_result_may_change_after_the_call(op: Any) -> None:
    mine = np.zeros(4, np.float32)

    def count_up() -> Any:
        mine[:] += 1
        return mine

    def program() -> Any:
        first = shaped(op(count_up, [], FLOAT), 4)
        with tf.control_dependencies([first]):
            second = shaped(op(lambda x: x * np.float32(10), [first], FLOAT), 4)
        return first, second

    run = jitted(program)
    results = [run() for _ in range(5)]
    for step, (first, second) in enumerate(results, 1):
        assert first.numpy().tolist() == [step] * 4
        assert second.numpy().tolist() == [10 * step] * 4


@each_op
@pytest.mark.parametrize("count", [1, 700])
def test_hundreds_of_operands_and_results(op: Any, count: int) -> None:
    dtypes = [np.float32, np.int8, np.complex128, np.bool_, np.float16, np.uint64]
    rng = np.random.default_rng(0)
    values: list[np.ndarray] = [
        rng.integers(0, 2, rng.integers(0, 4, i % 5)).astype(dtypes[i % len(dtypes)])
        for i in range(count)
    ]

    def program(*tensors: tf.Tensor) -> Any:
        results = op(lambda *arrays: arrays[::-1], tensors, [v.dtype for v in reversed(values)])
        shapes = [value.shape for value in reversed(values)]
        return [tf.ensure_shape(y, shape) for y, shape in zip(results, shapes, strict=True)]

    assert_same(to_numpy(jitted(program)(*map(tf.constant, values))), values[::-1])


# What no tensor can hold of what a function may return, and what NumPy can convert.


def test_an_array_of_objects_is_shown_in_a_sentence() -> None:
    objects = np.array([object(), None])
    program = jitted(returning(tf.numpy_function, lambda: [objects], [FLOAT], [[2]]))
    with pytest.raises(tf.errors.InternalError, match=r"dtype=object\). This is tf\.numpy_func"):
        program()
