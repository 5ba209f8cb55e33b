"""Programs in which something has no gradient; run by itself, it prints what stock TensorFlow says.

Every function takes and returns two floats, or what `dtypes` says, two of each.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

X = tf.constant([1.5, 2.0])
VARIABLE = tf.Variable(3.0)
PROGRAMS: dict[str, Callable[[Any, tf.Tensor], tf.Tensor]] = {}


class Ops:
    def numpy(self, function: Any, *inputs: Any, dtypes: Any = tf.float32) -> Any:
        return self._shaped(tf.numpy_function(function, inputs, dtypes))

    def eager(self, function: Any, *inputs: Any, dtypes: Any = tf.float32) -> Any:
        return self._shaped(tf.py_function(function, inputs, dtypes))

    def _shaped(self, results: Any) -> Any:
        for result in tf.nest.flatten(results):
            result.set_shape([2])
        return results


def program(function: Callable[[Any, tf.Tensor], tf.Tensor]) -> Callable[[Any, tf.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def gradient_that_raises(ops: Any, x: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def function(x: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            raise ValueError("no gradient here")

        return x * x, gradient

    return ops.eager(function, x)


def _integer_beside_a_float(x: tf.Tensor) -> Any:
    return tf.cast(x, tf.int32), x * x


PROGRAMS |= {
    "computed_by_numpy": lambda ops, x: ops.numpy(np.square, x),
    "computed_by_numpy_in_part": lambda ops, x: ops.numpy(np.square, x) + 2.0 * x,
    "integer_result": lambda ops, x: tf.cast(
        ops.eager(lambda x: tf.cast(x, tf.int32), x, dtypes=tf.int32), tf.float32
    ),
    "integer_result_beside_a_float": lambda ops, x: tf.cast(
        ops.eager(_integer_beside_a_float, x, dtypes=[tf.int32, tf.float32])[0], tf.float32
    ),
    "integer_input": lambda ops, x: ops.eager(
        lambda n: tf.cast(n, tf.float32), tf.cast(x, tf.int32)
    ),
    "stopped_before": lambda ops, x: ops.eager(tf.square, tf.stop_gradient(x)),
    "stopped_inside": lambda ops, x: ops.eager(lambda x: 2.0 * tf.stop_gradient(x), x),
    "stopped_in_part": lambda ops, x: ops.eager(lambda x: x * tf.stop_gradient(x), x),
    "numpy_inside": lambda ops, x: ops.eager(lambda x: x.numpy() ** 2, x),
    "numpy_in_part": lambda ops, x: ops.eager(lambda x: x.numpy() * x, x),
    "numpy_function_inside": lambda ops, x: ops.eager(
        lambda x: tf.numpy_function(np.square, [x], tf.float32), x
    ),
    "independent_of_the_input": lambda ops, x: ops.eager(lambda x: tf.ones([2]), x),
    "rounded": lambda ops, x: ops.eager(tf.round, x),
    "branch_without_taken": lambda ops, x: tf.cond(
        x[0] > 0.0, lambda: ops.numpy(np.square, x), lambda: ops.eager(tf.square, x)
    ),
    "branch_without_not_taken": lambda ops, x: tf.cond(
        x[0] < 0.0, lambda: ops.numpy(np.square, x), lambda: ops.eager(tf.square, x)
    ),
    "both_branches_without": lambda ops, x: tf.cond(
        x[0] < 0.0, lambda: ops.numpy(np.square, x), lambda: ops.numpy(np.sqrt, x)
    ),
    "captured_variable": lambda ops, x: ops.eager(lambda x: x * VARIABLE, x),
    "variable_as_input": lambda ops, x: ops.eager(lambda x, v: x * v, x, VARIABLE),
}


@program
def string_input(ops: Any, x: tf.Tensor) -> tf.Tensor:
    return ops.eager(lambda text, x: x * x, tf.constant(["a", "b"]), x)


@program
def string_result(ops: Any, x: tf.Tensor) -> tf.Tensor:
    dtypes = [tf.string, tf.float32]
    return ops.eager(lambda x: (tf.as_string(x), x * x), x, dtypes=dtypes)[1]


def _asked(function: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    """The gradients by X and VARIABLE, and the number of variables that the tape has seen."""
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = function(X)
    watched = len(tape.watched_variables())
    return [*tape.gradient(y, [X, VARIABLE]), watched]


def _as_json(gradient: Any) -> Any:
    # Stock TensorFlow's zeros have no shape.
    return None if gradient is None else np.broadcast_to(gradient, X.shape).tolist()


def outcome(mode: Any, inside: bool, ops: Any, program: Callable[..., Any]) -> Any:
    def function(x: tf.Tensor) -> tf.Tensor:
        return program(ops, x)

    try:
        *gradients, watched = mode(lambda: _asked(function))() if inside else _asked(mode(function))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [*map(_as_json, gradients), int(watched)]


def outcomes(mode: Any, ops: Any) -> dict[str, Any]:
    return {
        name: [outcome(mode, inside, ops, program) for inside in (True, False)]
        for name, program in PROGRAMS.items()
    }


if __name__ == "__main__":
    stock = {"eagerly": outcomes(lambda f: f, Ops()), "in a graph": outcomes(tf.function, Ops())}
    json.dump(stock, sys.stdout)
