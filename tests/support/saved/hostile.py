"""A SavedModel whose bits are flipped."""

import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import hostcall

MODULE = "tests.support.saved.functions"
X = [4.0, 1.0, 1.0, 3.0]
FLIPS = 200


def write(path: str) -> str:
    from tests.support.saved import functions, pickled

    scale = pickled.Scale(2.0)

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)], autograph=False)
    def program(x: Any) -> Any:
        halved = tf.numpy_function(functions.halve, [x], tf.float32)
        return tf.py_function(functions.cube, [halved], tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)], autograph=False)
    def carried(x: Any) -> Any:
        return tf.numpy_function(scale.scale, [x], tf.float32)

    module = tf.Module()
    module.program, module.carried = program, carried
    with hostcall.save_options(pickle=True):
        tf.saved_model.save(module, path)
    return json.dumps(program(X).numpy().tolist())


def _outcome(path: str) -> Any:
    """Return the results or errors of the program and of the function carried by the model."""
    model, found = tf.saved_model.load(path), []
    for name in ("program", "carried"):
        try:
            found.append(getattr(model, name)(X).numpy().tolist())
        except (ValueError, tf.errors.OpError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def flip(path: str) -> str:
    """Flip bits in the tokens; return the outcomes, and the modules imported meanwhile."""
    warnings.simplefilter("ignore")
    hostcall.allow(MODULE)
    outcomes = [_outcome(path)]
    loaded = {*sys.modules}
    file = Path(path) / "saved_model.pb"
    intact, choice = file.read_bytes(), random.Random(16)
    for _ in range(FLIPS):
        model = saved_model_pb2.SavedModel.FromString(intact)
        functions = model.meta_graphs[0].graph_def.library.function
        nodes = [n for f in functions for n in f.node_def if "token" in n.attr]
        token = bytearray((node := choice.choice(nodes)).attr["token"].s)
        token[choice.randrange(len(token))] ^= 1 << choice.randrange(8)
        node.attr["token"].s = bytes(token)
        file.write_bytes(model.SerializeToString())
        outcomes.append(_outcome(path))
    return json.dumps([outcomes, sorted({*sys.modules} - loaded)])
