"""contract.md, "Results": declared shapes, whose memory is whose, and what no tensor can hold."""

import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.unchanged_results import Convertible
from tests.support.helpers import (
    MODES,
    NUMPY_OPS,
    Returns,
    assert_equal,
    assert_same,
    assert_says,
    each_op,
    failure,
    jitted,
    outcome,
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
    kind = "eager" if op is tf.py_function else "numpy"
    return hostcall.callback(function, result=tf.TensorSpec([2, 3], FLOAT), kind=kind)


WAYS = [
    *(by_tout, by_set_shape, by_ensure_shape, by_spec, by_shape),
    *(by_rule, by_two_halves, by_callback),
]
X = tf.constant([1.0, 2.0])


@each_op
@pytest.mark.parametrize("declare", WAYS)
def test_a_declared_shape_is_used_and_checked(op: Any, declare: Any) -> None:
    function = Returns(2, 3)
    run = jitted(declare(op, function))
    assert run(X).shape == [2, 3]
    for wrong in [(2, 4), (3, 3), (3, 2), (6,), (), (2, 0), (2, 3, 1)]:
        function.shape = wrong
        error = failure(run, X)
        assert isinstance(error, tf.errors.InvalidArgumentError)
        declared = f"has shape {wrong}, but its declared shape is (2, 3)"
        assert_says(error, "0-th value returned by pyfunc_", declared)
    function.shape = (2, 3)
    assert_same(run(X).numpy(), function())


@pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")
@each_op
@pytest.mark.parametrize(
    "declare", [by_tout, by_ensure_shape, by_spec, by_rule, by_two_halves, by_callback]
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


@each_op
def test_the_wrong_one_of_several_results_is_named(op: Any) -> None:
    specs = [tf.TensorSpec([i], FLOAT) for i in range(4)]
    arrays = [np.zeros(i, np.float32) for i in (0, 1, 3, 3)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"2-th value .*\(3,\).*\(2,\)"):
        jitted(lambda: op(lambda: arrays, [], specs))()


@each_op
def test_more_elements_never_overflow_and_fewer_never_leave_garbage(op: Any) -> None:
    function = Returns(1_000_000)
    run = jitted(lambda: op(function, [], tf.TensorSpec([2], FLOAT)))
    for _ in range(5):
        function.shape = (1_000_000,)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\(1000000,\)"):
            run()
        function.shape = (2,)
        assert run().numpy().tolist() == [0, 1]


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


@pytest.mark.parametrize("build", MODES)
def test_a_ragged_result_of_declared_parts(build: Any) -> None:
    parts = [tf.TensorSpec([4], FLOAT), tf.TensorSpec([3], tf.int64)]
    double = hostcall.declare(lambda ragged: ragged * 2.0, result=lambda ragged: parts)

    def program(values: tf.Tensor) -> Any:
        ragged = tf.RaggedTensor.from_row_splits(values, tf.constant([0, 1, 4], tf.int64))
        result = tf.py_function(double, [ragged], tf.RaggedTensorSpec([2, None], FLOAT))
        return result.flat_values, result.row_splits

    found = to_numpy(build(program)(tf.constant([1.0, 2.0, 3.0, 4.0])))
    assert_same(found, (np.array([2, 4, 6, 8], np.float32), np.array([0, 1, 4])))


@pytest.mark.parametrize("build", MODES)
def test_a_sparse_result_of_declared_parts(build: Any) -> None:
    def double(sparse: tf.SparseTensor) -> tf.SparseTensor:
        return sparse.with_values(sparse.values * 2.0)

    hostcall.declare(double, result=lambda sparse: sparse)

    def program(values: tf.Tensor) -> Any:
        sparse = tf.SparseTensor([[0, 1], [1, 0]], values, [2, 2])
        result = tf.py_function(double, [sparse], tf.SparseTensorSpec([2, 2], FLOAT))
        return result.indices, result.values, result.dense_shape

    indices, shape = np.array([[0, 1], [1, 0]]), np.array([2, 2])
    assert_same(to_numpy(build(program)(X)), (indices, np.array([2, 4], np.float32), shape))


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
    expected = [np.array(value) for value in ([1.0], [1], 1, [1.0])]
    for found in (tf.function(with_an_untrue_spec)(X), with_an_untrue_spec(X)):
        assert_equal(found, expected)
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
    assert_equal([z, of_y, of_x], [np.array([1.0]), np.array([2.0]), np.array([2.0, 0.0])])


# contract.md, "Results": whose memory is whose, and very many results.


SIZES = [3, 1000, 300_000]


def shaped(results: Any, size: int) -> Any:
    return tf.nest.map_structure(lambda tensor: tf.ensure_shape(tensor, [size]), results)


@pytest.mark.parametrize("build", MODES)
@each_op
@pytest.mark.parametrize("size", SIZES)
def test_the_input_itself_as_a_result(build: Any, op: Any, size: int) -> None:
    def program(x: tf.Tensor) -> Any:
        y = shaped(op(lambda a: a, [x], FLOAT), size)
        return y, y + 1.0, x + 1.0

    x = np.arange(size, dtype=np.float32)
    run = build(program)
    for step in range(3):
        results = run(tf.constant(x + step))
        assert_same(to_numpy(results), (x + step, x + step + 1, x + step + 1))


@pytest.mark.parametrize("build", MODES)
@each_op
@pytest.mark.parametrize("size", SIZES)
def test_the_same_array_as_several_results(build: Any, op: Any, size: int) -> None:
    def program(x: tf.Tensor) -> Any:
        a, b, c = shaped(op(lambda a: [a, a, a], [x], [FLOAT] * 3), size)
        return a * 1.0, b * 2.0, c * 3.0

    x = np.arange(size, dtype=np.float32)
    assert_same(to_numpy(build(program)(tf.constant(x))), (x, x * 2, x * 3))


@pytest.mark.parametrize("build", MODES)
@each_op
def test_views_of_the_input_that_overlap(build: Any, op: Any) -> None:
    def views(x: Any, y: Any) -> Any:
        return [x[1:], x[:-1], x[::-1][1:], y[1:], x[1:]]

    def program(x: tf.Tensor) -> Any:
        results = op(views, [x, x * 2.0], [FLOAT] * 5)
        return [tf.identity(result) for result in shaped(results, 5)]

    x = np.arange(6, dtype=np.float32)
    expected = [x[1:], x[:-1], x[::-1][1:], 2 * x[1:], x[1:]]
    assert_same(to_numpy(build(program)(tf.constant(x))), expected)


@pytest.mark.parametrize("build", MODES)
@each_op
def test_inputs_returned_crosswise(build: Any, op: Any) -> None:
    def program(x: tf.Tensor, y: tf.Tensor) -> Any:
        for _ in range(3):
            x, y = shaped(op(lambda a, b: [b, a], [x, y], [FLOAT] * 2), 4)
        return x, y

    x = np.arange(4, dtype=np.float32)
    assert_same(to_numpy(build(program)(tf.constant(x), tf.constant(-x))), (-x, x))


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
@pytest.mark.parametrize("count", [1, 2, 300, 700])
def test_hundreds_of_operands_and_results(op: Any, count: int) -> None:
    def turn(*arrays: Any) -> Any:
        return [a + np.float32(i) for i, a in enumerate(reversed(arrays))]

    def program(*tensors: tf.Tensor) -> Any:
        return shaped(op(turn, tensors, [FLOAT] * count), 2)

    values = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    results = jitted(program)(*map(tf.constant, values))
    assert_same(to_numpy(results), turn(*values))


@each_op
def test_hundreds_of_results_of_many_dtypes_and_shapes(op: Any) -> None:
    dtypes = [np.float32, np.int8, np.complex128, np.bool_, np.float16, np.uint64]
    rng = np.random.default_rng(0)
    values: list[np.ndarray] = [
        rng.integers(0, 2, rng.integers(0, 4, i % 5)).astype(dtypes[i % len(dtypes)])
        for i in range(300)
    ]

    def program(*tensors: tf.Tensor) -> Any:
        results = op(lambda *arrays: arrays[::-1], tensors, [v.dtype for v in reversed(values)])
        for result, value in zip(results, reversed(values), strict=True):
            result.set_shape(value.shape)
        return results

    assert_same(to_numpy(jitted(program)(*map(tf.constant, values))), values[::-1])


# What no tensor can hold of what a function may return, and what NumPy can convert.

UNSUPPORTED = {
    "objects": np.array([object(), object()]),
    "strings": np.array(["a", "b"]),
    "bytes": np.array([b"a", b"b"]),
    "dates": np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"),
    "durations": np.array([1, 2], "timedelta64[s]"),
    "records": np.zeros(2, [("a", np.float32)]),
    "long doubles": np.zeros(2, np.longdouble),
    "dict": {"a": 1},
    "set": {1, 2},
    "generator": (i for i in range(2)),
    "ragged list": [[1.0], [1.0, 2.0]],
    "class": object,
}


@pytest.mark.parametrize("op", NUMPY_OPS)
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_values_fail_as_without_xla(op: Any, name: str) -> None:
    value = UNSUPPORTED[name]
    program = returning(op, lambda: [value], [FLOAT], [[2]])
    expected = outcome(plain(program))
    assert issubclass(expected, tf.errors.OpError)
    assert outcome(jitted(program)) is expected


def test_an_array_of_objects_is_shown_in_a_sentence() -> None:
    objects = np.array([object(), None])
    program = jitted(returning(tf.numpy_function, lambda: [objects], [FLOAT], [[2]]))
    with pytest.raises(tf.errors.InternalError, match=r"dtype=object\). This is tf\.numpy_func"):
        program()


class Own:
    pass


OBJECTS: dict[str, Callable[[], Any]] = {
    "Own": Own,
    "object": object,
    "dict": dict,
    "datetime.date": lambda: datetime.date(2020, 1, 1),
    "Fraction": lambda: fractions.Fraction(1, 2),
    "decimal.Decimal": lambda: decimal.Decimal(1),
    "int": lambda: 2**70,
    "NoneType": lambda: None,
    "RaggedTensor": lambda: tf.ragged.constant([[1.0], [1.0, 2.0]]),
}


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", NUMPY_OPS)
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_cannot_be_results_are_named(build: Any, op: Any, name: str) -> None:
    value = OBJECTS[name]()
    for returned in ([value], ["a", value]):
        array = np.empty(len(returned), object)
        array[:] = returned
        for result in ([value], [array]):
            program = returning(op, lambda result=result: result, [FLOAT], [[2]])
            with pytest.raises(tf.errors.InternalError, match=f"Unsupported object type {name}"):
                build(program)()


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", NUMPY_OPS)
def test_an_array_of_a_lone_none_is_no_value(build: Any, op: Any) -> None:
    program = returning(op, lambda: np.array(None), [FLOAT], [[]])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="returns 0 values, but expects to see 1 values"
    ):
        build(program)()


@pytest.mark.parametrize("name", sorted(set(UNSUPPORTED) - {"dates", "durations", "generator"}))
def test_unsupported_values_of_py_function(name: str) -> None:
    value = UNSUPPORTED[name]
    program = returning(tf.py_function, lambda: [value], [FLOAT], [[2]])
    assert_same(outcome(jitted(program)), outcome(plain(program)))


@pytest.mark.parametrize("build", MODES)
@each_op
def test_objects_that_numpy_can_convert(build: Any, op: Any) -> None:
    for array in (np.array([1, 2], np.float32), None):
        value = Convertible(array)
        run = build(returning(op, lambda value=value: value, [FLOAT], [[2]]))
        if array is not None:
            assert_same(to_numpy(run()), [array])
            continue
        with pytest.raises(tf.errors.InvalidArgumentError, match="no array today"):
            run()
