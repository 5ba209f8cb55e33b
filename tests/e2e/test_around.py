"""Tests of TensorFlow's other uses of jitted functions than calls, with script ops in them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
from tests.support.helpers import assert_says, each_public_op, failure, jitted

X = tf.constant([1.0, 4.0, 9.0])


def _root(op: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    result = op(lambda x: np.sqrt(x), [x], tf.float32)
    result.set_shape(x.shape)
    return result


@each_public_op
@pytest.mark.parametrize("stage", ["hlo", "optimized_hlo", "stablehlo"])
def test_compiler_ir_shows_the_call(op: Callable[..., Any], stage: str) -> None:
    program = jitted(lambda x: _root(op, x) + 1.0)
    show = program.experimental_get_compiler_ir(X)
    first = show(stage=stage)
    assert first.count('"hostcall"') + first.count("@hostcall") == 1
    # Looking has no lasting effect: again, in between, and after a call.
    assert program.experimental_get_compiler_ir(X)(stage=stage) == first
    np.testing.assert_array_equal(program(X), [2.0, 3.0, 4.0])
    assert show(stage=stage) == first
    np.testing.assert_array_equal(program(X), [2.0, 3.0, 4.0])


def test_compiler_ir_of_a_function_with_control_flow_and_calls() -> None:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return _root(tf.py_function, x)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = inner(x) if x[0] > 0.0 else _root(tf.numpy_function, -x)
        return inner(x)

    shown = program.experimental_get_compiler_ir(X)(stage="hlo")
    assert shown.count('custom_call_target="hostcall"') == 3
    np.testing.assert_allclose(program(X), X.numpy() ** 0.125, rtol=1e-6)


def test_compiler_ir_runs_no_callback() -> None:
    entries: list[int] = []
    program = jitted(lambda x: (tf.numpy_function(lambda: entries.append(1), [], []), x)[1])
    stages = ("hlo", "optimized_hlo", "stablehlo", "hlo_serialized", "optimized_hlo_serialized")
    for stage in (*stages, "optimized_hlo_dot"):
        assert "hostcall" in str(program.experimental_get_compiler_ir(X)(stage=stage))
    assert entries == []
    program(X)
    assert entries == [1]


def test_a_call_whose_function_is_gone_is_named() -> None:
    program = tf.function(lambda: _root(tf.numpy_function, tf.constant([1.0])))
    definition = program.get_concrete_function().graph.as_graph_def()
    for node in definition.node:
        if node.op == "PyFunc":
            node.attr["token"].s = b"pyfunc_of_another_process"
    error = failure(jitted(lambda: tf.graph_util.import_graph_def(definition, {}, ["PyFunc:0"])))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error, "pyfunc_of_another_process", "does not exist in this process")
