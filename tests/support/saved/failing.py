"""SavedModels of functions that raise errors for some values, and have graph mode's values."""

import json
import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import hostcall
from tests.support.exported import failing, user_code
from tests.support.saved import functions

# What only graph mode computes so.
VALUES = np.array([2.0, np.nan, -0.5], np.float32)
TABLE = np.arange(4, dtype=np.float32)
GOOD, BAD = np.array([[1], [3]], np.int32), np.array([[1], [4]], np.int32)


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = failing.Steps()
        self.compiled, self.plain, self.outer = {}, {}, {}
        for name, case in failing.FAILING.items():
            specs = case.specs
            self.compiled[name] = tf.function(case.function, specs, jit_compile=True)
            self.plain[name] = tf.function(case.function, specs)
            self.outer[name] = _calling(self.compiled[name], specs)
        spec = [tf.TensorSpec([3])]
        self.values = tf.function(failing.of_values, spec, jit_compile=True)
        self.plain_values = tf.function(failing.of_values, spec)


def _calling(function: Any, specs: list[tf.TensorSpec]) -> Any:
    return tf.function(lambda *args: function(*args), specs)


class Looking(keras.layers.Layer):
    """A layer that looks indices up, and calls Python."""

    def call(self, x: Any) -> Any:
        found = tf.gather(tf.constant(TABLE), x)
        return tf.ensure_shape(tf.numpy_function(functions.halve, [found], tf.float32), [None, 1])

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def keras_model() -> Any:
    inputs = keras.Input([1], dtype="int32", name="x")
    outputs = keras.layers.Dense(2, kernel_initializer="ones")(Looking()(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", jit_compile=True)
    return model


def _outcome(function: Any, args: Any) -> Any:
    """The results of a call as text, or the class of its error and the op; and the effects."""
    user_code.seen.clear()
    try:
        results = tf.nest.map_structure(lambda t: np.asarray(t).tolist(), function(*args))
    except tf.errors.OpError as error:
        op = re.search(r"\{\{node ([^}]*)\}\}", error.message)
        return [type(error).__name__, op and op[1].rpartition("/")[2], len(user_code.seen)]
    return [json.dumps(results, sort_keys=True), len(user_code.seen)]


def _outcomes(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, case in failing.FAILING.items():
        for kind in ("compiled", "outer", "plain"):
            function = getattr(model, kind)[name]
            found[f"{name} {kind}"] = [
                _outcome(function, map(tf.constant, args))
                for args in (case.good, case.bad, case.good, case.bad)
            ]
    found["steps"] = [
        _outcome(model.steps.step, (np.ones(3, np.float32), i)) for i in (1, 9, 2, 9)
    ] + [int(model.steps.count)]
    found["values compiled"] = _outcome(model.values, [tf.constant(VALUES)])
    found["values plain"] = _outcome(model.plain_values, [tf.constant(VALUES)])
    return found


def _of_keras(model: Any, fits: bool = True) -> dict[str, Any]:
    def fit(x: Any) -> Any:
        model.fit(x, np.zeros([2, 2], np.float32), verbose=0)
        return model.get_weights()

    calls: dict[str, Any] = {"predict": lambda x: model.predict(x, verbose=0)}
    calls |= {"fit": fit} if fits else {}
    return {
        name: [_outcome(call, [x]) for x in (GOOD, BAD, GOOD, BAD)] for name, call in calls.items()
    }


def save(folder: str) -> str:
    """Save the models; return what they compute."""
    model, made = Model(), keras_model()
    tf.saved_model.save(model, f"{folder}/model")
    made.save(f"{folder}/model.keras")
    made.export(f"{folder}/exported", verbose=False)
    return json.dumps({"model": _outcomes(model), "keras": _of_keras(made)})


def load(folder: str) -> str:
    """Load the models; return what they compute."""
    hostcall.allow("tests.support")
    model = tf.saved_model.load(f"{folder}/model")
    made = keras.saving.load_model(f"{folder}/model.keras", {"Looking": Looking})
    layer = keras.layers.TFSMLayer(f"{folder}/exported", call_endpoint="serve")
    inputs = keras.Input([1], dtype="int32")
    exported = _of_keras(keras.Model(inputs, layer(inputs)), fits=False)
    return json.dumps({"model": _outcomes(model), "keras": _of_keras(made), "exported": exported})
