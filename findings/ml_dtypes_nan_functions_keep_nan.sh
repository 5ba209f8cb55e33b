#!/usr/bin/env bash
# np.nan_to_num and np.nanmean leave the NaN of a bfloat16 array in, but np.nanmax does not.
#
# Versions: numpy 2.5.5, ml_dtypes 0.6.0, Python 3.13, November 2026.
# Input: 1, NaN and 3, as bfloat16 and as float16, in NumPy's functions that leave NaN out.
# Behaviour: these functions ask first whether the dtype is one of NumPy's floats, and take an array
#   of another dtype to be without NaN. So np.nan_to_num returns it as it is, np.nansum, np.nanmean
#   and np.nanstd are NaN, and np.nanargmax is the position of NaN. Nothing warns. np.nanmax and
#   np.nanmin are right by another way, and np.isnan finds it. np.testing.assert_array_equal fails
#   for an array and itself, which np.testing.assert_allclose passes.
# It exits with 0 if it sees the lines at its end, and with 1 if NumPy or ml_dtypes behave
# differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  numpy==2.5.5 ml_dtypes==0.6.0
cat >"$folder/program.py" <<'END'
import ml_dtypes
import numpy as np


def passes(test, *arguments):
    try:
        test(*arguments)
    except AssertionError:
        return False
    return True


for dtype in (ml_dtypes.bfloat16, np.float16):
    x = np.array([1, np.nan, 3], dtype)
    print(np.dtype(dtype).name)
    print("  isnan", np.isnan(x).tolist())
    print("  nan_to_num", np.nan_to_num(x).astype(float).tolist())
    for function in (np.nansum, np.nanmean, np.nanstd, np.nanmax, np.nanmin, np.nanargmax):
        print(" ", function.__name__, float(function(x)))
    print("  assert_array_equal(x, x) passes:", passes(np.testing.assert_array_equal, x, x))
    print("  assert_allclose(x, x) passes:", passes(np.testing.assert_allclose, x, x))
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
bfloat16
  isnan [False, True, False]
  nan_to_num [1.0, nan, 3.0]
  nansum nan
  nanmean nan
  nanstd nan
  nanmax 3.0
  nanmin 1.0
  nanargmax 1.0
  assert_array_equal(x, x) passes: False
  assert_allclose(x, x) passes: True
float16
  isnan [False, True, False]
  nan_to_num [1.0, 0.0, 3.0]
  nansum 4.0
  nanmean 2.0
  nanstd 1.0
  nanmax 3.0
  nanmin 1.0
  nanargmax 2.0
  assert_array_equal(x, x) passes: True
  assert_allclose(x, x) passes: True
END
