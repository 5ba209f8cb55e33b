"""hostcall._tf.eager_execution: gradients are those of `tf.GradientTape`, in a shorter way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hostcall._tf import eager_execution, features
from hostcall_runtime._patching import Name

Function = Callable[[Any, Any], Any]

X = [1.0, -2.0, 3.0]
Y = [2.0, 4.0, 8.0]
DY = [0.5, 2.0, -1.0]


@pytest.fixture(params=[True, False], ids=["the short way", "TensorFlow's way"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(features.QUICK_GRADIENTS, "missing", [Name("nothing", "", "", "")])


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x * x * y,
        lambda x, y: tf.gather(x, [2, 0, 2]) * y,  # whose gradient is IndexedSlices
        lambda x, y: x + 1.0,  # which has none for y
    ],
    ids=["product", "gather", "unconnected"],
)
@pytest.mark.parametrize("make", [tf.constant, tf.Variable])
@pytest.mark.parametrize("ended", [True, False])
def test_gradients_are_those_of_the_tape(
    function: Function, make: Callable[[Any], Any], ended: bool
) -> None:
    x, y, dy = tf.constant(X), make(Y), tf.constant(DY)
    with contextlib.ExitStack() as recording:
        tape = recording.enter_context(tf.GradientTape(persistent=True))
        eager_execution.watch(tape, [x] if make is tf.Variable else [x, y])
        target = function(x, y)
        if ended:
            recording.close()
        found = eager_execution.gradients(tape, [target], [x, y], [dy])

    with tf.GradientTape() as tape:
        tape.watch([x, y])
        target = function(x, y)
    expected = tape.gradient([target], [x, y], [dy], tf.UnconnectedGradients.ZERO)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs))


@pytest.mark.usefixtures("_way")
def test_what_has_no_gradient_is_not_watched() -> None:
    number, x = tf.constant([1, 2, 3]), tf.constant(X)
    with tf.GradientTape() as tape:
        eager_execution.watch(tape, [number, x])
        target = tf.cast(number, tf.float32) * x
    (gradient,) = eager_execution.gradients(tape, [target], [x], [tf.constant(DY)])
    np.testing.assert_array_equal(gradient, np.multiply([1, 2, 3], DY))
