#!/usr/bin/env bash
# Dataset.from_generator makes 44 of 300 where the signature says uint8, and parses texts.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: a generator that yields a Python number, and an output_signature of another dtype.
# Behaviour: the values are cast without a check: fractions are cut, integers wrap around, NaN
#   becomes the least integer, and texts are parsed. NumPy raises an OverflowError for
#   np.array(300, np.uint8) and a ValueError for NaN, and a tf.numpy_function in a graph fails
#   for each of these, since its result has another dtype than declared. from_generator calls one
#   itself, but converts the values before.
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
import numpy as np
import tensorflow as tf

VALUES = [(300, tf.uint8), (-1, tf.uint8), (2.7, tf.int32), (float("nan"), tf.int32)]
VALUES.append(("7", tf.int32))


def outcome(function):
    try:
        return np.asarray(function()).tolist()
    except Exception as error:
        return type(error).__name__


for value, dtype in VALUES:

    def generated():
        signature = tf.TensorSpec([], dtype)
        dataset = tf.data.Dataset.from_generator(lambda: iter([value]), output_signature=signature)
        return next(dataset.as_numpy_iterator())

    ways = {
        "from_generator": generated,
        "np.array": lambda: np.array(value, dtype.as_numpy_dtype),
        "numpy_function": tf.function(lambda: tf.numpy_function(lambda: value, [], dtype)),
    }
    print(repr(value), dtype.name, *(f"{name} {outcome(way)}" for name, way in ways.items()))
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
300 uint8 from_generator 44 np.array OverflowError numpy_function InvalidArgumentError
-1 uint8 from_generator 255 np.array OverflowError numpy_function InvalidArgumentError
2.7 int32 from_generator 2 np.array 2 numpy_function InvalidArgumentError
nan int32 from_generator -2147483648 np.array ValueError numpy_function InvalidArgumentError
'7' int32 from_generator 7 np.array 7 numpy_function InvalidArgumentError
END
