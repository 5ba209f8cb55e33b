"""hostcall.jax.to_tf: order, variables, tapes and threads of the TensorFlow programs around it."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import io_callback

import hostcall.jax
from tests.support.helpers import MODES, jitted
from tests.support.versions import reads_programs_of_jax

pytestmark = reads_programs_of_jax

X = np.arange(4, dtype=np.float32)

to_tf = hostcall.jax.to_tf
each_mode = pytest.mark.parametrize("mode", MODES)


def by_call(log: list[Any], name: Any) -> Callable[..., Any]:
    def program(x: Any) -> Any:
        hostcall.jax.call(lambda: log.append(name), None, ordered=True)
        return x + 1

    return to_tf(program)


def by_io_callback(log: list[Any], name: Any) -> Callable[..., Any]:
    def program(x: Any) -> Any:
        io_callback(lambda: log.append(name), None, ordered=True)
        return x + 1

    return to_tf(program)


@each_mode
@pytest.mark.parametrize("note", [by_call, by_io_callback])
def test_the_order_of_a_tensorflow_program(mode: Any, note: Any) -> None:
    log: list[Any] = []

    def program(x: Any) -> Any:
        for i in range(4):
            note(log, i)(x)
        tf.numpy_function(lambda: log.append("numpy_function"), [], [])
        _, y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, note(log, "loop")(y)), [0, x])
        y = tf.cond(x[0] > 9, lambda: x, lambda: note(log, "branch")(x))
        return y, jitted(note(log, "function"))(x), note(log, "end")(x)

    traced = mode(program)
    for _ in range(3):
        log.clear()
        traced(tf.constant(X))
        expected = [0, 1, 2, 3, "numpy_function", "loop", "loop", "branch", "function", "end"]
        assert log == expected


@each_mode
def test_a_callback_reads_and_assigns_variables_of_the_program(mode: Any) -> None:
    variable = tf.Variable(1.0)

    def scale(x: Any) -> Any:
        return x * variable.assign_add(1.0).numpy()

    def program(x: Any) -> Any:
        return to_tf(lambda x: hostcall.jax.call(scale, x, x))(x * variable)

    np.testing.assert_array_equal(mode(program)(tf.constant(X)), 2 * X)
    assert variable.numpy() == 2


@each_mode
def test_a_callback_has_tapes_of_its_own(mode: Any) -> None:
    def slope(x: Any) -> Any:
        x = tf.constant(np.asarray(x))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x**3
        return tape.gradient(y, x).numpy()

    for convert in (
        lambda x: hostcall.jax.call(slope, x, x, pure=True),
        lambda x: jax.pure_callback(slope, x, x),
    ):
        program = mode(to_tf(convert))
        np.testing.assert_array_equal(program(tf.constant(X)), 3 * X * X)
        with tf.GradientTape() as tape:  # of the caller's, which sees nothing of it
            np.testing.assert_array_equal(program(tf.constant(X)), 3 * X * X)
        assert tape.watched_variables() == ()


def test_a_saved_model_is_refused(tmp_path: Any) -> None:
    module = tf.Module()
    module.run = tf.function(by_call([], "saved"), input_signature=[tf.TensorSpec([4], tf.float32)])
    with pytest.raises(ValueError, match="A SavedModel holds no Python code"):
        tf.saved_model.save(module, str(tmp_path))
    module.run = tf.function(
        to_tf(lambda x: x * 2), input_signature=[tf.TensorSpec([4], tf.float32)]
    )
    tf.saved_model.save(module, str(tmp_path))
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path)).run(X), 2 * X)


@each_mode
def test_a_gradient_that_needs_nothing_of_an_argument_but_its_size(mode: Any) -> None:
    log: list[int] = []

    def program(x: Any) -> Any:
        hostcall.jax.call(lambda v: log.append(len(v)), None, jax.lax.stop_gradient(x))
        return x.sum() * 2

    converted = to_tf(program, polymorphic_shapes="batch")

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = converted(x)
        return tape.gradient(y, x)

    np.testing.assert_array_equal(mode(gradient)(tf.constant(X)), [2, 2, 2, 2])
    assert log == [4]
