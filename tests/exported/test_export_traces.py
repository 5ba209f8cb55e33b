"""hostcall.export: which trace of a function it compiles, and what autograph makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.exported.test_export import export_and_load
from tests.support.exported import exported, user_code
from tests.support.exported.exported import F3, X
from tests.support.versions import reads_programs_of_jax


class Scaled(tf.Module):
    """Methods that TensorFlow traces for any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def signed(self, x: tf.Tensor) -> tf.Tensor:
        return call_of_its_shape(x) * self.factor

    @tf.function(autograph=False)
    def traced(self, x: tf.Tensor) -> tf.Tensor:
        return call_of_its_shape(x) * self.factor


def call_of_its_shape(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(user_code.half, [x], tf.TensorSpec(x.shape, x.dtype))


@pytest.mark.parametrize("name", ["signed", "traced"])
def test_sizes_are_those_of_the_specs_where_a_wider_trace_is_there(
    name: str, tmp_path: Path
) -> None:
    scaled = Scaled()  # of which the function does not take hold
    function = getattr(scaled, name)
    function.get_concrete_function(tf.TensorSpec([None], tf.float32))
    loaded = export_and_load(tmp_path, function, F3)
    assert loaded.manifest.inputs[0].spec.shape == (3,)
    np.testing.assert_array_equal(loaded(X), X)


@reads_programs_of_jax
def test_autograph_leaves_export_and_load_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tf.function
    def program(x: tf.Tensor) -> tf.Tensor:
        return export_and_load(tmp_path, exported.straight, F3)(x)

    np.testing.assert_allclose(program(X), exported.straight(X), rtol=1e-6)
    assert "AutoGraph" not in caplog.text
