#!/usr/bin/env bash
# The fingerprints of a SavedModel that doubles and of one that triples have the same hashes.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: models whose function has other ops, other constants, or another Python function, saved,
#   and the hashes of the graph, the signatures, the objects and the checkpoint that TensorFlow
#   writes beside each.
# Behaviour: one of the hashes is said to be of the graph. But of what a tf.function computes no
#   hash sees anything: those of x * 2 are those of x * 3 and of sin(x), and models that call two
#   Python functions have the same ones. Another dtype of the argument changes them. Only the
#   uuid, which is random, differs in each file.
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
import tempfile

import numpy as np
import tensorflow as tf

HASHES = ("graph_def_program", "signature_def", "saved_object_graph", "checkpoint")


def hashes(function, dtype=tf.float32):
    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], dtype, name="x")])
        def __call__(self, x):
            return function(x)

    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(Model(), folder)
        read = tf.saved_model.experimental.read_fingerprint(folder)
    return [getattr(read, f"{name}_hash") for name in HASHES]


def of_python(function):
    return lambda x: tf.ensure_shape(tf.numpy_function(function, [x], tf.float32), [])


MODELS = {
    "x * 2": hashes(lambda x: x * 2),
    "x * 3": hashes(lambda x: x * 3),
    "sin(x)": hashes(tf.sin),
    "x * 2 of float64": hashes(lambda x: x * 2, tf.float64),
    "Python's sine": hashes(of_python(np.sin)),
    "Python's cosine": hashes(of_python(np.cos)),
}


def compare(first, second):
    pairs = zip(HASHES, MODELS[first], MODELS[second])
    others = [name for name, a, b in pairs if a != b]
    print(f"{first}, {second}: other hashes:", ", ".join(others) or "none")


for other in ("x * 3", "sin(x)", "x * 2 of float64"):
    compare("x * 2", other)
compare("Python's sine", "Python's cosine")
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
x * 2, x * 3: other hashes: none
x * 2, sin(x): other hashes: none
x * 2, x * 2 of float64: other hashes: graph_def_program, signature_def, saved_object_graph
Python's sine, Python's cosine: other hashes: none
END
