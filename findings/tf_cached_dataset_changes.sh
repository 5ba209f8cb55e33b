#!/usr/bin/env bash
# A cached dataset has other values in each epoch if the function after the cache adds in place.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: three rows in Dataset.cache(), and a map that calls a function by tf.numpy_function,
#   which does `x += 1` and returns x.
# Behaviour: the function gets the memory of the cached tensor, not a copy, so the second epoch
#   starts from the first one's result. What was zero is 1, then 2, then 3. A cache in a file,
#   and tf.py_function, give 1 in each epoch. The documentation of tf.numpy_function warns of
#   writing into arguments for the sake of the caller, but a cache is made to hold what it has.
#   With `x + 1` all is well.
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

import tensorflow as tf


def in_place(x):
    x += 1
    return x


def anew(x):
    return x + 1


def of_tensor(x):
    x = x.numpy()
    x += 1
    return x


def epochs(op, function, file=""):
    rows = tf.data.Dataset.from_tensor_slices(tf.zeros([3, 16])).cache(file)
    mapped = rows.map(lambda x: op(function, [x], tf.float32))
    return [[float(row[0]) for row in mapped.as_numpy_iterator()] for _ in range(3)]


with tempfile.TemporaryDirectory() as folder:
    print("numpy_function, in place", epochs(tf.numpy_function, in_place))
    print("numpy_function, in place, a file", epochs(tf.numpy_function, in_place, folder + "/rows"))
    print("numpy_function, anew", epochs(tf.numpy_function, anew))
    print("py_function", epochs(tf.py_function, of_tensor))
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
numpy_function, in place [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]]
numpy_function, in place, a file [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
numpy_function, anew [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
py_function [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
END
