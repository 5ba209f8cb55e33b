#!/usr/bin/env bash
# NumPy's mean of three sevens is 1 if they are ml_dtypes.int4, and their median is 7.
#
# Versions: numpy 2.5.5, ml_dtypes 0.6.0, Python 3.13, November 2026. jax 0.12.0.1 as a comparison.
# Input: quantized weights, as they come out of a checkpoint, of which a mean is asked.
# Behaviour: NumPy sums its own small integers as int64, and takes their mean in float64. It tells
#   them by their kind. That of int4 is V, so it adds in int4: 7 + 7 + 7 is 5, and the mean is 5 /
#   3, cut to 1, an int4, too. Nothing warns. The median is right, and so is jnp.mean of the same
#   array. The deviation of equal numbers is 2 for uint4; for int4 it warns of a square root, and
#   raises then. Adding a Python integer, however, gives int8, so `(values + 0).mean()` is 7.0.
# It exits with 0 if it sees the lines at its end, and with 1 if NumPy or ml_dtypes behave
#   differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  \
  numpy==2.5.5 ml_dtypes==0.6.0 jax==0.12.0.1 jaxlib==0.12.0.1
cat >"$folder/program.py" <<'END'
import warnings

import jax.numpy as jnp
import ml_dtypes
import numpy as np

warnings.simplefilter("error")


def show(name, function):
    try:
        value = function()
        print(name, value, value.dtype)
    except (OverflowError, RuntimeWarning) as error:
        print(name, type(error).__name__, error)


for dtype in (ml_dtypes.int4, ml_dtypes.uint4, np.int8):
    values = np.array([7, 7, 7], dtype)
    print(values.dtype)
    for name in ("sum", "mean", "average", "median", "std"):
        show(f"  np.{name}", lambda: getattr(np, name)(values))
    show("  jnp.mean", lambda: jnp.mean(jnp.array(values)))
    show("  (values + 0).mean", lambda: (values + 0).mean())
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
int4
  np.sum 5 int4
  np.mean 1 int4
  np.average 1 int4
  np.median 7 int4
  np.std RuntimeWarning invalid value encountered in sqrt
  jnp.mean 7.0 float32
  (values + 0).mean 7.0 float64
uint4
  np.sum 5 uint4
  np.mean 1 uint4
  np.average 1 uint4
  np.median 7 uint4
  np.std 2 uint4
  jnp.mean 7.0 float32
  (values + 0).mean 7.0 float64
int8
  np.sum 21 int64
  np.mean 7.0 float64
  np.average 7.0 float64
  np.median 7.0 float64
  np.std 0.0 float64
  jnp.mean 7.0 float32
  (values + 0).mean 7.0 float64
END
