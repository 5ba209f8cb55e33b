"""Other uses of SavedModels: signatures, checkpoints, rewriting, pruning, freezing."""

import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import hostcall
from hostcall._compiler.clusters import costs
from hostcall._tools.cli import rewrite_saved_model

costs.LAUNCH = 0.0  # a rewritten model lacks the shapes by which small clusters are left alone

MODULE = "tests.support.saved.functions"
X = tf.constant([4.0, 1.0, 1.0, 3.0])
STEPS = ["add", "add", "scaled", "reset", "add", "scaled"]
_SPEC = tf.TensorSpec([4], tf.float32)


class Accumulator(tf.Module):
    """Functions that assign a variable what Python returns."""

    def __init__(self) -> None:
        super().__init__()
        from tests.support.saved import functions

        self.functions = functions
        self.total = tf.Variable(0.5)

    @tf.function(input_signature=[_SPEC], autograph=False, jit_compile=True)
    def add(self, x: Any) -> Any:
        halved = tf.numpy_function(self.functions.halve, [x], _SPEC)
        return {"total": self.total.assign_add(tf.reduce_sum(halved))}

    @tf.function(input_signature=[_SPEC], autograph=False)
    def scaled(self, x: Any) -> Any:
        total = tf.numpy_function(self.functions.halve, [self.total], tf.float32)
        return {"total": x * tf.ensure_shape(total, [])}

    @tf.function(input_signature=[], autograph=False)
    def reset(self) -> Any:
        total = tf.py_function(self.functions.cube, [self.total / 10.0], tf.float32)
        return {"total": self.total.assign(tf.ensure_shape(total, []))}


def _run(signatures: Any) -> list[str]:
    found = []
    for name in STEPS:
        arguments = {} if name == "reset" else {"x": X}
        found.append(signatures[name](**arguments)["total"].numpy().tobytes().hex())
    return found


def write(folder: str) -> str:
    """Saves models; what they compute from there on, and from a checkpoint on."""
    from tests.support.saved import training

    accumulator, model = Accumulator(), training.Model(jitted=True)
    signatures = {name: getattr(accumulator, name) for name in ("add", "scaled", "reset")}
    tf.saved_model.save(accumulator, f"{folder}/accumulator", signatures=signatures)
    _save_version_1(f"{folder}/version_1")
    found: dict[str, Any] = _write_graphs(folder)
    found |= {"signatures": _run({name: getattr(accumulator, name) for name in signatures})}
    training.train(model)
    tf.saved_model.save(model, f"{folder}/model")
    loss = [model.loss(training.X, training.Y).numpy().tobytes().hex()]
    found |= {"loss": loss, "trained": training.train(model)}
    tf.train.Checkpoint(model).write(f"{folder}/checkpoint")
    return json.dumps({**found, "after_checkpoint": training.train(model)})


def _save_version_1(path: str) -> None:
    from tests.support.saved import functions

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [4], name="x")
        y = tf.numpy_function(functions.halve, [x], _SPEC)
        y = tf.numpy_function(functions.halve, [tf.identity(y, name="between")], _SPEC)
        v1.saved_model.simple_save(session, path, {"x": x}, {"y": tf.identity(y, name="y")})


def _write_graphs(folder: str) -> dict[str, Any]:
    """Graphs of TensorFlow 1 as `Saver` and others write them; and what they compute."""
    from tests.support.saved import functions

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=[0.5, -0.25, 1.0, 2.0], use_resource=True)
        cubes = tf.py_function(functions.cube, [w - X.numpy()], tf.float32)
        loss = tf.reduce_sum(tf.abs(tf.ensure_shape(cubes, [4])), name="loss")
        step = v1.train.GradientDescentOptimizer(1e-3).minimize(loss, name="step")
        session.run(v1.global_variables_initializer())
        session.run(step)
        v1.train.Saver().save(session, f"{folder}/saver")
        found = [session.run(loss).item()]
        frozen = v1.graph_util.convert_variables_to_constants(session, session.graph_def, ["loss"])
        Path(folder, "frozen.pb").write_bytes(hostcall.name_functions(frozen).SerializeToString())
        tf.io.write_graph(frozen, folder, "frozen.pbtxt")
        for _ in range(3):
            session.run(step)
            found.append(session.run(loss).item())
    return {"saver": found}


def _read_graphs(folder: str) -> dict[str, Any]:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(f"{folder}/saver.meta").restore(session, f"{folder}/saver")
        found = [session.run("loss:0").item()]
        for _ in range(3):
            session.run("step")
            found.append(session.run("loss:0").item())
    frozen = []
    for name, parse in [
        ("frozen.pb", v1.GraphDef.FromString),
        ("frozen.pbtxt", lambda data: text_format.Parse(data.decode(), v1.GraphDef())),
    ]:
        with tf.Graph().as_default(), v1.Session() as session:
            tf.graph_util.import_graph_def(parse(Path(folder, name).read_bytes()), name="")
            frozen.append(session.run("loss:0").item())
    return {"saver": found, "frozen graphs": frozen}


def use(folder: str) -> str:
    """Does with them in another process what people do."""
    rewrite_saved_model(Path(folder, "model"), Path(folder, "rewritten"), "partition")
    rewrite_saved_model(Path(folder, "accumulator"), Path(folder, "rewritten_too"), "partition")
    rewritten_without = MODULE not in sys.modules
    hostcall.allow(MODULE)
    found: dict[str, Any] = {"rewritten_without": rewritten_without, **_read_graphs(folder)}
    for name in ("accumulator", "rewritten_too"):
        found[f"signatures of {name}"] = _run(tf.saved_model.load(f"{folder}/{name}").signatures)
    found["pruned"] = _prune(f"{folder}/version_1")
    from tests.support.saved import training

    for name in ("model", "rewritten"):
        one, other = (tf.saved_model.load(f"{folder}/{name}") for _ in range(2))
        found[f"{name}, loaded twice"] = [training.train(one), training.train(other)]
        fresh = tf.saved_model.load(f"{folder}/{name}")
        frozen = convert_variables_to_constants_v2(fresh.loss.concrete_functions[0])
        loss = frozen(training.X, training.Y)
        found[f"{name}, frozen"] = [tf.nest.flatten(loss)[0].numpy().tobytes().hex()]
        tf.train.Checkpoint(one).read(f"{folder}/checkpoint").assert_consumed()
        found[f"{name}, restored"] = training.train(one)
    return json.dumps(found)


def _prune(path: str) -> list[float]:
    loaded = tf.saved_model.load(path)
    pruned = loaded.prune("between:0", "y:0")
    return [*pruned(X).numpy().tolist(), *loaded.prune("x:0", "between:0")(X).numpy().tolist()]
