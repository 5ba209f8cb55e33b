"""Models that are trained, saved, loaded, trained further, saved again, and frozen."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.saved import functions

X = tf.constant([[1.0, 2.0], [0.5, -1.0], [2.0, 0.25]])
Y = tf.constant([3.0, -1.0, 1.5])
MODULE = functions.__name__


class Model(tf.Module):
    """A linear model whose loss goes through Python, with a step of training of its own."""

    def __init__(self, jitted: bool) -> None:
        super().__init__()
        self.w = tf.Variable([0.5, -0.25])
        specs = [tf.TensorSpec([3, 2], tf.float32), tf.TensorSpec([3], tf.float32)]
        self.loss = tf.function(self._loss, input_signature=specs, jit_compile=jitted)
        self.step = tf.function(self._step, input_signature=specs, jit_compile=jitted)

    def _loss(self, x: Any, y: Any) -> Any:
        error = tf.linalg.matvec(x, self.w) - y
        cubes = tf.ensure_shape(tf.py_function(functions.cube, [error], tf.float32), [3])
        pure = tf.ensure_shape(tf.py_function(functions.pure_cube, [error], tf.float32), [3])
        return tf.reduce_mean(tf.abs(cubes) + tf.abs(pure))

    def _step(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self._loss(x, y)
        self.w.assign_sub(0.01 * tape.gradient(loss, self.w))
        return loss


def train(model: Any) -> list[str]:
    """Steps of training, inside of the model and around it; what they have come to, as bytes."""
    found = []
    for _ in range(3):
        found.append(model.step(X, Y))
        with tf.GradientTape() as tape:
            loss = model.loss(X, Y)
        gradient = tape.gradient(loss, model.w)
        model.w.assign_sub(0.01 * gradient)
        found += [loss, gradient, model.w]
    return [np.asarray(value).tobytes().hex() for value in found]


def begin(folder: str, jitted: bool) -> list[str]:
    """Trains and saves; then trains on, uninterrupted."""
    model = Model(jitted)
    train(model)
    tf.saved_model.save(model, f"{folder}/first")
    return train(model)


def go_on(folder: str, before: str, after: str) -> list[str]:
    """Loads what was saved, saves it again at once, and trains on."""
    hostcall.allow(MODULE)
    model = tf.saved_model.load(f"{folder}/{before}")
    tf.saved_model.save(model, f"{folder}/{after}_uncalled")
    trained = train(model)
    # With the values that it was loaded with, and after its functions were called.
    model.w.assign(tf.saved_model.load(f"{folder}/{before}").w)
    tf.saved_model.save(model, f"{folder}/{after}")
    return trained


def begin_version_1(folder: str) -> list[str]:
    """Saves a graph with a gradient in it, as TensorFlow 1 does."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [3], name="x")
        y = tf.py_function(functions.cube, [x], tf.float32)
        results = {"y": tf.identity(y), "dx": tf.gradients(y, x)[0]}
        v1.saved_model.simple_save(session, f"{folder}/v1", {"x": x}, results)
        found = session.run(results, {x: [1.0, 2.0, 3.0]})
    return [found[name].tobytes().hex() for name in ("y", "dx")]


def go_on_version_1(folder: str) -> list[str]:
    hostcall.allow(MODULE)
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.load(session, ["serve"], f"{folder}/v1")
        signature = meta.signature_def["serving_default"]
        names = [signature.outputs[name].name for name in ("y", "dx")]
        found = session.run(names, {signature.inputs["x"].name: [1.0, 2.0, 3.0]})
    return [value.tobytes().hex() for value in found]


def freeze(folder: str) -> list[str]:
    """Loads the first model, freezes its loss, and writes the graph into a file."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    hostcall.allow(MODULE)
    model = tf.saved_model.load(f"{folder}/first")
    frozen = convert_variables_to_constants_v2(model.loss.concrete_functions[0])
    (Path(folder) / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    names = [*(tensor.name for tensor in frozen.inputs), frozen.outputs[0].name]
    (Path(folder) / "names.txt").write_text("\n".join(names))
    return [model.loss(X, Y).numpy().tobytes().hex()]


def thaw(folder: str) -> list[str]:
    hostcall.allow(MODULE)
    definition = tf.compat.v1.GraphDef.FromString((Path(folder) / "frozen.pb").read_bytes())
    x, y, result = (Path(folder) / "names.txt").read_text().splitlines()
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.graph_util.import_graph_def(definition, name="")
        found = session.run(graph.get_tensor_by_name(result), {x: X_ARRAY, y: Y_ARRAY})
    return [found.tobytes().hex()]


X_ARRAY, Y_ARRAY = X.numpy(), Y.numpy()
