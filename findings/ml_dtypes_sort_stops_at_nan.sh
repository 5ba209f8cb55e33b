#!/usr/bin/env bash
# np.sort of bfloat16 with one NaN leaves the numbers unsorted, and percentiles are of wrong ones.
#
# Versions: numpy 2.5.5, ml_dtypes 0.6.0, Python 3.13, November 2026.
# Input: seven numbers and a NaN, as bfloat16, as float8_e5m2, and as float16.
# Behaviour: NumPy orders its own floats with NaN behind all numbers. For a dtype that was
#   registered it asks only whether one is less than another, which is false beside NaN, so that
#   NaN parts the array: on neither side the order is what it should be with the other. np.unique
#   returns a number twice, np.percentile is the mean of any two numbers, where it is NaN for
#   float16, and np.searchsorted in what was sorted finds other places. Nothing warns. np.median
#   looks for NaN at the end only, and misses it. float32, to which both dtypes convert without
#   loss, is right.
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

NUMBERS = [4, 2, np.nan, 3, 1, 2, 5, 1]
for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16):
    x = np.array(NUMBERS).astype(dtype)
    print(np.dtype(dtype).name)
    print("  sort", np.sort(x).astype(float).tolist())
    print("  argsort", np.argsort(x, kind="stable").tolist())
    print("  unique", np.unique(x).astype(float).tolist())
    print("  percentile", float(np.percentile(x, 50)))
    print("  median", float(np.median(x)))
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
bfloat16
  sort [2.0, 4.0, nan, 1.0, 1.0, 2.0, 3.0, 5.0]
  argsort [1, 0, 2, 4, 7, 5, 3, 6]
  unique [2.0, 4.0, nan, 1.0, 2.0, 3.0, 5.0]
  percentile 1.0
  median 1.0
float8_e5m2
  sort [2.0, 4.0, nan, 1.0, 1.0, 2.0, 3.0, 5.0]
  argsort [1, 0, 2, 4, 7, 5, 3, 6]
  unique [2.0, 4.0, nan, 1.0, 2.0, 3.0, 5.0]
  percentile 1.0
  median 1.0
float16
  sort [1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 5.0, nan]
  argsort [4, 7, 1, 5, 3, 0, 6, 2]
  unique [1.0, 2.0, 3.0, 4.0, 5.0, nan]
  percentile nan
  median nan
END
