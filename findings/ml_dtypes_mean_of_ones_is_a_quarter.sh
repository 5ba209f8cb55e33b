#!/usr/bin/env bash
# NumPy's mean of a thousand ones is 0.256 if they are bfloat16, and 0.008 if they are float8_e5m2.
#
# Versions: numpy 2.5.5, ml_dtypes 0.6.0, Python 3.13, November 2026.
# Input: a thousand ones, as bfloat16, float8_e5m2 and float16, of which a sum, a mean, a
#   variance and a product are asked.
# Behaviour: NumPy adds float16 in pairs, and takes its mean in float32. A dtype that was registered
#   is added one by one in its own precision: at 256, adding 1 to a bfloat16 changes nothing, at 8
#   to a float8_e5m2. So the sum is 256, and the mean a quarter. Nothing warns. np.dot adds in
#   float32 and is right to rounding (of its neighbours float8_e5m2 has 896 and 1024), and so is
#   `sum(dtype="float32")`.
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

for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16):
    x = np.ones(1000, dtype)
    print(np.dtype(dtype).name)
    print("  sum", float(np.sum(x)))
    print("  mean", round(float(np.mean(x)), 3))
    print("  average", round(float(np.average(x)), 3))
    print("  variance", round(float(np.var(x)), 3))
    print("  last of cumsum", float(np.cumsum(x)[-1]))
    print("  dot", float(np.dot(x, x)))
    print("  sum in float32", float(np.sum(x, dtype="float32")))
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
bfloat16
  sum 256.0
  mean 0.256
  average 0.256
  variance 0.256
  last of cumsum 256.0
  dot 1000.0
  sum in float32 1000.0
float8_e5m2
  sum 8.0
  mean 0.008
  average 0.008
  variance 0.008
  last of cumsum 8.0
  dot 1024.0
  sum in float32 1000.0
float16
  sum 1000.0
  mean 1.0
  average 1.0
  variance 0.0
  last of cumsum 1000.0
  dot 1000.0
  sum in float32 1000.0
END
