#!/usr/bin/env bash
# With TensorFlow, keras.ops.argpartition names numbers twice in the place of NaN.
#
# Versions: keras 3.15.1, tensorflow-cpu 2.21.0, jax 0.12.0.1, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: [3, NaN, 1, 2, NaN, 0], parted at each of its places, with TensorFlow, JAX and NumPy as
#   the backend of Keras.
# Behaviour: argpartition returns an order of all indices, with NaN behind the numbers in NumPy. With
#   TensorFlow it is put together from two calls of top_k, for the least and for the greatest numbers,
#   and each takes NaN for something else: at most places the indices of NaN are missing, and those of
#   numbers come twice in their place. So what is gathered by them has no NaN any more, but numbers
#   that the array has once. Nothing warns. JAX and NumPy return each index once.
# It exits with 0 if it sees the lines at its end, and with 1 if Keras or TensorFlow behave
# differently.
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

X = np.array([3, np.nan, 1, 2, np.nan, 0], np.float32)

print(keras.backend.backend())
for place in range(len(X)):
    indices = keras.ops.convert_to_numpy(keras.ops.argpartition(X, place))
    twice = sorted(i for i in range(len(X)) if (indices == i).sum() > 1)
    never = sorted({*range(len(X))} - {*indices.tolist()})
    print(f"  at {place}: twice {twice}, never {never}")
END
for backend in tensorflow jax numpy; do
  KERAS_BACKEND=$backend "$folder/venv/bin/python" "$folder/program.py" 2>>"$folder/log"
done >"$folder/seen"
diff - "$folder/seen" <<'END'
tensorflow
  at 0: twice [5], never [4]
  at 1: twice [2, 5], never [1, 4]
  at 2: twice [2, 3], never [1, 4]
  at 3: twice [0, 2], never [1, 4]
  at 4: twice [0], never [4]
  at 5: twice [], never []
jax
  at 0: twice [], never []
  at 1: twice [], never []
  at 2: twice [], never []
  at 3: twice [], never []
  at 4: twice [], never []
  at 5: twice [], never []
numpy
  at 0: twice [], never []
  at 1: twice [], never []
  at 2: twice [], never []
  at 3: twice [], never []
  at 4: twice [], never []
  at 5: twice [], never []
END
