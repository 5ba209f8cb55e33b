#!/usr/bin/env bash
# x * 0.5 of a bfloat16 array is float32 in NumPy, and np.where(mask, x, 0.0) float64.
#
# Versions: numpy 2.5.5, ml_dtypes 0.6.0, Python 3.13, November 2026.
# Input: arrays of float16, bfloat16 and float8_e4m3fn in operators and functions of NumPy.
# Behaviour: since NumPy 2, a Python number does not change the dtype of an array of floats: float16
#   stays float16. To NumPy, bfloat16 is no float. A Python float makes it float32, an integer
#   leaves it; np.clip makes it float32 even with integers, np.where float64. A matrix product is
#   float32 by @ and bfloat16 by np.dot. np.gradient and np.linalg.norm have float64. What NumPy
#   has loops for, such as np.tanh, keeps it. JAX and TensorFlow keep bfloat16 in all of these.
# It exits with 0 if it sees the lines at its end, and with 1 if NumPy or ml_dtypes behave
# differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile numpy==2.5.5 ml_dtypes==0.6.0
cat >"$folder/program.py" <<'END'
import ml_dtypes
import numpy as np

PROGRAMS = {
    "x * 2": lambda x: x * 2,
    "x * 0.5": lambda x: x * 0.5,
    "x * x.dtype.type(0.5)": lambda x: x * x.dtype.type(0.5),
    "np.maximum(x, 0)": lambda x: np.maximum(x, 0),
    "np.maximum(x, 0.0)": lambda x: np.maximum(x, 0.0),
    "np.clip(x, 0, 1)": lambda x: np.clip(x, 0, 1),
    "np.where(x > 0, x, 0)": lambda x: np.where(x > 0, x, 0),
    "np.where(x > 0, x, 0.0)": lambda x: np.where(x > 0, x, 0.0),
    "x @ x": lambda x: x @ x,
    "np.dot(x, x)": lambda x: np.dot(x, x),
    "np.percentile(x, 50)": lambda x: np.percentile(x, 50),
    "np.median(x)": lambda x: np.median(x),
    "np.gradient(x)": lambda x: np.gradient(x),
    "np.linalg.norm(x)": lambda x: np.linalg.norm(x),
    "np.tanh(x)": lambda x: np.tanh(x),
}


def dtype_of(program, dtype):
    return np.asarray(program(np.ones(3, dtype))).dtype


for name, program in PROGRAMS.items():
    dtypes = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
    print(f"{name}:", *(dtype_of(program, dtype) for dtype in dtypes))
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
x * 2: float16 bfloat16 float8_e4m3fn
x * 0.5: float16 float32 float32
x * x.dtype.type(0.5): float16 bfloat16 float8_e4m3fn
np.maximum(x, 0): float16 bfloat16 float8_e4m3fn
np.maximum(x, 0.0): float16 float32 float32
np.clip(x, 0, 1): float16 float32 float32
np.where(x > 0, x, 0): float16 bfloat16 float8_e4m3fn
np.where(x > 0, x, 0.0): float16 float64 float64
x @ x: float16 float32 float32
np.dot(x, x): float16 bfloat16 float8_e4m3fn
np.percentile(x, 50): float16 float32 float32
np.median(x): float16 bfloat16 float8_e4m3fn
np.gradient(x): float16 float64 float64
np.linalg.norm(x): float16 float64 float64
np.tanh(x): float16 bfloat16 float8_e4m3fn
END
