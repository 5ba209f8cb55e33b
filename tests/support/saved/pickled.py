"""A model whose functions have no names: one process saves it with pickles, others load it."""

import functools
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.saved import functions, models
from tests.support.saved.models import SPEC, X


class Scale:
    """A factor whose class counts how often one was unpickled."""

    unpickled = 0

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __setstate__(self, state: Any) -> None:
        Scale.unpickled += 1
        self.__dict__.update(state)

    def scale(self, v: Any) -> Any:
        return v * np.float32(self.factor)


def _programs(factor: float) -> dict[str, Callable[[Any], Any]]:
    scale = Scale(factor)
    keyword = hostcall.callback(lambda v, by=1.0: v + np.float32(by * factor), result=lambda v: v)
    distinct = hostcall.callback(
        lambda v: np.unique(v), result=lambda v: hostcall.BoundedSpec(v.shape, v.dtype)
    )
    clipped = functools.partial(functions.clipped, high=factor)
    return {
        "lambda": lambda x: tf.numpy_function(lambda v: v * np.float32(factor), [x], SPEC),
        "method": lambda x: tf.numpy_function(scale.scale, [x], SPEC),
        "partial": lambda x: tf.numpy_function(clipped, [x], SPEC),
        "eager": lambda x: tf.ensure_shape(
            tf.py_function(lambda v: v * v * factor, [x], tf.float32), [4]
        ),
        "callback": lambda x: keyword(x, by=4.0),
        "bounded": lambda x: distinct(x) * 2.0,
        "named": lambda x: tf.numpy_function(functions.halve, [x], SPEC),
    }


CASES = [f"{name}/{way}" for name in _programs(1.0) for way in ("plain", "jitted")]


def outcomes(module: Any) -> dict[str, str]:
    """Return the results of each case, and the gradients of those that have one, as bytes."""
    found = {}
    for case in CASES:
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            try:
                y = getattr(module, case.replace("/", "_"))(x)
            except Exception as error:
                found[case] = f"{type(error).__name__}: {error}"
                continue
        values = [y, tape.gradient(y, x)] if case.startswith("eager") else [y]
        found[case] = "".join(value.numpy().tobytes().hex() for value in values)
    return found


def load(path: str, allow_pickle: bool) -> Any:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with hostcall.load_options(allow_pickle=allow_pickle):
            model = tf.saved_model.load(path)
    return model, [str(w.message) for w in warned if "hostcall" in str(w.message)]


def save(folder: str) -> str:
    """Saves two versions of the model, and tells what they compute."""
    computed = []
    for number, factor in enumerate((3.0, 5.0)):
        module = models.build(_programs(factor))
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
        with hostcall.save_options(pickle=True):
            tf.saved_model.save(module, f"{folder}/{number}", options=options)
        loaded, said = load(f"{folder}/{number}", False)  # the functions of this process
        assert outcomes(loaded) == outcomes(module)
        assert said == []
        computed.append(outcomes(module))
    return json.dumps([*computed, _save_version_1(f"{folder}/version_1")])


def _save_version_1(path: str) -> list[float]:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [4], name="x")
        y = tf.numpy_function(lambda v: v + np.float32(0.25), [x], tf.float32)
        with hostcall.save_options(pickle=True):
            v1.saved_model.simple_save(session, path, {"x": x}, {"y": tf.identity(y, name="y")})
        return session.run(y, {x: X}).tolist()


def _run_version_1(path: str) -> list[float]:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session, hostcall.load_options(allow_pickle=True):
        v1.saved_model.load(session, ["serve"], path)
        return session.run("y:0", {"x:0": X}).tolist()


def refused(folder: str) -> str:
    """Loads without permission, before and after with it; what is said, and what is computed."""
    hostcall.allow(functions.__name__)
    shutil.move(f"{folder}/0", f"{folder}/moved")
    model, said = load(f"{folder}/moved", False)
    found = {"said": said, "without": outcomes(model), "unpickled": Scale.unpickled}
    tf.saved_model.save(model, f"{folder}/uncalled")
    allowed, found["said_with"] = load(f"{folder}/moved", True)
    other, _ = load(f"{folder}/1", True)
    found["read_by_loading"] = Scale.unpickled
    found["with"], found["other"] = outcomes(allowed), outcomes(other)
    found["again"] = outcomes(load(f"{folder}/moved", False)[0])
    found["version_1"] = _run_version_1(f"{folder}/version_1")
    tf.saved_model.save(allowed, f"{folder}/called")
    return json.dumps(found)


def saved_again(folder: str) -> str:
    """Loads what processes saved that had loaded it, whether they had called it or not."""
    hostcall.allow(functions.__name__)
    shutil.rmtree(f"{folder}/moved")
    found = [outcomes(load(f"{folder}/{name}", True)[0]) for name in ("called", "uncalled")]
    return json.dumps(found)


def tampered(folder: str) -> str:
    """Loads with permission what was altered in several ways; what is said."""
    found = []
    files = sorted(Path(folder, "1", "assets.extra", "hostcall").iterdir())
    first, second = files[0].read_bytes(), files[1].read_bytes()
    for content in (first[:-1] + b"?", second, b"", None):
        if content is None:
            files[0].unlink()
        else:
            files[0].write_bytes(content)
        try:
            load(f"{folder}/1", True)
        except hostcall.LoweringError as error:
            found.append(str(error))
        found.append(load(f"{folder}/1", False)[1][0])
    return json.dumps([found, Scale.unpickled])
