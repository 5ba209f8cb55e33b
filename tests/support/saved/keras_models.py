"""A Keras model that is exported, and loaded as a layer and by `saved_model_cli`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import hostcall
from tests.support.saved import functions

ONES = np.ones([2, 4], np.float32)


class Halving(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(functions.halve, [x], tf.float32), [None, 4])

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


@keras.saving.register_keras_serializable("tests")
class Registered(keras.layers.Layer):
    """A layer that files know by the name that it was registered under."""

    def call(self, x: Any) -> Any:
        return x


def export(path: str) -> str:
    """Exports it, and tells what it computes."""
    inputs = keras.Input([4], name="x")
    outputs = keras.layers.Dense(2, kernel_initializer="ones")(Halving()(inputs))
    model = keras.Model(inputs, outputs)
    model.export(path, verbose=False)
    return str(np.asarray(model(ONES)).tolist())


def as_layer(path: str) -> str:
    """What it computes as a layer of another model."""
    hostcall.allow(functions.__name__)
    inputs = keras.Input([4])
    layer = keras.layers.TFSMLayer(path, call_endpoint="serve")
    model = keras.Model(inputs, layer(inputs))
    return str(model.predict(ONES, verbose=0).tolist())


def by_command(path: str) -> None:
    """Prints what `saved_model_cli run` prints, in a process that imports hostcall."""
    import sys

    from tensorflow.python.tools import saved_model_cli

    options = ["--tag_set", "serve", "--signature_def", "serving_default", "--input_exprs"]
    sys.argv = ["saved_model_cli", "run", "--dir", path, *options, f"x={ONES.tolist()}"]
    saved_model_cli.main()
