"""Programs for GPUs, on one that is none (`tests/support/fake_gpu.py`): no GPU runs here."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler import devices
from hostcall_runtime import _library, prepared
from tests.support.helpers import assert_equal, distinct, jitted
from tests.support.versions import has_a_fake_gpu

# All of this runs in a process that looks for devices and routes itself: TensorFlow has to be told
# of the GPU before it looks.
PREPARATION = """
import os
for name in ("HOSTCALL_TEST_DEVICE", "HOSTCALL_TEST_GPU", "HOSTCALL_ROUTE"):
    os.environ.pop(name, None)
from tests.support import fake_gpu
fake_gpu.install()
"""
pytestmark = [has_a_fake_gpu, pytest.mark.runs_in("worker")]

GPU, CPU = "/device:GPU:0", "/device:CPU:0"


def call(function: Callable[..., Any], x: tf.Tensor, *sizes: Any) -> tf.Tensor:
    return tf.numpy_function(function, [x], tf.TensorSpec(sizes, x.dtype))


def hlo(program: Callable[..., Any], *args: Any) -> str:
    function = tf.function(program, jit_compile=True)
    with tf.device(CPU):
        return str(function.experimental_get_compiler_ir(*args)(stage="hlo", platform_name="GPU"))


def on_gpu(program: Callable[..., Any], *args: Any, route: str = "auto") -> Any:
    function = tf.function(program, jit_compile=True)
    with tf.device(GPU), hostcall.scope(route=route):
        function(*args)
        return function(*args)


def test_the_handler_of_the_runtime_is_registered_for_cuda() -> None:
    runtime, bindings = prepared(), _library.load("hostcall._tensorflow")
    bindings.register_handler(runtime.cuda_handler(), "hostcall", "CUDA")  # the same: no error
    with pytest.raises(ImportError, match="Duplicate"):
        bindings.register_handler(runtime.handlers()["hostcall"], "hostcall", "CUDA")


def test_a_script_op_becomes_the_call_that_it_is_on_the_cpu() -> None:
    text = hlo(lambda x: call(np.sin, x, 3) * 2.0, tf.zeros([3]))
    line = next(line for line in text.splitlines() if "custom-call" in line)
    assert 'custom_call_target="hostcall"' in line, line
    assert "custom_call_has_side_effect=true" in line, line
    assert "api_version=API_VERSION_TYPED_FFI" in line, line
    assert "callback = " in line, line


def test_operands_and_results_are_dense() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return call(np.copy, tf.transpose(x), 3, 2)

    x = tf.reshape(tf.range(6.0), [2, 3])
    line = next(line for line in hlo(program, x).splitlines() if "custom-call" in line)
    assert "(f32[3,2]{1,0}) custom-call" in line, line
    assert "operand_layout_constraints={f32[3,2]{1,0}}" in line, line
    assert_equal(on_gpu(program, x), tf.transpose(x))


def test_sizes_may_be_bounded() -> None:
    def program(x: tf.Tensor) -> Any:
        y = tf.numpy_function(np.unique, [x], hostcall.BoundedSpec([4], tf.float32))
        return tf.reduce_sum(y), tf.size(y)

    x = tf.constant([1.0, 2.0, 1.0, 4.0])
    assert_equal(on_gpu(program, x), (7.0, 3))
    assert "dynamic_results = array<i64: 0, 0>" in hlo(program, x)


def test_no_call_begins_early() -> None:
    def pure(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(np.sin, [x], tf.TensorSpec([2], x.dtype), stateful=False)

    x = tf.constant([0.0, 1.0])
    assert_equal(on_gpu(lambda x: pure(x) + pure(x * 2.0), x), np.sin(x) + np.sin(x * 2.0))


def test_native_code_is_called_between_clusters() -> None:
    double = hostcall.native(
        numba.cfunc("void(CPointer(float32), CPointer(float32), int64)")(_double),
        result=lambda x: x,
    )

    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(double, [tf.sin(x)], tf.float32) + 1.0

    x = tf.constant([1.0, 2.0])
    np.testing.assert_allclose(on_gpu(program, x), np.sin(x) * 2.0 + 1.0, rtol=1e-6)
    with tf.device(GPU):
        explanation = hostcall.explain(tf.function(program, jit_compile=True), x)
    (op,) = explanation.script_ops
    assert op.route == "partition", op
    assert "cannot call native code" in op.reason, op.reason
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot call native code"):
        on_gpu(program, x, route="custom_call")


def _double(x: Any, y: Any, size: int) -> None:
    for i in range(size):
        y[i] = 2.0 * x[i]


def test_integers_cross_where_tensorflow_has_them_on_the_host() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(np.unique, [x * 2], tf.int32) + 1

    x = tf.constant([3, 1, 3])
    np.testing.assert_array_equal(on_gpu(program, x), [3, 7])
    inner = tf.function(program, jit_compile=True)
    outer = tf.function(lambda x: inner(x + 1) - 1)  # which has them on the device
    with tf.device(GPU):
        np.testing.assert_array_equal(outer(x), [4, 8])
        assert_equal(outer(tf.zeros([0], tf.int32)), np.zeros(0))


def test_loops_and_branches_on_the_host_have_their_clusters_on_the_device() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(4):
            x = call(np.negative, tf.sin(x), 2) + 1.0 if i % 2 == 0 else x * 2.0
        return x

    x = tf.constant([1.0, 2.0])
    expected = x.numpy()
    for i in range(4):
        expected = 1.0 - np.sin(expected) if i % 2 == 0 else expected * 2.0
    np.testing.assert_allclose(on_gpu(program, x, route="partition"), expected, rtol=1e-5)


def test_an_explanation_says_what_happens() -> None:
    known = tf.function(lambda x: call(np.sin, x, 3), jit_compile=True)
    unknown = jitted(lambda x: distinct(tf.sin(x)))
    with tf.device(GPU):
        one = hostcall.explain(known, tf.TensorSpec([3]))
        other = hostcall.explain(unknown, tf.TensorSpec([3]))
    assert [op.route for op in one.script_ops] == ["custom_call"], one
    assert [op.route for op in other.script_ops] == ["partition"], other
    assert [t.to for t in other.functions[0].transfers] == ["host", "device"], other
    built = devices.knows_gpus()
    assert bool(one.notes) != built, one.notes
