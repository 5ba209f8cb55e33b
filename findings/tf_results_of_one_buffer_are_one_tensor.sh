#!/usr/bin/env bash
# A function that returns one buffer each time gives a dataset of equal elements, or right ones.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: a function that writes the next batch into a buffer of its own and returns that, called
#   by tf.numpy_function in Dataset.map, and a list of the elements.
# Behaviour: if the buffer lies at a multiple of 64 bytes, each tensor is the buffer itself, and
#   all have the last values in the end. Elsewhere each is a copy, and all is right; NumPy
#   promises no address, so the same program is right or wrong from run to run. TensorFlow says
#   that results may share memory, but not on what that depends. With Dataset.batch behind, with
#   tf.py_function, and in an eager call, they are copies.
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
    """Return a vector that begins `offset` bytes behind a multiple of 64."""
    memory = np.zeros(1024 + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    return memory[begin : begin + 1024].view(np.float32)


def elements(op, offset, batch):
    buffer = array(offset)

    def fill(i):
        buffer[:] = i
        return buffer

    dataset = tf.data.Dataset.range(3).map(lambda i: op(fill, [i], tf.float32))
    return [float(tf.reshape(x, [-1])[0]) for x in list(dataset.batch(1) if batch else dataset)]


for name, op in (("numpy_function", tf.numpy_function), ("py_function", tf.py_function)):
    for offset in (0, 16):
        print(f"{name}, {offset} bytes behind a multiple of 64:", elements(op, offset, False))
print("numpy_function, in batches:", elements(tf.numpy_function, 0, True))
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
numpy_function, 0 bytes behind a multiple of 64: [2.0, 2.0, 2.0]
numpy_function, 16 bytes behind a multiple of 64: [0.0, 1.0, 2.0]
py_function, 0 bytes behind a multiple of 64: [0.0, 1.0, 2.0]
py_function, 16 bytes behind a multiple of 64: [0.0, 1.0, 2.0]
numpy_function, in batches: [0.0, 1.0, 2.0]
END
