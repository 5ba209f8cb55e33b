#!/usr/bin/env bash
# tf.constant(2) == np.array(2.7) is True in TensorFlow, and 1 + np.array(2.7) is 3.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: operators and functions of an integer tensor and a number of NumPy's that is no integer or
#   does not fit; eagerly, in a tf.function, and compiled.
# Behaviour: a Python number of 2.7 beside an int32 tensor is an error. NumPy's, an array or a
#   np.float64, is cast to the dtype of the tensor as by astype: 2.7 is 2, 300 is 44 as uint8, a
#   complex number loses its imaginary part. So different numbers are equal, and np.float64(2.7)
#   times 1 is 2. Nothing warns but for complex numbers. tf.concat and tf.stack take the dtype of
#   the first, tf.maximum and tf.where that of the tensor. jnp and torch promote instead.
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

small = np.array(2.7)


def one():
    return tf.constant(1)


def two():
    return tf.constant(2)


PROGRAMS = {
    "2 == 2.7": lambda: two() == 2.7,
    "2 == np.array(2.7)": lambda: two() == small,
    "2 < np.array(2.7)": lambda: two() < small,
    "1 + 2.7": lambda: one() + 2.7,
    "1 + np.array(2.7)": lambda: one() + small,
    "np.array(2.7) + 1": lambda: small + one(),
    "np.float64(2.7) * 1": lambda: np.float64(2.7) * one(),
    "2 ** np.array(0.5)": lambda: two() ** np.array(0.5),
    "uint8 44 == np.array(300)": lambda: tf.constant(44, tf.uint8) == np.array(300),
    "maximum(1, np.array(2.7))": lambda: tf.maximum(one(), small),
    "stack([1, np.array(2.7)])": lambda: tf.stack([one(), small]),
    "stack([np.array(2.7), 1])": lambda: tf.stack([small, one()]),
}
for name, program in PROGRAMS.items():
    seen = []
    for run in (program, tf.function(program), tf.function(program, jit_compile=True)):
        try:
            seen.append(str(run().numpy()))
        except (TypeError, tf.errors.InvalidArgumentError):
            seen.append("error")
    print(name, "is", " or ".join(sorted(set(seen))))
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
2 == 2.7 is error
2 == np.array(2.7) is True
2 < np.array(2.7) is False
1 + 2.7 is error
1 + np.array(2.7) is 3
np.array(2.7) + 1 is 3
np.float64(2.7) * 1 is 2
2 ** np.array(0.5) is 1
uint8 44 == np.array(300) is True
maximum(1, np.array(2.7)) is 2
stack([1, np.array(2.7)]) is [1 2]
stack([np.array(2.7), 1]) is [2 1]
END
