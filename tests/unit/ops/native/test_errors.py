"""hostcall.native: what it refuses, and how it says so."""

import ctypes
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import failure, jitted, plain
from tests.support.native_code import functions, functions_with_gil
from tests.support.native_code.programs import FLOATS, NEXT, SIZE, called_on, of

INTS = ctypes.POINTER(ctypes.c_int32)


def add(**kwargs: Any) -> Any:
    return of("next_float32", *NEXT, **kwargs)


def checked() -> Any:
    function = functions()["next_float32"]
    function.errcheck = lambda *args: args[0]
    return function


types = numba.types
POINTER = types.CPointer(types.float32)
BY_PYTHON = "a Python function that ctypes has made callable from C"
# What makes a function, and why it is none.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a result of Numba's": (
        lambda: numba.cfunc(types.float64(types.float64))(lambda x: x),
        "returns float64",
    ),
    "an argument of Numba's": (
        lambda: numba.cfunc(types.void(POINTER, types.int32))(lambda x, n: None),
        "argument 1 of .* is of type int32",
    ),
    "with Python's lock": (lambda: functions_with_gil().note, r"ctypes\.PyDLL"),
    "of Python's lock": (lambda: ctypes.PYFUNCTYPE(None)(1), r"ctypes\.PyDLL"),
    "of Python": (lambda: ctypes.CFUNCTYPE(None, FLOATS)(lambda x: None), BY_PYTHON),
    "checked by Python": (checked, "errcheck"),
    "null": (lambda: ctypes.CFUNCTYPE(None, FLOATS)(), "null pointer"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_functions_that_are_no_native_code(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        hostcall.native(make(), result=[])


def test_what_is_said_of_a_function() -> None:
    with pytest.raises(TypeError, match=r"Write a spec, such as result=tf\.TensorSpec\(\[3\]"):
        hostcall.native(ctypes.CFUNCTYPE(None)())
    with pytest.raises(TypeError, match="only handlers of XLA's FFI take attributes"):
        hostcall.native(functions()["note"], result=[], attributes={"eps": 1.0})


def test_types_that_ctypes_was_not_told() -> None:
    with pytest.raises(TypeError, match="what next_float32 takes is not known") as caught:
        hostcall.native(functions()["next_float32"], result=lambda x: x)
    assert "    next_float32.argtypes = [ctypes.POINTER(ctypes.c_float)," in str(caught.value)
    assert "    next_float32.restype = None" in str(caught.value)


@pytest.mark.parametrize(
    ("argtypes", "index"),
    [
        ([FLOATS, FLOATS, ctypes.c_int32], 2),
        ([FLOATS, ctypes.c_float, SIZE], 1),
        ([FLOATS, SIZE, FLOATS], 2),
        ([ctypes.c_char_p, FLOATS], 0),
        ([ctypes.POINTER(FLOATS), FLOATS], 0),
        ([ctypes.POINTER(ctypes.c_char), FLOATS], 0),
        ([ctypes.py_object, FLOATS], 0),
        ([np.ctypeslib.ndpointer(np.float32, flags="F_CONTIGUOUS"), FLOATS], 0),
        ([FLOATS, ctypes.c_double], 1),
    ],
    ids=str,
)
def test_arguments_that_native_code_cannot_have(argtypes: Any, index: int) -> None:
    with pytest.raises(TypeError, match=f"argument {index} of next_float32 is of type"):
        of("next_float32", *argtypes)


@pytest.mark.parametrize("returns", [ctypes.c_double, ctypes.c_int64, ctypes.c_void_p, FLOATS, int])
def test_returned_types(returns: Any) -> None:
    with pytest.raises(TypeError, match=r"of_double returns .*nothing, or an int32"):
        of("of_double", FLOATS, returns=returns)


@pytest.mark.parametrize("other", [None, 3, "name", len, lambda x: x, {"execute": None}])
def test_what_is_no_native_code(other: Any) -> None:
    with pytest.raises(TypeError, match=r"hostcall\.native wants a ctypes function"):
        hostcall.native(other, result=lambda x: x)


def test_too_many_arguments() -> None:
    with pytest.raises(TypeError, match="takes 33 arguments, and 32 is the most"):
        of("list_31", *[INTS] * 33)


def refused(native: Any, *tensors: tf.Tensor, dtype: Any = tf.float32) -> str:
    """Return the error's text of a call, the same in a compiled program and in plain graph mode."""
    program = called_on(native, dtype)
    errors = [failure(mode(program), *tensors) for mode in (jitted, plain)]
    assert all(isinstance(error, tf.errors.InvalidArgumentError) for error in errors)
    compiled, in_graph = (error.message for error in errors)
    with hostcall.scope(route="partition"):
        on_host = failure(jitted(program), *tensors)
    assert isinstance(on_host, tf.errors.InvalidArgumentError)
    # A function that takes four bits is called by one that casts, which its errors name, too.
    _, _, text = compiled.partition("hostcall: ")
    said = text.split(" This is tf.numpy_function")[0]
    assert said in in_graph
    assert said in on_host.message
    assert "called at" in compiled
    assert "programs.py:" in compiled
    return said


def test_dtypes_that_do_not_fit() -> None:
    said = refused(add(), tf.constant([1.0], tf.float64), dtype=tf.float64)
    assert said == (
        "argument 0 of next_float32, for input 0, points to float32, and not to float64."
    )
    wider = add(result=lambda x: tf.TensorSpec(x.shape, tf.float64))
    said = refused(wider, tf.constant([1.0]), dtype=tf.float64)
    assert "argument 1 of next_float32, for result 0, points to float32" in said


def test_numbers_that_do_not_fit() -> None:
    said = refused(add(result=lambda x, y: x), tf.constant([1.0]), tf.constant([1.0]))
    assert "next_float32 takes 2 pointers, but there are 2 inputs and 1 result" in said
    said = refused(add(), tf.constant([[1.0]]))
    assert "next_float32 takes 1 size, but its inputs have 2 dimensions" in said


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (np.ctypeslib.ndpointer(ndim=2), "an array of rank 2, and not of rank 1"),
        (np.ctypeslib.ndpointer(shape=(3,)), r"an array of shape (3,), and not of (2,)"),
        (np.ctypeslib.ndpointer(np.int32), "int32, and not to float32"),
    ],
    ids=["rank", "shape", "dtype"],
)
def test_what_ndpointer_says(kind: Any, what: str) -> None:
    assert what in refused(of("reverse_4", kind, ctypes.c_void_p, SIZE), tf.constant([1.0, 2.0]))


def untyped() -> Any:
    return of("reverse_1", ctypes.c_void_p, ctypes.c_void_p, SIZE)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_dtypes_that_xla_packs(dtype: str) -> None:
    said = refused(untyped(), tf.cast(tf.constant([1, 2]), dtype), dtype=tf.as_dtype(dtype))
    assert f"of dtype {dtype}, which native code cannot have" in said


@pytest.mark.parametrize("mode", [plain, jitted])
@pytest.mark.parametrize(
    ("make", "x", "said"),
    [
        (untyped, "a", "of reverse_1 is of dtype string, which native code cannot have"),
        (
            lambda: add(result=tf.TensorSpec([None], tf.float32)),
            1.0,
            "result 0 of next_float32 has the shape (None,)",
        ),
    ],
    ids=["strings", "results of unknown size"],
)
def test_what_native_code_cannot_have(mode: Any, make: Any, x: Any, said: str) -> None:
    x = tf.constant([x])
    assert said in failure(mode(called_on(make(), x.dtype)), x).message


def test_bounded_inputs() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(add(), [tf.boolean_mask(x, x > 0.0)], tf.float32)

    error = failure(jitted(program), tf.constant([1.0, -1.0]))
    assert "input 0 of next_float32 has a size that is only bounded" in error.message
    np.testing.assert_array_equal(plain(program)(tf.constant([1.0, -1.0])), [2.0])
    with hostcall.scope(route="partition"):
        np.testing.assert_array_equal(jitted(program)(tf.constant([1.0, -1.0])), [2.0])


def test_bounded_results() -> None:
    bounded = add(result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
    said = refused(bounded, tf.constant([1.0, 2.0]))
    assert "result 0 of next_float32 has a size that is only bounded" in said


def test_results_that_are_declared_twice() -> None:
    called = hostcall.callback(add(), result=lambda x: tf.TensorSpec([2], x.dtype))
    error = failure(jitted(lambda x: called(x)), tf.constant([1.0]))
    assert "hostcall.native was told that the results are float32 of shape (1,)" in error.message
    assert "here they are float32 of shape (2,)" in error.message
    error = failure(plain(lambda x: called(x)), tf.constant([1.0]))
    assert "has shape (1,), but its declared shape is (2,)" in error.message


ITS_OWN_MEMORY = r"always .* the program's own memory\. Remove it"


@pytest.mark.parametrize(
    ("option", "value", "message", "of_callbacks"),
    [
        ("timeout", 1.0, "native code cannot be interrupted", True),
        ("wait", False, "calls native code itself, and waits for it", False),
        ("borrow", True, ITS_OWN_MEMORY, True),
        ("out", True, ITS_OWN_MEMORY, True),
        ("memory", "device", r"memory= .* itself, with its own memory\. Remove it", False),
        ("memo", True, "only Python can look results up", False),
    ],
)
def test_options_it_cannot_have(option: str, value: Any, message: str, of_callbacks: bool) -> None:
    with pytest.raises(ValueError, match=message):
        hostcall.declare(add(), **{option: value})
    if of_callbacks:
        with pytest.raises(ValueError, match=message):
            hostcall.callback(add(), result=lambda x: x, **{option: value})


def test_other_declarations_hold() -> None:
    native = hostcall.declare(add(), route="partition")
    [op] = hostcall.explain(jitted(called_on(native)), tf.TensorSpec([3], tf.float32)).script_ops
    assert op.route == "partition"
    np.testing.assert_array_equal(jitted(called_on(native))(tf.constant([1.0])), [2.0])


def test_a_tensor_without_a_value_and_out() -> None:
    program = plain(lambda x: add()(x, out=np.zeros(3, np.float32)))
    with pytest.raises(TypeError, match=r"which has no value yet, and with out=.*Remove out="):
        program(tf.zeros([3]))


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="points to float32, and not to float64"):
        add()(np.array([1.0]))
    with pytest.raises(TypeError, match=r"dtype datetime64.*, which TensorFlow has no values of"):
        add()(np.array(["2026-01-01"], "datetime64[s]"))
    with pytest.raises(ValueError, match="has 1 result, and out holds 2 arrays"):
        add()(np.zeros(2, np.float32), out=[np.zeros(2, np.float32)] * 2)
