"""hostcall.native: C functions that programs call without Python."""

import ctypes
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_says, failure, jitted
from tests.support.native_code.programs import (
    NEXT,
    SCALE,
    SIZE,
    called_on,
    each_mode,
    eagerly,
    in_graphs,
    of,
    pointer,
)

X = np.array([1.0, 2.0, 3.0], np.float32)

# By tf.numpy_function, and as it is.
called = pytest.mark.parametrize("called", [called_on, lambda native: lambda x: native(x)])


@each_mode
def test_it_is_called_on_tensors_and_variables(mode: Any) -> None:
    add, variable = of("next_float32", *NEXT), tf.Variable(X)
    result = mode(lambda x: add(x) * 2.0 + add(variable))(tf.constant(X))
    assert isinstance(result, tf.Tensor)
    np.testing.assert_array_equal(result, (X + 1) * 3)


@pytest.mark.parametrize("mode", [eagerly, jax.jit])
def test_it_is_called_on_arrays_of_jax(mode: Any) -> None:
    add = of("next_float32", *NEXT)
    result = mode(lambda x: add(x) * 2)(jnp.asarray(X))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, (X + 1) * 2)


@called
def test_a_compiled_program_calls_it_by_a_call_of_its_own(called: Any) -> None:
    program = jitted(called(of("next_float32", *NEXT)))
    hlo = program.experimental_get_compiler_ir(tf.zeros([3]))(stage="hlo")
    assert 'custom_call_target="hostcall_native"' in hlo


NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@each_mode
@pytest.mark.parametrize("dtype", ["bool", *NUMBERS, "float32", "float64"])
def test_dtypes_that_c_has(mode: Any, dtype: str) -> None:
    name = "invert" if dtype == "bool" else f"next_{dtype}"
    native = of(name, pointer(dtype), pointer(dtype), SIZE)
    x = np.array([0, 1, 100], dtype)
    expected = ~x if dtype == "bool" else x + np.ones([], dtype)
    y = mode(called_on(native, tf.as_dtype(dtype)))(tf.constant(x))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(native(x), expected)


OTHERS = [np.float16, ml_dtypes.bfloat16, np.complex64, np.complex128, ml_dtypes.float8_e5m2]


@pytest.mark.pairwise
@in_graphs
@pytest.mark.parametrize("dtype", OTHERS, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("typed", [True, False], ids=["ndpointer", "void"])
def test_dtypes_that_it_has_not(mode: Any, dtype: Any, typed: bool) -> None:
    dtype = np.dtype(dtype)
    kind = np.ctypeslib.ndpointer(dtype, ndim=1) if typed else ctypes.c_void_p
    native = of(f"reverse_{dtype.itemsize}", kind, kind, SIZE)
    x = np.array([1, 2, 4], np.float32).astype(dtype)
    y = mode(called_on(native, tf.as_dtype(dtype)))(tf.constant(x))
    assert y.numpy().tobytes() == x[::-1].tobytes()


@each_mode
def test_arguments_of_rank_0(mode: Any) -> None:
    native = of("scale", *SCALE)
    program = mode(called_on(native, tf.float32))
    np.testing.assert_array_equal(program(tf.constant([1.0, 2.0]), tf.constant(3.0)), [3.0, 6.0])
    one = of("scale_one", *SCALE[:3])
    assert float(mode(called_on(one, tf.float32))(tf.constant(2.0), tf.constant(3.0))) == 6.0


@each_mode
def test_sizes_come_in_the_order_of_the_inputs(mode: Any) -> None:
    native = of(
        "multiply",
        *[np.ctypeslib.ndpointer(np.float64, ndim=2, flags="C_CONTIGUOUS")] * 3,
        pointer("int64"),
        *[ctypes.c_size_t, ctypes.c_long, ctypes.c_ssize_t, ctypes.c_uint64],
        result=lambda a, b: [
            tf.TensorSpec([a.shape[0], b.shape[1]], a.dtype),
            tf.TensorSpec([4], tf.int64),
        ],
    )
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    product, sizes = mode(called_on(native, [tf.float64, tf.int64]))(tf.constant(a), tf.constant(b))
    np.testing.assert_array_equal(product, a @ b)
    np.testing.assert_array_equal(sizes, [2, 3, 3, 4])


@each_mode
def test_the_most_arguments_that_there_can_be(mode: Any) -> None:
    native = of("list_31", *[pointer("int32")] * 32, result=lambda *x: tf.TensorSpec([31], "int32"))
    y = mode(called_on(native, tf.int32))(*[tf.constant(i * i) for i in range(31)])
    np.testing.assert_array_equal(y, np.arange(31) ** 2)


@each_mode
def test_callbacks_with_structures(mode: Any) -> None:
    spec = tf.TensorSpec([], tf.float64)
    # Flat results are in the order of the keys.
    result = lambda x: {"sum": spec, "mean": spec}  # noqa: E731
    native = of("sum_and_mean", *[pointer("float64")] * 3, SIZE, result=result)
    called = hostcall.callback(native, result=result, stateful=False)
    y = mode(lambda x: called(x))(tf.constant([1.0, 5.0], tf.float64))
    assert {key: float(value) for key, value in y.items()} == {"mean": 6.0, "sum": 3.0}
    scale = of("scale", *SCALE, result=lambda pair: pair["b"])
    scaled = hostcall.callback(scale, result=scale.result)
    program = mode(lambda x: scaled({"c": tf.constant(3.0), "b": x}))
    np.testing.assert_array_equal(program(tf.constant([1.0, 2.0])), [3.0, 6.0])


@each_mode
def test_a_py_function_calls_it_like_a_python_function(mode: Any) -> None:
    add = of("next_float32", *NEXT)
    program = mode(lambda x: tf.ensure_shape(tf.py_function(add, [x], tf.float32), [2]) * 2.0)
    np.testing.assert_array_equal(program(tf.constant([1.0, 2.0])), [4.0, 6.0])


@each_mode
@called
def test_sizes_that_tracing_does_not_know(called: Any, mode: Any) -> None:
    program = called(of("next_float32", *NEXT))
    signature = [tf.TensorSpec([None], tf.float32)]
    if mode is not eagerly:
        program = tf.function(program, jit_compile=mode is jitted, input_signature=signature)
    for size in (1, 4, 0):
        np.testing.assert_array_equal(program(tf.zeros([size])), np.ones(size))


@each_mode
def test_a_status_is_an_error(mode: Any) -> None:
    root = of("root", *[pointer("int32")] * 2, returns=ctypes.c_int32)
    program = mode(called_on(root, tf.int32))
    assert int(program(tf.constant(17))) == 4
    if mode is not eagerly:
        error = failure(program, tf.constant(-5))
        assert isinstance(error, tf.errors.UnknownError)
        assert_says(error.message, "root", "returned status -5", "restype = None")
    assert int(program(tf.constant(16))) == 4
    with pytest.raises(RuntimeError, match="root returned status -5"):
        root(np.int32(-5))


def test_numpy_arrays() -> None:
    add = of("next_float32", *NEXT)
    x = np.arange(6, dtype=np.float32)
    out = np.empty(3, np.float32)
    assert add(x[::2], out=out) is out
    np.testing.assert_array_equal(out, [1, 3, 5])
    assert type(add(x)) is np.ndarray
    read_only = x.copy()
    read_only.flags.writeable = False
    for argument in (x.astype(">f4"), tf.constant(x), read_only):
        np.testing.assert_array_equal(add(argument), x + 1)
    assert (repr(add), add.__name__) == ("<hostcall.native next_float32>", "next_float32")


@pytest.mark.parametrize(
    ("out", "what"),
    [
        (np.empty(3, np.float64), "float64"),
        (np.empty(2, np.float32), r"\(2,\)"),
        (np.empty(6, np.float32)[::2], "does not lie so"),
        (np.frombuffer(bytes(12), np.float32), "read-only"),
        ([1.0, 2.0, 3.0], "3 arrays"),
        (1.0, "out holds 1.0"),
    ],
)
def test_arrays_that_no_result_can_go_to(out: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        of("next_float32", *NEXT)(np.zeros(3, np.float32), out=out)
