"""Tests of TensorFlow's other uses of jitted functions than calls, with script ops in them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
from tests.support.helpers import each_public_op, gradient_of, jitted

X = tf.constant([1.0, 4.0, 9.0])


def _root(op: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    result = op(lambda x: np.sqrt(x), [x], tf.float32)
    result.set_shape(x.shape)
    return result


def _functions() -> set[str]:
    from tensorflow.python.eager import context

    return {str(name) for name in context.context().list_function_names()}


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


@pytest.mark.parametrize(
    "stage", ["hlo_serialized", "optimized_hlo_serialized", "optimized_hlo_dot"]
)
def test_compiler_ir_in_other_forms(stage: str) -> None:
    program = jitted(lambda x: _root(tf.numpy_function, x))
    shown = program.experimental_get_compiler_ir(X)(stage=stage)
    assert (b"hostcall" if isinstance(shown, bytes) else "hostcall") in shown


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

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(lambda: entries.append(1), [], [])
        return x

    for stage in ("hlo", "optimized_hlo", "stablehlo"):
        program.experimental_get_compiler_ir(X)(stage=stage)
    assert entries == []
    program(X)
    assert entries == [1]


writes_without_names = pytest.mark.filterwarnings(
    "ignore:hostcall. a SavedModel is written:UserWarning"
)


def _loaded(program: Callable[..., Any], folder: Path) -> Any:
    """The function as this process reads it back."""
    module = tf.Module()
    module.program = tf.function(
        program, jit_compile=True, input_signature=[tf.TensorSpec([3], tf.float32)]
    )
    tf.saved_model.save(module, str(folder))
    np.testing.assert_array_equal(tf.saved_model.load(str(folder)).program(X), module.program(X))
    return tf.saved_model.load(str(folder)).program


@writes_without_names
@each_public_op
def test_a_saved_jitted_function_runs_in_the_same_process(
    op: Callable[..., Any], tmp_path: Path
) -> None:
    loaded = _loaded(lambda x: _root(op, x) + 1.0, tmp_path)
    for _ in range(2):
        np.testing.assert_array_equal(loaded(X), [2.0, 3.0, 4.0])


@writes_without_names
def test_a_saved_jitted_function_has_its_gradient(tmp_path: Path) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.py_function(lambda x: x**2, [x], tf.float32), [3]) * 3.0

    np.testing.assert_array_equal(gradient_of(_loaded(program, tmp_path), X), 6.0 * X)


def test_a_call_whose_function_is_gone_is_named() -> None:
    @tf.function
    def program() -> tf.Tensor:
        return _root(tf.numpy_function, tf.constant([1.0]))

    definition = program.get_concrete_function().graph.as_graph_def()
    for node in definition.node:
        if node.op == "PyFunc":
            node.attr["token"].s = b"pyfunc_of_another_process"

    @tf.function(jit_compile=True)
    def restored() -> Any:
        return tf.graph_util.import_graph_def(definition, {}, ["PyFunc:0"])

    with pytest.raises(tf.errors.InvalidArgumentError, match="pyfunc_of_another_process") as caught:
        restored()
    assert "does not exist in this process" in str(caught.value)


def test_a_dataset_maps_a_jitted_function() -> None:
    both = jitted(lambda x: _root(tf.numpy_function, x) + _root(tf.py_function, x))
    dataset = tf.data.Dataset.from_tensor_slices([[1.0, 4.0], [9.0, 16.0]]).map(both)
    np.testing.assert_array_equal(list(dataset.as_numpy_iterator()), [[2.0, 4.0], [6.0, 8.0]])


def test_functions_without_script_ops_are_not_rewritten() -> None:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return x * 2.0

    @tf.function(jit_compile=True)
    def without(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = inner(x)
        return inner(x)

    without.get_concrete_function(X)
    before = _functions()
    np.testing.assert_array_equal(without(X), 8.0 * X)
    assert _functions() == before

    @tf.function(jit_compile=True)
    def with_one(x: tf.Tensor) -> tf.Tensor:
        return _root(tf.numpy_function, inner(x))

    with_one.get_concrete_function(X)
    before = _functions()
    np.testing.assert_array_equal(with_one(X), np.sqrt(2.0 * X.numpy()))
    assert _functions() > before
