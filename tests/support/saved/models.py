"""Models that one process saves and another one loads, and what they compute."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.saved import functions

MODULE = functions.__name__
X = [4.0, 1.0, 1.0, 3.0]
SPEC = tf.TensorSpec([4], tf.float32)

clip = hostcall.callback(functions.clipped, result=lambda x: x)
named = hostcall.callback(lambda v: v - 1, result=lambda v: v, name="tests::minus_one")
with_gradient = hostcall.callback(
    functions.halve, result=lambda v: v, grad=lambda inputs, results, upstream: upstream / 2
)


def _halved(x: Any) -> Any:
    return tf.numpy_function(functions.halve, [x], SPEC)


def _loop(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, _halved(y)), [0, x])[1]


def _total(x: Any) -> Any:
    tensors = {"a": x, "b": (x + 1, x + 2)}
    return tf.py_function(functions.total, [tensors], functions.Pair(SPEC, SPEC))


def _ragged(x: Any) -> Any:
    ragged = tf.RaggedTensor.from_row_splits(x, tf.constant([0, 1, 4], tf.int64))
    return tf.ensure_shape(tf.py_function(functions.ragged_sums, [ragged], tf.float32), [2])


def _concurrent(x: Any) -> Any:
    hostcall.declare(functions.met, concurrent=True)  # by the process that saves, and by no other
    met = [tf.numpy_function(functions.met, [x + i], SPEC, stateful=False) for i in range(2)]
    return tf.ensure_shape(met[0] + met[1], [4])


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "numpy_function": _halved,
    "stateless": lambda x: tf.numpy_function(functions.halve, [x], SPEC, stateful=False),
    "static_method": lambda x: tf.numpy_function(functions.Scale.triple, [x], SPEC),
    "py_function": lambda x: tf.ensure_shape(tf.py_function(functions.cube, [x], SPEC), [4]),
    "pure": lambda x: tf.ensure_shape(tf.py_function(functions.pure_cube, [x], SPEC), [4]),
    "py_func": lambda x: tf.ensure_shape(
        tf.compat.v1.py_func(functions.halve, [x], tf.float32), [4]
    ),
    "structured_results": lambda x: functions.structured(x),
    "structured_arguments": _total,
    "mapped": lambda x: tf.vectorized_map(functions.largest, tf.reshape(x, [2, 2])),
    "ragged": _ragged,
    "bounded": lambda x: functions.distinct(x) * 2.0,
    "unknown": lambda x: tf.numpy_function(functions.unique, [x], tf.float32) * 2.0,
    "strings": lambda x: tf.numpy_function(
        functions.upper, [tf.strings.as_string(x) + "a"], tf.string
    ),
    "keywords": lambda x: clip(x, high=2.5),
    "given_name": lambda x: named(x),
    "given_gradient": lambda x: with_gradient(x),
    "out": lambda x: tf.numpy_function(functions.doubled_into, [x], tf.float32),
    "concurrent": _concurrent,
    "memory": lambda x: functions.doubled_where_it_lies(x),
    "memo": lambda x: tf.numpy_function(functions.remembered, [x], tf.float32),
    "loop": _loop,
    "branch": lambda x: tf.cond(x[0] > 1.0, lambda: _halved(x), lambda: x),
}
DIFFERENTIABLE = {"py_function", "pure", "given_gradient"}
CASES = [f"{name}/{way}" for name in PROGRAMS for way in ("plain", "jitted")]


def build(programs: dict[str, Callable[[Any], Any]]) -> Any:
    module = tf.Module()
    for name, program in programs.items():
        for way in ("plain", "jitted"):
            function = tf.function(
                program, input_signature=[SPEC], jit_compile=way == "jitted", autograph=False
            )
            setattr(module, f"{name}_{way}", function)
    return module


def outcome(function: Callable[[Any], Any], differentiable: bool) -> list[str]:
    """The bytes of what a function returns, and of its gradient."""
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        results = function(x)
    values = [value.numpy() for value in tf.nest.flatten(results)]
    if differentiable:
        values.append(tape.gradient(results, x).numpy())
    return [repr(v.tolist()) if v.dtype == object else v.tobytes().hex() for v in values]


def outcomes(module: Any) -> dict[str, Any]:
    found = {}
    for case in CASES:
        name, way = case.split("/")
        try:
            found[case] = outcome(getattr(module, f"{name}_{way}"), name in DIFFERENTIABLE)
        except Exception as error:
            found[case] = [f"{type(error).__name__}: {error}"]
    return found


def save(path: str) -> str:
    """Saves the module, and tells what it computes, before and after."""
    module = build(PROGRAMS)
    before = outcomes(module)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, path, options=options)
    return json.dumps([before, outcomes(module), outcomes(tf.saved_model.load(path))])


def load(path: str) -> str:
    """Loads it where the functions have to be found, and tells what it computes."""
    hostcall.allow(MODULE)
    hostcall.provide("tests::minus_one", lambda v: v - np.float32(1))
    loaded = tf.saved_model.load(path)
    return json.dumps([outcomes(loaded), outcomes(loaded)])
