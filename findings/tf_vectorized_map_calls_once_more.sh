#!/usr/bin/env bash
# tf.vectorized_map calls a Python function four times for three elements: the first one twice.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: a vector of three elements, and a function of one that calls Python by tf.numpy_function
#   or tf.py_function, which are stateful unless one says otherwise.
# Behaviour: tf.vectorized_map traces the function for one element, and makes ops for all
#   elements of it. What it has traced stays in the graph, and its stateful calls run, too. So a
#   counter, a log, or a file has one entry too many, and a generator of random numbers is one
#   draw ahead. The values that are returned are right. tf.map_fn calls it three times, and so
#   does vectorized_map with `stateful=False`.
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
import tensorflow as tf

calls = []


def note(x):
    calls.append(float(x))
    return x


def numpy_function(x):
    return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), [])


def py_function(x):
    return tf.ensure_shape(tf.py_function(note, [x], tf.float32), [])


def stateless(x):
    return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32, stateful=False), [])


MAPS = {"vectorized_map": tf.vectorized_map, "map_fn": tf.map_fn}
for name, map_ in MAPS.items():
    for function in (numpy_function, py_function, stateless):

        def mapped(x, map_=map_, function=function):
            return map_(function, x)

        for mode, program in (("eager", mapped), ("graph", tf.function(mapped))):
            calls.clear()
            values = program(tf.constant([1.0, 2.0, 3.0])).numpy().tolist()
            print(name, function.__name__, mode, values, "calls with", sorted(calls))
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
vectorized_map numpy_function eager [1.0, 2.0, 3.0] calls with [1.0, 1.0, 2.0, 3.0]
vectorized_map numpy_function graph [1.0, 2.0, 3.0] calls with [1.0, 1.0, 2.0, 3.0]
vectorized_map py_function eager [1.0, 2.0, 3.0] calls with [1.0, 1.0, 2.0, 3.0]
vectorized_map py_function graph [1.0, 2.0, 3.0] calls with [1.0, 1.0, 2.0, 3.0]
vectorized_map stateless eager [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
vectorized_map stateless graph [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
map_fn numpy_function eager [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
map_fn numpy_function graph [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
map_fn py_function eager [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
map_fn py_function graph [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
map_fn stateless eager [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
map_fn stateless graph [1.0, 2.0, 3.0] calls with [1.0, 2.0, 3.0]
END
