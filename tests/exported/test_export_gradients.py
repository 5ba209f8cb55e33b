"""hostcall.export: functions that are differentiated before they are exported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall_mlir

X = np.array([0.1, 0.2, 0.3], np.float32)


def in_a_branch(x: Any) -> Any:
    return {"y": tf.cond(x[0] > 9, lambda: x, lambda: tf.exp(tf.exp(x))), "none": None, "x": x}


def in_a_loop(x: Any) -> Any:
    y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, tf.exp(y)), [0, x])[1]
    return {"y": y, "none": None, "x": x}


@pytest.mark.parametrize("function", [in_a_branch, in_a_loop])
def test_what_gradients_need_is_no_result(function: Any, tmp_path: Path) -> None:
    # TensorFlow appends it to the outputs of the concrete function.
    concrete = tf.function(function).get_concrete_function(tf.TensorSpec([3], tf.float32))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = concrete(x)["y"]
    np.testing.assert_allclose(tape.gradient(y, x), y * np.exp(X), rtol=1e-6)
    hostcall.export(concrete).save(tmp_path)
    results = hostcall_mlir.load(tmp_path).call(X)
    assert results["none"] is None
    np.testing.assert_allclose(results["y"], np.exp(np.exp(X)), rtol=1e-6)
    np.testing.assert_array_equal(results["x"], X)
