#!/usr/bin/env bash
# What a tf.numpy_function calls in a tf.function stays in memory when the tf.function is gone.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: a tf.function that is made, traced and dropped, and whose Python function holds an
#   array, as a dataset or a table of labels may be.
# Behaviour: TensorFlow keeps the Python function for the graph that calls it. If that is a
#   function's graph, it gives it to the outermost graph, and that is the default one of the
#   process. So each tf.function that is made anew, or traced for another shape with a local
#   function, adds one that stays for ever. An eager tf.py_function does the same: a loop that
#   calls it with a new lambda each time grows. An eager tf.numpy_function, and graphs of
#   tf.Graph, keep nothing.
# It exits with 0 if it sees the lines at its end, and with 1 if TensorFlow behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile tensorflow-cpu==2.21.0 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import gc
import weakref

import numpy as np
import tensorflow as tf


class Table:
    def __init__(self):
        self.values = np.ones(1000, np.float32)

    def __call__(self, x):
        return x * self.values[0]


def traced(op):
    table = Table()
    function = tf.function(lambda x: op(table, [x], tf.float32))
    graph = function.get_concrete_function(tf.TensorSpec([], tf.float32)).graph
    return weakref.ref(table), weakref.ref(graph)


def eager(op):
    table = Table()
    op(table, [tf.constant(1.0)], tf.float32)
    return weakref.ref(table), lambda: None


def in_a_graph(op):
    table = Table()
    with tf.Graph().as_default() as graph:
        op(table, [tf.constant(1.0)], tf.float32)
    return weakref.ref(table), weakref.ref(graph)


OPS = {"numpy_function": tf.numpy_function, "py_function": tf.py_function}
for name, op in OPS.items():
    for made in (traced, eager, in_a_graph):
        references = made(op)
        for _ in range(3):
            gc.collect()
        table, graph = ("kept" if reference() is not None else "freed" for reference in references)
        print(name, made.__name__, "table", table, "graph", graph)
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
numpy_function traced table kept graph freed
numpy_function eager table freed graph freed
numpy_function in_a_graph table freed graph freed
py_function traced table kept graph freed
py_function eager table kept graph freed
py_function in_a_graph table freed graph freed
END
