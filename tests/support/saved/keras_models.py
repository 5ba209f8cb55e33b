"""Keras models that are exported or saved, and loaded as layers and by `saved_model_cli`."""

import json
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
    def call(self, x: Any) -> Any:
        return x


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.halving = Halving()
        self.dense = keras.layers.Dense(2, kernel_initializer="ones")

    def call(self, x: Any) -> Any:
        return self.dense(self.halving(x))


@keras.saving.register_keras_serializable("tests")
def cubic_loss(y: Any, predicted: Any) -> Any:
    cubes = tf.py_function(functions.cube, [predicted - y], tf.float32)
    return tf.reduce_mean(tf.abs(tf.ensure_shape(cubes, [None, 2])), axis=-1)


def _functional(layer: Any) -> Any:
    inputs = keras.Input([4], name="x")
    outputs = keras.layers.Dense(2, kernel_initializer="ones")(layer(inputs))
    return keras.Model(inputs, outputs)


def _with_lambda(function: Any) -> Any:
    call = lambda x: tf.ensure_shape(tf.numpy_function(function, [x], tf.float32), [None, 4])  # noqa: E731
    return _functional(keras.layers.Lambda(call, output_shape=(4,)))


MODELS: dict[str, Any] = {
    "functional": lambda: _functional(Halving()),
    "subclassed": Subclassed,
    "lambda": lambda: _with_lambda(functions.halve),
    "pickled": lambda: _with_lambda(lambda v: v / np.float32(4)),
}
SAVED = ["functional", "subclassed"]


def write(folder: str) -> str:
    """Exports models, and saves those that Keras can read again; what they compute."""
    found: dict[str, Any] = {}
    for name, make in MODELS.items():
        model = make()
        found[name] = np.asarray(model(ONES)).tolist()
        with hostcall.save_options(pickle=name == "pickled"):
            model.export(f"{folder}/{name}", verbose=False)
    for name in SAVED:
        model = MODELS[name]()
        model.compile("adam", cubic_loss, jit_compile=True)
        _train(model)
        model.save(f"{folder}/{name}.keras")
        found[f"{name}.keras"] = _train(model)
    return json.dumps(found)


def _train(model: Any) -> list[str]:
    model.fit(ONES, np.zeros([2, 2], np.float32), epochs=2, verbose=0)
    return [np.asarray(weight).tobytes().hex() for weight in model.trainable_variables]


def read(folder: str) -> str:
    """Run the models as layers of another model, and train the saved ones; return the results."""
    hostcall.allow(functions.__name__)
    found: dict[str, Any] = {}
    for name in MODELS:
        inputs = keras.Input([4])
        with hostcall.load_options(allow_pickle=name == "pickled"):
            layer = keras.layers.TFSMLayer(f"{folder}/{name}", call_endpoint="serve")
        found[name] = keras.Model(inputs, layer(inputs)).predict(ONES, verbose=0).tolist()
    for name in SAVED:
        named = {"Halving": Halving}  # which is registered nowhere
        model = keras.saving.load_model(f"{folder}/{name}.keras", named)
        found[f"{name}.keras"] = _train(model)
    return json.dumps(found)


def by_command(path: str) -> None:
    """Prints what `saved_model_cli run` prints, in a process that imports hostcall."""
    import sys

    from tensorflow.python.tools import saved_model_cli

    options = ["--tag_set", "serve", "--signature_def", "serving_default", "--input_exprs"]
    sys.argv = ["saved_model_cli", "run", "--dir", path, *options, f"x={ONES.tolist()}"]
    saved_model_cli.main()
