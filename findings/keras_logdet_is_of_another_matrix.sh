#!/usr/bin/env bash
# keras.ops.logdet is of another matrix with TensorFlow: log 5 for a determinant of 6, NaN for -1.
#
# Versions: keras 3.15.1, tensorflow-cpu 2.21.0, jax 0.12.0.1, numpy 2.5.5, Python 3.13, November
#   2026.
# Input: matrices of two rows that are not symmetric or have a negative determinant, in the
#   backends TensorFlow, JAX and NumPy.
# Behaviour: with TensorFlow, keras.ops.logdet is tf.linalg.logdet, which is for symmetric positive
#   definite matrices: it decomposes the lower half by Cholesky, and looks at nothing else. So it is
#   the logarithm for the matrix that has this half twice. JAX and NumPy give that of the absolute
#   determinant, as keras.ops.slogdet does in all. Keras's page says "the log of the determinant of
#   a square matrix". Nothing warns.
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

MATRICES = [
    [[2.0, 0.0], [1.0, 3.0]],
    [[2.0, 1.0], [0.0, 3.0]],
    [[1.0, 0.0], [0.0, -1.0]],
    [[0.0, 1.0], [-1.0, 0.0]],
    [[2.0, 1.0], [1.0, 3.0]],
]
for matrix in MATRICES:
    logdet = float(keras.ops.logdet(np.array(matrix)))
    sign, absolute = (float(part) for part in keras.ops.slogdet(np.array(matrix)))
    print(keras.backend.backend(), matrix, f"{np.exp(logdet):.2f} {sign * np.exp(absolute):.2f}")
END
export TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu
for backend in tensorflow jax numpy; do
  KERAS_BACKEND=$backend "$folder/venv/bin/python" "$folder/program.py" 2>"$folder/log"
done >"$folder/seen"
diff - "$folder/seen" <<'END'
tensorflow [[2.0, 0.0], [1.0, 3.0]] 5.00 6.00
tensorflow [[2.0, 1.0], [0.0, 3.0]] 6.00 6.00
tensorflow [[1.0, 0.0], [0.0, -1.0]] nan -1.00
tensorflow [[0.0, 1.0], [-1.0, 0.0]] nan 1.00
tensorflow [[2.0, 1.0], [1.0, 3.0]] 5.00 5.00
jax [[2.0, 0.0], [1.0, 3.0]] 6.00 6.00
jax [[2.0, 1.0], [0.0, 3.0]] 6.00 6.00
jax [[1.0, 0.0], [0.0, -1.0]] 1.00 -1.00
jax [[0.0, 1.0], [-1.0, 0.0]] 1.00 1.00
jax [[2.0, 1.0], [1.0, 3.0]] 5.00 5.00
numpy [[2.0, 0.0], [1.0, 3.0]] 6.00 6.00
numpy [[2.0, 1.0], [0.0, 3.0]] 6.00 6.00
numpy [[1.0, 0.0], [0.0, -1.0]] 1.00 -1.00
numpy [[0.0, 1.0], [-1.0, 0.0]] 1.00 1.00
numpy [[2.0, 1.0], [1.0, 3.0]] 5.00 5.00
END
