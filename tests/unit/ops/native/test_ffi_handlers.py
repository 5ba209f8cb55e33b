"""hostcall.native: handlers of XLA's typed FFI, in capsules as JAX makes them."""

import ctypes
import importlib
import pathlib
import re
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import failure, jitted, plain
from tests.support.native_code import handlers, headers
from tests.support.native_code.programs import each_mode, eagerly, in_graphs, same

X = np.array([1.0, 2.0, 3.0], np.float32)


def capsule(name: str) -> Any:
    return jax.ffi.pycapsule(handlers(headers())[name])


NUMBERS = {"factor": 2.0, "offset": 2**40, "negative": True, "half": np.float64(0.5)}
ATTRIBUTES = {"word": "grüße", **NUMBERS}


@each_mode
def test_attributes(mode: Any) -> None:
    native = hostcall.native(capsule("scale"), result=same, name="scale", attributes=ATTRIBUTES)
    program = mode(lambda x: tf.numpy_function(native, [x], tf.float32))
    np.testing.assert_array_equal(program(tf.constant(X)), -(X * 2 + np.float32(2**40)))
    assert repr(native) == "<hostcall.native scale>"


@each_mode
def test_several_results(mode: Any) -> None:
    native = hostcall.native(
        capsule("sum_and_count"),
        result=lambda x: [tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int64)],
    )
    program = mode(lambda x: tf.numpy_function(native, [x], [tf.float32, tf.int64]))
    for x in (X, X[:0]):
        total, count = program(tf.constant(x))
        assert (float(total), int(count)) == (x.sum(), x.size)


@each_mode
def test_what_only_a_run_of_xla_has(mode: Any) -> None:
    native = hostcall.native(capsule("on_pool"), result=tf.TensorSpec([], tf.int64))
    assert int(mode(lambda: tf.numpy_function(native, [], tf.int64))()) > 0


@each_mode
def test_asynchronous_ones(mode: Any) -> None:
    native = hostcall.native(capsule("later"), result=same)
    program = mode(lambda x: tf.numpy_function(native, [x], tf.float32) * 2.0)
    for _ in range(20):
        np.testing.assert_array_equal(program(tf.constant(X)), (X + 1) * 2)
    if mode is not eagerly:
        assert "negative, and late" in failure(program, tf.constant(-X)).message


@in_graphs
def test_errors_are_the_programs(mode: Any) -> None:
    native = hostcall.native(capsule("fail"), result=same)
    program = mode(lambda x: tf.numpy_function(native, [x], tf.int32))
    for code, kind in (
        (3, tf.errors.InvalidArgumentError),
        (8, tf.errors.ResourceExhaustedError),
        (12, tf.errors.UnimplementedError),
        (2, tf.errors.UnknownError),
    ):
        error = failure(program, tf.constant(code))
        assert isinstance(error, kind)
        assert f"no signal from sensor {code}" in error.message
    program(tf.constant(0))


def test_wrong_arguments_are_errors_of_the_handler() -> None:
    native = hostcall.native(capsule("later"), result=same)
    for mode in (plain, jitted):
        program = mode(lambda x: tf.numpy_function(native, [x], tf.float64))
        error = failure(program, tf.constant([1.0], tf.float64))
        assert "Wrong buffer dtype: expected F32 but got F64" in error.message
        missing = hostcall.native(capsule("scale"), result=same, attributes={"factor": 1.0})
        program = mode(lambda x, missing=missing: tf.numpy_function(missing, [x], tf.float32))
        assert "Wrong number of attributes" in failure(program, tf.constant(X)).message


def test_numpy_arrays() -> None:
    native = hostcall.native(capsule("later"), result=same)
    out = np.empty_like(X)
    assert native(X, out=out) is out
    np.testing.assert_array_equal(out, X + 1)
    np.testing.assert_array_equal(native(X[::2]), X[::2] + 1)
    with pytest.raises(ValueError, match="negative, and late"):
        native(-X)
    with hostcall.scope(route="partition"):
        np.testing.assert_array_equal(native(X[:2]), X[:2] + 1)
    hostcall.declare(native, route="partition")
    np.testing.assert_array_equal(native(X[:1]), X[:1] + 1)


def test_handlers_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    # TensorFlow 2.22 takes those of JAX.
    tensorflow = importlib.import_module("hostcall._tensorflow")
    monkeypatch.setattr(tensorflow, "ffi_api_version", lambda: (0, 2))
    newer = jax.ffi.pycapsule(handlers(jax.ffi.include_dir())["later"])
    with pytest.raises(ValueError, match="another version of XLA's FFI") as caught:
        hostcall.native(newer, result=same)
    assert "tf.sysconfig.get_include()" in str(caught.value)


def test_tensorflow_says_the_version_of_its_ffi() -> None:
    tensorflow = importlib.import_module("hostcall._tensorflow")
    header = pathlib.Path(tf.sysconfig.get_include(), "xla/ffi/api/c_api.h")
    if not header.is_file():
        pytest.skip("TensorFlow before 2.21 does not install the header")
    number = re.search(r"define XLA_FFI_API_MINOR (\d+)", header.read_text())
    assert number is not None
    assert tensorflow.ffi_api_version() == (0, int(number[1]))


@pytest.mark.tensorflow("2.21", "handlers built with older headers do not say their stage")
def test_handlers_for_another_stage() -> None:
    with pytest.raises(ValueError, match="Pass the handler for the stage of execution"):
        hostcall.native(capsule("instantiate"), result=[])


def test_other_capsules() -> None:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    other = new(1, b"arrow_array", None)
    with pytest.raises(TypeError, match="the capsule is named 'arrow_array'"):
        hostcall.native(other, result=[])
    address = ctypes.cast(handlers(headers())["later"], ctypes.c_void_p)
    named = new(address, b"xla._CUSTOM_CALL_TARGET", None)
    np.testing.assert_array_equal(hostcall.native(named, result=same)(X), X + 1)


@pytest.mark.parametrize("value", [None, [1], np.zeros(2), 2**70, object()])
def test_attributes_of_other_types(value: Any) -> None:
    with pytest.raises(TypeError, match="the attribute 'eps' is"):
        hostcall.native(capsule("scale"), result=same, attributes={"eps": value})
