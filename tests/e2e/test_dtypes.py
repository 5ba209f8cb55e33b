"""Every dtype that XLA and NumPy share, at every rank, goes in and out bit by bit."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from hostcall_runtime import _registry
from tests.support.device import DEVICE
from tests.support.helpers import assert_same, each_decorator, failure, jitted, plain, to_numpy

FOUR_BITS = [np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)]
WHOLE_BYTES = [
    np.dtype(dtype)
    for dtype in [
        *(np.bool_, np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16),
        *(ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz),
        *(ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e5m2fnuz),
    ]
]
if DEVICE:  # TensorFlow copies no others there
    WHOLE_BYTES = [dtype for dtype in WHOLE_BYTES if "fnuz" not in dtype.name]
DTYPES = WHOLE_BYTES if DEVICE else [*WHOLE_BYTES, *FOUR_BITS]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (3, 0), (2, 3, 2), (2, 1, 2, 2), (1, 2, 1, 2, 3)]

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def sample(dtype: np.dtype, shape: Any) -> np.ndarray:
    """Values of every kind that the dtype has: the ends of its range, all sorts of NaN."""
    if dtype == np.bool_:
        return np.resize([True, False, False], shape)
    if dtype in FOUR_BITS or dtype.kind in "iu":
        info = ml_dtypes.iinfo(dtype)
        values = np.array([int(info.min), int(info.max), 0, 1, 3, 5, 7], object)
        return np.resize(values.astype(dtype), shape)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.random.default_rng(0).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)


def shaped(tensor: tf.Tensor, shape: Any) -> tf.Tensor:
    tensor.set_shape(shape)
    return tensor


def made_inside(value: np.ndarray) -> tf.Tensor:
    """The value, as something that the program does not get as an argument."""
    if "fnuz" not in value.dtype.name:
        return tf.constant(value)
    # TensorFlow's graphs cannot hold constants of these.
    return shaped(tf.numpy_function(lambda: value, [], value.dtype), value.shape)


def checked_inside(tensor: tf.Tensor, expected: np.ndarray) -> tf.Tensor:
    """A flag that tells whether a callback sees the expected bits.

    For what cannot leave a compiled program: TensorFlow takes the packed int4 values that XLA
    returns for unpacked ones.
    """

    def check(array: Any) -> Any:
        assert_same(array, expected)
        return np.True_

    return tf.ensure_shape(tf.numpy_function(check, [tensor], tf.bool), [])


@pytest.mark.cpu("some dtypes are tested there alone")
def test_every_dtype_of_the_runtime_is_tested() -> None:
    in_tensorflow = set()
    for number, dtype, _ in _registry.DTYPES:
        if number >= 60:  # ours, for JAX's: TensorFlow compiles nothing of these
            continue
        try:
            tf.as_dtype(dtype)
        except TypeError:
            continue
        in_tensorflow.add(np.dtype(dtype))
    assert in_tensorflow == set(DTYPES)


@each_decorator
@pytest.mark.parametrize("dtype", WHOLE_BYTES, ids=str)
def test_goes_in_and_out_bit_by_bit(op: Any, dtype: np.dtype) -> None:
    seen = []

    def look(*arrays: Any) -> Any:
        seen.extend(to_numpy(arrays))
        return arrays

    def program(*tensors: tf.Tensor) -> Any:
        results = op(look, tensors, [dtype] * len(tensors))
        return [shaped(r, t.shape) for r, t in zip(results, tensors, strict=True)]

    values = [sample(dtype, shape) for shape in SHAPES]
    results = to_numpy(jitted(program)(*map(tf.constant, values)))
    assert_same(seen, values)
    assert_same(results, values)


@each_decorator
@each_dtype
def test_goes_from_callback_to_callback_bit_by_bit(op: Any, dtype: np.dtype) -> None:
    values = [sample(dtype, shape) for shape in SHAPES]
    large = sample(dtype, (100_001,))  # a size that a wrong width could not hide
    table = sample(dtype, (3, 5))  # which the program transposes, and the callback back again

    def program() -> Any:
        made = [*map(made_inside, values), shaped(op(lambda: large, [], dtype), large.shape)]
        made.append(tf.transpose(made_inside(table)))
        results = zip(
            op(lambda *arrays: [*arrays[:-1], to_numpy(arrays[-1]).T], made, [dtype] * len(made)),
            [*values, large, table],
            strict=True,
        )
        return [checked_inside(tf.identity(shaped(r, v.shape)), v) for r, v in results]

    assert all(flag.numpy() for flag in jitted(program)())


@each_dtype
def test_functions_get_what_they_get_without_xla(dtype: np.dtype) -> None:
    def program(seen: list[Any]) -> Any:
        def look(scalar: Any, *arrays: Any) -> Any:
            assert all(array.flags.writeable and array.flags.aligned for array in arrays)
            seen.extend((type(array), array.dtype, array.tolist()) for array in (scalar, *arrays))
            return np.int32(0)

        def call() -> tf.Tensor:
            inputs = [made_inside(np.ones(shape, dtype)) for shape in [(), (2,), (2, 2)]]
            return shaped(tf.numpy_function(look, inputs, tf.int32), [])

        return call

    compiled: list[Any] = []
    expected: list[Any] = []
    jitted(program(compiled))()
    plain(program(expected))()
    assert compiled == expected


@pytest.mark.parametrize("declared", DTYPES, ids=str)
def test_another_dtype_is_the_error_that_it_is_in_plain_graphs(declared: np.dtype) -> None:
    returned: list[np.dtype] = []

    def program() -> tf.Tensor:
        other = tf.numpy_function(lambda: sample(returned[-1], (2,)), [], declared)
        return checked_inside(shaped(other, [2]), sample(declared, (2,)))

    def named(run: Any) -> list[tuple[str, str]]:
        error = failure(run)
        assert isinstance(error, tf.errors.InvalidArgumentError)
        assert "0-th value returned by" in str(error)
        return re.findall(r"is (\w+), but expects (\w+)", str(error))

    run, stock = jitted(program), plain(program)
    for dtype in DTYPES:
        returned.append(dtype)
        if dtype == declared:
            assert run().numpy()
        else:
            expected = named(stock)
            assert len(expected) == 1
            assert named(run) == expected
