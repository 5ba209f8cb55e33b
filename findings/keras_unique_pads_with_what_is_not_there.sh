#!/usr/bin/env bash
# keras.ops.unique with a size pads with numbers that the array lacks, and indices of other numbers.
#
# Versions: keras 3.15.1, tensorflow-cpu 2.21.0, jax 0.12.0.1, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: [5, 3, 5, 1, 3], whose three different numbers are asked for with room for five and for two,
#   with indices, inverse and counts, with TensorFlow, JAX and NumPy as the backend of Keras.
# Behaviour: programs with fixed sizes need `size`. JAX, whose function this follows, pads with the
#   least number and its index, so that x[index] are the values all the same. With TensorFlow and
#   NumPy the values are padded with 0, which the array does not have, and the indices with 1, even
#   where the array has one number alone. Only the counts, which are 0 there, tell what is padding.
#   Where the size is too small, all three return an inverse that points behind the end of the
#   values, and no error.
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

X = np.array([5, 3, 5, 1, 3], np.int32)

print(keras.backend.backend())
for size in (5, 2):
    found = keras.ops.unique(
        X, size=size, return_index=True, return_inverse=True, return_counts=True
    )
    values, index, inverse, counts = map(keras.ops.convert_to_numpy, found)
    print(f"  size {size}: values {values.tolist()}, x[index] {X[index].tolist()},", end=" ")
    print(f"inverse {inverse.tolist()}, counts {counts.tolist()}")
END
for backend in tensorflow jax numpy; do
  KERAS_BACKEND=$backend "$folder/venv/bin/python" "$folder/program.py" 2>>"$folder/log"
done >"$folder/seen"
diff - "$folder/seen" <<'END'
tensorflow
  size 5: values [1, 3, 5, 0, 0], x[index] [1, 3, 5, 3, 3], inverse [2, 1, 2, 0, 1], counts [1, 2, 2, 0, 0]
  size 2: values [1, 3], x[index] [1, 3], inverse [2, 1, 2, 0, 1], counts [1, 2]
jax
  size 5: values [1, 3, 5, 1, 1], x[index] [1, 3, 5, 1, 1], inverse [2, 1, 2, 0, 1], counts [1, 2, 2, 0, 0]
  size 2: values [1, 3], x[index] [1, 3], inverse [2, 1, 2, 0, 1], counts [1, 2]
numpy
  size 5: values [1, 3, 5, 0, 0], x[index] [1, 3, 5, 3, 3], inverse [2, 1, 2, 0, 1], counts [1, 2, 2, 0, 0]
  size 2: values [1, 3], x[index] [1, 3], inverse [2, 1, 2, 0, 1], counts [1, 2]
END
