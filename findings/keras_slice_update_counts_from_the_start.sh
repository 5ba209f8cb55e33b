#!/usr/bin/env bash
# keras.ops.slice_update at -1 writes into the first element with TensorFlow, into the last else.
#
# Versions: keras 3.15.1, tensorflow-cpu 2.21.0, jax 0.12.0.1, numpy 2.5.5, Python 3.13, November
#   2026.
# Input: keras.ops.slice_update of a vector of four at negative positions, in the backends
#   TensorFlow, eagerly and in a tf.function, compiled or not, JAX and NumPy.
# Behaviour: each backend hands the positions to an op of its own. JAX and NumPy count negative
#   positions from the end, TensorFlow moves them to 0. Nothing warns. keras.ops.slice, its
#   counterpart, is an error with TensorFlow there, so that what was written at a position cannot
#   be read there. keras.ops.take counts from the end in all.
# It exits with 0 if it sees the lines at its end, and with 1 if Keras behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  keras==3.15.1 tensorflow-cpu==2.21.0 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import keras
import numpy as np

x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
backend = keras.backend.backend()


def update(position, update):
    return keras.ops.slice_update(keras.ops.convert_to_tensor(x), [position], update)


def part(position):
    try:
        return np.asarray(keras.ops.slice(keras.ops.convert_to_tensor(x), [position], [1])).tolist()
    except Exception as error:
        return type(error).__name__


ways = {"eagerly": update}
if backend == "tensorflow":
    import tensorflow as tf

    ways["in a tf.function"] = tf.function(update)
    ways["compiled"] = tf.function(update, jit_compile=True)
for position, values in ((-1, [8.0]), (-2, [8.0, 9.0])):
    for way, function in ways.items():
        seen = np.asarray(function(position, np.array(values, np.float32)))
        print(backend, position, seen.tolist(), way)
    print(backend, position, "read", part(position))
END
export TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu
for backend in tensorflow jax numpy; do
  KERAS_BACKEND=$backend "$folder/venv/bin/python" "$folder/program.py" 2>"$folder/log"
done >"$folder/seen"
diff - "$folder/seen" <<'END'
tensorflow -1 [8.0, 2.0, 3.0, 4.0] eagerly
tensorflow -1 [8.0, 2.0, 3.0, 4.0] in a tf.function
tensorflow -1 [8.0, 2.0, 3.0, 4.0] compiled
tensorflow -1 read InvalidArgumentError
tensorflow -2 [8.0, 9.0, 3.0, 4.0] eagerly
tensorflow -2 [8.0, 9.0, 3.0, 4.0] in a tf.function
tensorflow -2 [8.0, 9.0, 3.0, 4.0] compiled
tensorflow -2 read InvalidArgumentError
jax -1 [1.0, 2.0, 3.0, 8.0] eagerly
jax -1 read [4.0]
jax -2 [1.0, 2.0, 8.0, 9.0] eagerly
jax -2 read [3.0]
numpy -1 [1.0, 2.0, 3.0, 8.0] eagerly
numpy -1 read [4.0]
numpy -2 [1.0, 2.0, 8.0, 9.0] eagerly
numpy -2 read [3.0]
END
