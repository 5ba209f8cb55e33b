#!/usr/bin/env bash
# tf.expand_dims(array, 0) changes when the NumPy array does, if that is aligned to 64 bytes.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: a NumPy array that becomes a batch of one, eagerly, and is filled anew afterwards, as
#   for the next picture.
# Behaviour: the result of ops that give their input on, such as expand_dims, squeeze,
#   ensure_shape, bitcast and stop_gradient, is NumPy's memory if its address is a multiple of 64
#   bytes, and a copy otherwise. NumPy promises no such address, so it is a matter of chance
#   whether an earlier batch changes. tf.constant, tf.reshape, tf.identity and calls of a
#   tf.function always copy.
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


def array(offset):
    """Return a row of ones that begins `offset` bytes behind a multiple of 64."""
    memory = np.zeros(1024 + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    values = memory[begin : begin + 1024].view(np.float32).reshape(1, -1)
    values[:] = 1.0
    return values


tf.constant(1.0)  # starts TensorFlow; the first op of a process copies
WAYS = {
    "tf.expand_dims": lambda x: tf.expand_dims(x, 0),
    "tf.squeeze": tf.squeeze,
    "tf.ensure_shape": lambda x: tf.ensure_shape(x, [1, None]),
    "tf.bitcast": lambda x: tf.bitcast(tf.bitcast(x, tf.int32), tf.float32),
    "tf.reshape": lambda x: tf.reshape(x, [1, -1]),
    "tf.identity": tf.identity,
    "tf.stop_gradient": tf.stop_gradient,
    "tf.constant": tf.constant,
    "tf.function": tf.function(lambda x: x),
}
for name, way in WAYS.items():
    found = []
    for offset in (0, 16):
        values = array(offset)
        tensor = way(values)
        values[:] = 2.0
        found.append(float(tf.reshape(tensor, [-1])[0]))
    print(f"{name}: 1.0 is now {found[0]} where aligned, {found[1]} elsewhere")
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
tf.expand_dims: 1.0 is now 2.0 where aligned, 1.0 elsewhere
tf.squeeze: 1.0 is now 2.0 where aligned, 1.0 elsewhere
tf.ensure_shape: 1.0 is now 2.0 where aligned, 1.0 elsewhere
tf.bitcast: 1.0 is now 2.0 where aligned, 1.0 elsewhere
tf.reshape: 1.0 is now 1.0 where aligned, 1.0 elsewhere
tf.identity: 1.0 is now 1.0 where aligned, 1.0 elsewhere
tf.stop_gradient: 1.0 is now 2.0 where aligned, 1.0 elsewhere
tf.constant: 1.0 is now 1.0 where aligned, 1.0 elsewhere
tf.function: 1.0 is now 1.0 where aligned, 1.0 elsewhere
END
