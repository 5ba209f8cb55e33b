"""hostcall.disable: what was traced, copied or recorded before keeps its gradients."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._callbacks import tape_residuals
from tests.support.helpers import gradient_of

X = tf.constant([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    yield
    hostcall.enable()


def _cube(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [3])


def _in_a_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = tf.ensure_shape(tf.py_function(lambda x: x**2, [x], tf.float32), [3])
    return x


@hostcall.declare(pure=True)
def _square(x: tf.Tensor) -> tf.Tensor:
    return x**2


PROGRAMS = {
    "loop": (_in_a_loop, 4.0 * X**3),
    "branch": (lambda x: tf.cond(x[0] > 0.0, lambda: _cube(x), lambda: x), 3.0 * X**2),
    "call": (lambda x: tf.function(_cube)(x), 3.0 * X**2),
    "pure": (lambda x: tf.py_function(_square, [x], tf.float32), 2.0 * X),
}


@pytest.mark.parametrize(("function", "wanted"), PROGRAMS.values(), ids=PROGRAMS)
def test_graphs_traced_before_have_their_gradients_while_disabled(
    function: Any, wanted: tf.Tensor
) -> None:
    program = tf.function(function)
    program.get_concrete_function(X)
    hostcall.disable()
    for _ in range(2):
        np.testing.assert_allclose(gradient_of(program, X), wanted)


@tf.RegisterGradient("HostcallTestOfSeven")
def _seven(op: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    return 7.0 * upstream


@pytest.mark.parametrize("pure", [True, False])
def test_a_gradient_that_the_user_maps_to_stays_the_users(pure: bool) -> None:
    square = hostcall.declare(lambda x: x**2, pure=pure)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        with graph.gradient_override_map({"EagerPyFunc": "HostcallTestOfSeven"}):
            y = tf.py_function(square, [x], tf.float32)
        (dy,) = tf.gradients(y, x)
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run(dy, {x: X.numpy()}).tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("copied", [False, True])
def test_graphs_of_version_1_made_before_have_their_gradients_while_disabled(copied: bool) -> None:
    concrete = tf.function(_cube).get_concrete_function(X)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        if copied:
            (y,) = tf.graph_util.import_graph_def(
                concrete.graph.as_graph_def(),
                input_map={concrete.inputs[0].name: x},
                return_elements=[concrete.outputs[0].name],
            )
        else:
            y = _cube(x)
        hostcall.disable()
        (dy,) = tf.gradients(y, x)
        with tf.compat.v1.Session(graph=graph) as session:
            computed = session.run(dy, {x: X.numpy()})
    np.testing.assert_allclose(computed, 3.0 * X**2)


@pytest.mark.filterwarnings("ignore:hostcall. a SavedModel is written:UserWarning")
def test_a_saved_model_loaded_before_has_its_gradient_while_disabled(tmp_path: Any) -> None:
    module = tf.Module()
    module.call = tf.function(_cube, input_signature=[tf.TensorSpec([3], tf.float32)])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    hostcall.disable()
    np.testing.assert_allclose(gradient_of(loaded.call, X), 3.0 * X**2)


def test_calls_while_disabled_keep_the_latest_recordings_alone() -> None:
    program = tf.function(_cube)
    gradient_of(program, X)
    hostcall.disable()
    before = len(tape_residuals._residuals)
    for _ in range(tape_residuals._MANY_UNTOLD + 20):
        program(X)
    assert len(tape_residuals._residuals) <= before + tape_residuals._MANY_UNTOLD
    np.testing.assert_allclose(gradient_of(program, X), 3.0 * X**2)


def test_a_tape_that_recorded_an_eager_call_before_says_so_while_disabled() -> None:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = tf.py_function(lambda x: x**3, [X], tf.float32)
    hostcall.disable()
    with pytest.raises(tf.errors.UnknownError, match=r"or call hostcall.enable\(\) first"):
        tape.gradient(y, X)
    hostcall.enable()
    np.testing.assert_allclose(tape.gradient(y, X), 3.0 * X**2)
