"""hostcall.callback of kind "eager": arguments by keyword, with gradients and composite tensors."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted, plain
from tests.support.memo import eagerly

X = tf.constant([1.0, 2.0, 3.0])


@pytest.mark.parametrize("mode", [eagerly, plain, jitted])
@pytest.mark.parametrize("pure", [True, False])
def test_gradients_are_those_of_the_call(pure: bool, mode: Any) -> None:
    @hostcall.callback(result=lambda x: x, kind="eager", pure=pure)
    def power(x: Any, exponent: float = 2.0, *, scale: Any = 1.0) -> Any:
        return scale * x**exponent

    def gradients(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = power(x) + power(x, exponent=3.0) + power(x, scale=x)
        return tape.gradient(y, x)

    np.testing.assert_allclose(mode(gradients)(X), 2 * X + 3 * X**2 + 3 * X**2)


@pytest.mark.parametrize("mode", [eagerly, plain])
def test_composite_tensors_and_variables(mode: Any) -> None:
    @hostcall.callback(result=tf.TensorSpec([], tf.float32), kind="eager")
    def total(*, rows: Any, scale: Any) -> Any:
        assert isinstance(rows, tf.RaggedTensor)
        return tf.reduce_sum(rows.flat_values) * scale

    rows, scale = tf.ragged.constant([[1.0], [2.0, 3.0]]), tf.Variable(2.0)
    assert mode(lambda: total(scale=scale, rows=rows))() == 12.0


def test_calls_with_a_time_limit() -> None:
    @hostcall.callback(result=lambda x: x, timeout=60.0)
    def scaled(x: Any, factor: float = 2.0) -> Any:
        return x * np.float32(factor)

    np.testing.assert_array_equal(jitted(lambda x: scaled(x, factor=3.0))(X), 3 * X)
