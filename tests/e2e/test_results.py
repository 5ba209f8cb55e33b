"""contract.md, "Results": what a function may return and what becomes of it."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    MODES,
    NUMPY_OPS,
    OPS,
    assert_same,
    each_op,
    gradient_of,
    jitted,
    returning,
    stateless_py_func,
    to_numpy,
)

X = tf.constant([1.0, 2.0])
FLOAT = tf.float32
InvalidArgumentError = tf.errors.InvalidArgumentError


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", NUMPY_OPS)
def test_numpy_function_is_strict_on_dtypes(build: Any, op: Any) -> None:
    values = [np.array([1], np.float32), np.array([1], np.float64)]
    program = returning(op, lambda: values, [FLOAT, FLOAT], [[1], [1]])
    said = r"1-th value returned by pyfunc_\w+ is double, but expects float"
    with pytest.raises(InvalidArgumentError, match=said):
        build(program)()


# Of too many values a py_function takes the first ones.
TOO_MANY = [([1.0] * 3, 2), ([1.0] * 2, 1)]
WRONG_COUNTS = [
    (op, *counts)
    for op in OPS
    for counts in [([], 2), ([1.0], 2), (1.0, 2), *(TOO_MANY if op in NUMPY_OPS else [])]
]


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize(("op", "returned", "expected"), WRONG_COUNTS)
def test_a_wrong_count_tells_both_numbers(
    build: Any, op: Any, returned: Any, expected: int
) -> None:
    program = returning(op, lambda: returned, [FLOAT] * expected, [[]] * expected)
    count = len(returned) if isinstance(returned, list) else 1
    said = rf"pyfunc_\w+ returns {count} values, but expects to see {expected} values"
    with pytest.raises(InvalidArgumentError, match=said):
        build(program)()


def spearman(x: Any) -> Any:
    return tuple(scipy.stats.spearmanr(x, x[::-1]))


@pytest.mark.parametrize("build", MODES)
def test_a_py_function_takes_the_first_of_too_many_values(build: Any) -> None:
    def program(x: tf.Tensor) -> Any:
        one = tf.py_function(spearman, [x], FLOAT)
        (alone,) = tf.py_function(spearman, [x], [FLOAT])
        two = tf.py_function(lambda x: (x, 2, "text", None), [x], (FLOAT, tf.int32))
        by_spec = tf.py_function(lambda x: [x, object()], [x], tf.TensorSpec([2], FLOAT))
        ignored = tf.py_function(lambda x: [x, x], [x], [])
        with tf.control_dependencies([ignored] if isinstance(ignored, tf.Operation) else []):
            for tensor, shape in ((one, []), (alone, []), (two[0], [2]), (two[1], [])):
                tensor.set_shape(shape)
            return one, alone, *two, by_spec

    results = to_numpy(build(program)(X))
    assert_same(results, (*map(np.float32, (-1.0, -1.0)), X.numpy(), np.int32(2), X.numpy()))


@pytest.mark.parametrize("build", MODES)
def test_a_py_function_has_the_gradient_of_what_is_taken(build: Any) -> None:
    def square(x: tf.Tensor) -> Any:
        y = tf.py_function(lambda x: (x * x, x), [x], FLOAT)
        y.set_shape([2])
        return y

    np.testing.assert_array_equal(build(lambda x: gradient_of(square, x))(X), 2.0 * X)


def test_a_callback_returns_neither_more_nor_fewer_values() -> None:
    spec = tf.TensorSpec([2], FLOAT)
    for kind in ("numpy", "eager"):
        for returned in (lambda x: (x, x), lambda x: ()):
            call = hostcall.callback(returned, result=spec, kind=kind)
            for build in MODES:
                with pytest.raises(InvalidArgumentError, match="values, but expects to see 1 "):
                    build(call)(X)


@pytest.mark.parametrize("build", MODES)
@each_op
def test_none_with_tout_set_is_an_error(build: Any, op: Any) -> None:
    for tout in (FLOAT, [FLOAT]):
        # XLA needs no call to know an empty tensor, where the call has no side effect.
        for shape in [[], [2]] if op is stateless_py_func else [[], [0], [2]]:
            with pytest.raises(InvalidArgumentError, match="returns 0 values, but expects"):
                build(returning(op, lambda: None, tout, [shape]))()


@pytest.mark.parametrize("build", MODES)
@each_op
def test_an_empty_tout_with_none_runs_and_gives_nothing(build: Any, op: Any) -> None:
    ran = []

    def program(x: tf.Tensor) -> tf.Tensor:
        op(lambda a: ran.append(a), [x], [])
        return x

    result = build(program)(X)
    assert result is not None
    if op is stateless_py_func:
        return  # a stateless op whose results are not used need not run
    assert len(ran) == 1


@pytest.mark.parametrize("build", MODES)
@each_op
def test_a_value_with_an_empty_tout_is_an_error(build: Any, op: Any) -> None:
    if op is stateless_py_func:
        pytest.skip("a stateless op without results is never run")

    def program(x: tf.Tensor) -> tf.Tensor:
        op(lambda a: a, [x], [])
        return x

    # As in stock TensorFlow.
    error, text = InvalidArgumentError, "returns 1 values, but expects to see 0 values"
    if op is tf.py_function:
        error, text = tf.errors.UnknownError, "IndexError: list index out of range"
    with pytest.raises(error, match=text):
        build(program)(X)


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v]])
def test_a_returned_variable_is_an_error_that_says_so(build: Any, wrap: Any) -> None:
    variable = tf.Variable([1.0, 2.0])
    program = returning(tf.py_function, lambda: wrap(variable), FLOAT, [[2]])
    with pytest.raises(tf.errors.UnknownError, match="Attempting to return a variable"):
        build(program)()


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, FLOAT, np.float32(3)),
        (2.5, tf.float64, np.float64(2.5)),
        (True, tf.bool, np.True_),
        (2 - 1j, tf.complex64, np.complex64(2 - 1j)),
        ([[1, 2], [3, 4]], tf.int8, np.array([[1, 2], [3, 4]], np.int8)),
        (np.array([1.5, 2.5], np.float64), FLOAT, np.array([1.5, 2.5], np.float32)),
        (np.int64(7), tf.uint8, np.uint8(7)),
        (range(3), tf.int32, np.array([0, 1, 2], np.int32)),
        (np.array([1.5, 2.5], np.float64), tf.bfloat16, None),
    ],
    ids=str,
)
def test_py_function_converts_python_and_numpy_values(
    build: Any, value: Any, dtype: tf.DType, expected: Any
) -> None:
    if expected is None:
        expected = np.asarray(value).astype(dtype.as_numpy_dtype)
    program = returning(tf.py_function, lambda: [value], [dtype], [np.shape(expected)])
    assert_same(to_numpy(build(program)()), [np.asarray(expected)])


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize(
    "value", [tf.constant([1.0, 2.0], tf.float64), tf.constant([1, 2]), 2.5, "text", b"bytes"]
)
def test_py_function_does_not_convert_what_would_lose(build: Any, value: Any) -> None:
    dtype = tf.int32 if isinstance(value, float) else FLOAT
    with pytest.raises(InvalidArgumentError, match=r"conver|Cannot"):
        build(returning(tf.py_function, lambda: [value], [dtype], [np.shape(value)]))()


def layouts() -> dict[str, np.ndarray]:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    unaligned = np.frombuffer(b"x" + base.tobytes(), np.uint8)[1:].view(np.float32)
    record = np.zeros(4, [("pad", np.int8), ("value", np.float32)])
    record["value"] = [1, 2, 3, 4]
    return {
        "c": base,
        "fortran": np.asfortranarray(base),
        "transposed": base.transpose(2, 0, 1),
        "strided": base[:, ::2, 1::2],
        "reversed": base[::-1, :, ::-1],
        "broadcast": np.broadcast_to(base[0, 0], (3, 4)),
        "zero strides": np.lib.stride_tricks.as_strided(base, (5,), (0,)),
        "unaligned": unaligned,
        "field": record["value"],
        "read-only": np.frombuffer(base.tobytes(), np.float32),
        "big-endian": base.astype(">f4"),
        "big-endian strided": base.astype(">f4")[:, ::-2],
        "big-endian rank 0": np.array(2.5, ">f4"),
        "rank 0": np.array(2.5, np.float32),
        "scalar": np.float32(2.5),
        "zero size": base[:, :0],
        "zero size fortran": np.asfortranarray(np.zeros([0, 3], np.float32)),
        "one": base[:1, :1, :1],
        "masked": np.ma.masked_array(base[0], mask=False),
        "matrix": base[0].view(np.matrix),
        "subclass": base[0].view(np.recarray),
    }


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("build", MODES)
@each_op
def test_every_layout_arrives_right(build: Any, op: Any) -> None:
    values = layouts()
    shapes = [value.shape for value in values.values()]
    program = returning(op, lambda: list(values.values()), [FLOAT] * len(values), shapes)
    results = dict(zip(values, to_numpy(build(program)()), strict=True))
    for name, value in values.items():
        assert_same({name: results[name]}, {name: np.array(value, np.float32, order="C")})
    # And alone, for a lone value takes another way.
    for value in values.values():
        alone = build(returning(op, lambda value=value: value, FLOAT, [value.shape]))
        assert_same(to_numpy(alone()), [np.array(value, np.float32, order="C")])


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", NUMPY_OPS)
@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (2.5, tf.float64, ()),
        (7, tf.int64, ()),
        (True, tf.bool, ()),
        (1j, tf.complex128, ()),
        ([[1.0, 2.0], [3.0, 4.0]], tf.float64, (2, 2)),
        (((1, 2, 3),), tf.int64, (1, 3)),
        ([np.float32(1), np.float32(2)], FLOAT, (2,)),
        (X, FLOAT, (2,)),
        (memoryview(b"ab"), tf.uint8, (2,)),
    ],
)
def test_lists_and_scalars_are_results(
    build: Any, op: Any, value: Any, dtype: Any, shape: Any
) -> None:
    results = to_numpy(build(returning(op, lambda: [value], [dtype], [shape]))())
    assert_same(results, [np.asarray(value, dtype.as_numpy_dtype)])


@each_op
@pytest.mark.parametrize("dtype", [FLOAT, tf.int32, tf.bfloat16])
@pytest.mark.parametrize("value", [[], [[]]])
def test_an_empty_list_takes_the_declared_dtype(op: Any, dtype: Any, value: Any) -> None:
    (result,) = jitted(returning(op, lambda: value, dtype, [[0]]))()
    assert result.dtype == dtype
    assert result.shape == [0]
