#!/usr/bin/env bash
# Executed eagerly, tf.numpy_function does not look at Tout: the result of tf.float32 is float64.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: functions that return Python's numbers, or NumPy's arrays, of another dtype than that in
#   Tout, in eager mode and in a tf.function.
# Behaviour: a tf.function raises an InvalidArgumentError, as the documentation says that the
#   dtypes have to match. Eagerly there is no op: the function is called, and what it returns
#   becomes a tensor of its own dtype. So a program that is tried eagerly goes on with float64,
#   and also takes more results than Tout has. tf.py_function converts in both modes.
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

RESULTS = {
    "np.float64(0.5) for float32": (lambda: np.float64(0.5), tf.float32),
    "np.int64(3) for float32": (lambda: np.int64(3), tf.float32),
    "np.array([True]) for string": (lambda: np.array([True]), tf.string),
    "two for [float32]": (lambda: (np.float32(1), np.float32(2)), [tf.float32]),
}
for name, (function, dtype) in RESULTS.items():

    def call(function=function, dtype=dtype):
        return tf.numpy_function(function, [], dtype)

    for mode, program in (("eager", call), ("graph", tf.function(call))):
        try:
            found = [result.dtype.name for result in tf.nest.flatten(program())]
        except tf.errors.OpError as error:
            found = type(error).__name__
        print(name, mode, found)
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
np.float64(0.5) for float32 eager ['float64']
np.float64(0.5) for float32 graph InvalidArgumentError
np.int64(3) for float32 eager ['int64']
np.int64(3) for float32 graph InvalidArgumentError
np.array([True]) for string eager ['bool']
np.array([True]) for string graph InvalidArgumentError
two for [float32] eager ['float32', 'float32']
two for [float32] graph InvalidArgumentError
END
