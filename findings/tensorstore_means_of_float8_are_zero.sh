#!/usr/bin/env bash
# tensorstore's mean of float8 elements is 0 when it downsamples; least and greatest may be NaN.
#
# Versions: tensorstore 0.1.86, ml_dtypes 0.6.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: 3, 1, 2 and 2 in each dtype of eight bits and fewer that tensorstore takes, of which
#   ts.downsample makes two elements by each of its methods.
# Behaviour: the mean is 0 for each float of eight and of four bits. The least and the greatest are
#   NaN for those dtypes that have no infinity, but not for float4_e2m1fn. Medians, modes and
#   strides are right, as is all of float16, bfloat16 and int4. Nothing warns; a pyramid of reduced
#   images of such an array is black.
# It exits with 0 if it sees the lines at its end, and with 1 if tensorstore behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  tensorstore==0.1.86 ml_dtypes==0.6.0 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import ml_dtypes
import numpy as np
import tensorstore as ts

NAMES = """
float16 bfloat16 int4 float8_e3m4 float8_e5m2 float4_e2m1fn
float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz
"""
for name in NAMES.split():
    dtype = np.float16 if name == "float16" else getattr(ml_dtypes, name)
    array = ts.array(np.array([3, 1, 2, 2], dtype))
    print(name)
    for method in ("mean", "min", "max", "median", "mode", "stride"):
        values = ts.downsample(array, [2], method).read().result()
        print(f"  {method}", *(float(value) for value in values))
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
float16
  mean 2.0 2.0
  min 1.0 2.0
  max 3.0 2.0
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
bfloat16
  mean 2.0 2.0
  min 1.0 2.0
  max 3.0 2.0
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
int4
  mean 2.0 2.0
  min 1.0 2.0
  max 3.0 2.0
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
float8_e3m4
  mean 0.0 0.0
  min 1.0 2.0
  max 3.0 2.0
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
float8_e5m2
  mean 0.0 0.0
  min 1.0 2.0
  max 3.0 2.0
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
float4_e2m1fn
  mean 0.0 0.0
  min 1.0 2.0
  max 3.0 2.0
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
float8_e4m3fn
  mean 0.0 0.0
  min nan nan
  max nan nan
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
float8_e4m3fnuz
  mean 0.0 0.0
  min nan nan
  max nan nan
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
float8_e4m3b11fnuz
  mean 0.0 0.0
  min nan nan
  max nan nan
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
float8_e5m2fnuz
  mean 0.0 0.0
  min nan nan
  max nan nan
  median 1.0 2.0
  mode 1.0 2.0
  stride 3.0 2.0
END
