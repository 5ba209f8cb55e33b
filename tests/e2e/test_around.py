"""What TensorFlow does with jitted functions besides calling them works with script ops in them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested

X = tf.constant([1.0, 4.0, 9.0])

OPS = [tf.numpy_function, tf.py_function, tf.compat.v1.py_func]
each_op = pytest.mark.parametrize("op", OPS, ids=["numpy_function", "py_function", "py_func"])


def _root(op: Callable[..., Any], x: tf.Tensor) -> tf.Tensor:
    result = op(lambda x: np.sqrt(x), [x], tf.float32)
    result.set_shape(x.shape)
    return result


def _functions() -> set[str]:
    from tensorflow.python.eager import context

    return {str(name) for name in context.context().list_function_names()}


@each_op
@pytest.mark.parametrize("stage", ["hlo", "optimized_hlo", "stablehlo"])
def test_compiler_ir_shows_the_call(op: Callable[..., Any], stage: str) -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        return _root(op, x) + 1.0

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
    program = tf.function(lambda x: _root(tf.numpy_function, x), jit_compile=True)
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


@pytest.mark.filterwarnings("ignore:hostcall. a SavedModel is written:UserWarning")
@each_op
def test_a_saved_jitted_function_runs_in_the_same_process(
    op: Callable[..., Any], tmp_path: Path
) -> None:
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([3], tf.float32)])
    def program(x: tf.Tensor) -> tf.Tensor:
        return _root(op, x) + 1.0

    module = tf.Module()
    module.program = program
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for _ in range(2):
        np.testing.assert_array_equal(loaded.program(X), [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(program(X), [2.0, 3.0, 4.0])


@pytest.mark.filterwarnings("ignore:hostcall. a SavedModel is written:UserWarning")
def test_a_saved_jitted_function_has_its_gradient(tmp_path: Path) -> None:
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([3], tf.float32)])
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.py_function(lambda x: x**2, [x], tf.float32), [3]) * 3.0

    module = tf.Module()
    module.program = program
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = loaded.program(X)
    np.testing.assert_array_equal(tape.gradient(y, X), 6.0 * X)


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


@each_op
def test_a_v1_session_runs_a_jitted_function(op: Callable[..., Any]) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        jitted = tf.function(lambda x: _root(op, x) + 1.0, jit_compile=True)
        x = tf.compat.v1.placeholder(tf.float32, [3])
        y = _root(op, jitted(x) - 1.0)
        for _ in range(2):
            np.testing.assert_allclose(session.run(y, {x: X.numpy()}), X.numpy() ** 0.25, rtol=1e-6)


def test_tf_gradients_in_a_jitted_function_in_a_v1_graph() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:

        @tf.function(jit_compile=True)
        def jitted(x: tf.Tensor) -> tf.Tensor:
            y = tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [3])
            return tf.gradients(2.0 * y, x)[0]

        x = tf.compat.v1.placeholder(tf.float32, [3])
        gradient = jitted(x)
        for scale in (1.0, 2.0):
            value = scale * X.numpy()
            np.testing.assert_allclose(session.run(gradient, {x: value}), 6.0 * value**2, rtol=1e-6)


def test_tf_gradients_through_a_jitted_function_in_a_v1_graph() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:

        @tf.function(jit_compile=True)
        def jitted(x: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [3])

        x = tf.compat.v1.placeholder(tf.float32, [3])
        gradient = tf.gradients(2.0 * jitted(x), x)[0]
        for scale in (1.0, 2.0):
            value = scale * X.numpy()
            np.testing.assert_allclose(session.run(gradient, {x: value}), 6.0 * value**2, rtol=1e-6)


def test_a_dataset_maps_a_jitted_function() -> None:
    @tf.function(jit_compile=True)
    def jitted(x: tf.Tensor) -> tf.Tensor:
        return _root(tf.numpy_function, x) + _root(tf.py_function, x)

    dataset = tf.data.Dataset.from_tensor_slices([[1.0, 4.0], [9.0, 16.0]]).map(jitted)
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
