"""Tests that our callbacks keep the promises of JAX's own about arguments and results."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hostcall.jax
from tests.support.jax.flavours import each_flavour
from tests.support.jax.helpers import X, assert_same, each_mode, failure, struct

call = hostcall.jax.call

# All dtypes that ml_dtypes has and XLA computes with on CPUs, beside those of test_call.py.
OTHER_DTYPES = [
    *(ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn),
    *(ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e8m0fnu),
    *(ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
]
each_other_dtype = pytest.mark.parametrize("dtype", OTHER_DTYPES)


def every_value(dtype: Any) -> Any:
    """All finite values of a small dtype."""
    if np.dtype(dtype).name.startswith(("int", "uint")):
        info = ml_dtypes.iinfo(dtype)
        return np.arange(int(info.min), int(info.max) + 1).astype(dtype)
    values = np.arange(16 if "float4" in np.dtype(dtype).name else 256, dtype=np.uint8).view(dtype)
    return values[np.isfinite(values.astype(np.float32))]


class Wrapped:
    """An array of somebody else's, which NumPy can read."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


@each_mode
@each_other_dtype
def test_all_values_of_small_dtypes(mode: Any, dtype: Any) -> None:
    values = every_value(dtype)
    seen = []

    def turned(v: Any) -> Any:
        seen.append(v.copy())
        return v[::-1]

    result = mode(lambda x: call(turned, x, x))(jnp.asarray(values))
    (given,) = seen
    assert_same(given, values)
    assert_same(np.asarray(result).astype(np.float32), values[::-1].astype(np.float32))
    assert result.dtype == dtype


@each_other_dtype
def test_small_dtypes_that_nothing_comes_in_by(dtype: Any) -> None:
    values = every_value(dtype)
    made = jax.jit(lambda: call(lambda: values, struct(values.shape, dtype)))()
    assert_same(np.asarray(made).astype(np.float32), values.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.int4, ml_dtypes.float4_e2m1fn])
@pytest.mark.parametrize("order", ["C", "F"])
def test_results_of_either_order(dtype: Any, order: Any) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    program = jax.jit(lambda x: call(lambda v: np.asarray(v, order=order), x, x))
    assert_same(np.asarray(program(values)).astype(int), values.astype(int))
    strided = jax.jit(lambda x: call(lambda v: np.repeat(v, 2, axis=1)[:, ::2], x, x))
    assert_same(np.asarray(strided(values)).astype(int), values.astype(int))


@each_flavour
def test_arguments_that_xla_has_transposed(flavour: Any) -> None:
    seen = []

    def note(v: Any) -> Any:
        seen.append((v.flags.c_contiguous, v.tolist()))
        return v

    rows = jnp.arange(6.0).reshape(2, 3)
    program = jax.jit(lambda x: flavour(note, struct([3, 2]), x.T).T)
    np.testing.assert_array_equal(program(rows), rows)
    assert seen == [(True, rows.T.tolist())]


@each_flavour
def test_several_results_of_which_some_are_empty(flavour: Any) -> None:
    declared = (struct([2, 0]), struct([4]), struct([3, 0], np.int32), struct([8]))

    def many(x: Any, empty: Any) -> Any:
        assert empty.shape == (0, 5)
        return np.ones([2, 0], np.float32), x, np.ones([3, 0], np.int32), np.concatenate([x, x])

    results = jax.jit(lambda x, e: flavour(many, declared, x, e))(X, jnp.zeros([0, 5]))
    assert [(y.shape, y.dtype) for y in results] == [(y.shape, y.dtype) for y in declared]
    np.testing.assert_array_equal(results[1], X)
    np.testing.assert_array_equal(results[3], np.concatenate([X, X]))


@each_flavour
def test_one_array_as_argument_and_as_several_results(flavour: Any) -> None:
    program = jax.jit(lambda x: flavour(lambda v: (v, v, v[::-1]), (x, x, x), x))
    first, second, third = program(X)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, X)
    np.testing.assert_array_equal(third, X[::-1])


def test_structures_with_none() -> None:
    def nested(pair: Any) -> Any:
        assert pair[1] is None
        return {"y": [pair[0]], "none": None}

    called = jax.jit(lambda x: call(nested, {"y": [x], "none": None}, [x, None]))(X)
    assert called["none"] is None
    np.testing.assert_array_equal(called["y"][0], X)


@each_mode
@pytest.mark.parametrize("make", [jnp.asarray, Wrapped], ids=["jax", "other"])
def test_arrays_of_other_libraries_are_results(mode: Any, make: Any) -> None:
    program = mode(lambda x: call(lambda v: make(v + np.float32(1)), x, x))
    np.testing.assert_array_equal(program(X), X + 1)


@each_flavour
def test_python_numbers_are_no_float32(flavour: Any) -> None:
    # JAX takes them where its 64 bits are off. As in TensorFlow, they have the dtypes of NumPy.
    for value, name, dtype in ((42.0, "double", np.float32), (42, "int64", np.int32)):
        program = jax.jit(lambda v=value, d=dtype: flavour(lambda: v, struct([], d)))
        try:
            assert f"is {name}, but expects" in str(failure(program))
        finally:
            jax.clear_caches()  # JAX keeps the tokens of a failed program
    with jax.enable_x64(True):
        assert int(jax.jit(lambda: flavour(lambda: 42, struct([], np.int64)))()) == 42
        assert float(jax.jit(lambda: flavour(lambda: 42.0, struct([], np.float64)))()) == 42.0


@each_flavour
def test_a_function_of_another_number_of_arguments(flavour: Any) -> None:
    program = jax.jit(lambda x: flavour(lambda: X, x, x))
    try:
        raised = failure(program, X)
    finally:
        jax.clear_caches()
    assert isinstance(hostcall.last_error(raised), TypeError)
    assert "takes 0 positional arguments but 1 was given" in str(raised)


def test_weak_types_end_at_the_call() -> None:
    y = call(lambda v: v, struct([]), 3.0)
    assert not y.weak_type
    assert (y + jnp.bfloat16(1)).dtype == np.float32


def test_a_hundred_arguments_and_results() -> None:
    numbers = [jnp.float32(i) for i in range(100)]
    program = jax.jit(lambda *args: call(lambda *v: [x * 2 for x in v], list(args), *args))
    assert [float(y) for y in program(*numbers)] == [2.0 * i for i in range(100)]
