"""Files of all kinds that name Python functions, for `hostcall.inspect`."""

import json
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import hostcall
from tests.support.saved import functions, keras_models

SPEC = tf.TensorSpec([4], tf.float32)

doubled = hostcall.callback(
    lambda v: v + v, result=lambda v: v, timeout=5.0, name="tests::inspected_double"
)


class Encoder(tf.Module):
    """A function in an object in the model, with a gradient in another one."""

    @tf.function(input_signature=[SPEC], autograph=False)
    def encode(self, x: Any) -> Any:
        return tf.ensure_shape(tf.py_function(functions.cube, [x], tf.float32), [4])


class Model(tf.Module):
    """Functions with names and without, in signatures, functions and branches."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    @tf.function(input_signature=[SPEC], autograph=False, jit_compile=True)
    def step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = self.encoder.encode(x)
        return {"y": doubled(y), "dy": tape.gradient(y, x)}

    @tf.function(input_signature=[SPEC], autograph=False)
    def choose(self, x: Any) -> Any:
        halved = lambda: tf.numpy_function(functions.halve, [x], SPEC)  # noqa: E731
        return tf.cond(x[0] > 0.0, halved, lambda: tf.numpy_function(lambda v: v, [x], SPEC))


def write(folder: str) -> str:
    model = Model()
    with hostcall.save_options(pickle=True):
        tf.saved_model.save(model, f"{folder}/model", signatures={"train": model.step})
    loaded = tf.saved_model.load(f"{folder}/model")
    frozen = convert_variables_to_constants_v2(loaded.choose.concrete_functions[0])
    tf.io.write_graph(frozen.graph, folder, "frozen.pb", as_text=False)
    tf.io.write_graph(frozen.graph, folder, "frozen.pbtxt")
    _write_meta_graph(f"{folder}/graph.meta")
    _write_keras(f"{folder}/model.keras")
    halve = hostcall.callback(functions.halve, result=lambda x: x)
    program = tf.function(lambda x: doubled(halve(x)), jit_compile=True, autograph=False)
    hostcall.export(program, SPEC).save(f"{folder}/program")
    Path(folder, "broken.pb").write_bytes(b"\xff\xffno graph")
    Path(folder, "broken.keras").write_bytes(b"no archive")
    return json.dumps("written")


def _write_meta_graph(path: str) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session():
        x = v1.placeholder(tf.float32, [4])
        tf.numpy_function(functions.halve, [x], tf.float32)
        v1.train.export_meta_graph(path)


def _write_keras(path: str) -> None:
    inputs = keras.Input([4])
    y = keras_models.Halving()(inputs)
    y = keras_models.Registered()(y)
    outputs = keras.layers.Lambda(lambda t: t + 1, output_shape=(4,))(y)
    model = keras.Model(inputs, outputs)
    model.compile("adam", keras_models.cubic_loss, metrics=[keras.metrics.mean_absolute_error])
    model.save(path)


def inspect_all(folder: str) -> str:
    """The headlines of all files, in a process that may import; and what it has imported."""
    import sys

    headlines = [
        hostcall.inspect(Path(folder, name)).headline
        for name in ("model", "frozen.pb", "frozen.pbtxt", "graph.meta", "model.keras", "program")
    ]
    return json.dumps([headlines, "hostcall_tests_not_imported" in sys.modules])
