#!/usr/bin/env bash
# np.array([100], int4) is 4, and np.full and x[0] = 100 write 4; int8 raises for what is too much.
#
# Versions: numpy 2.5.5, ml_dtypes 0.6.0, Python 3.13, November 2026.
# Input: Python integers that do not fit int4, and 1000 for int8, made into arrays and assigned.
# Behaviour: since NumPy 2, a Python integer that does not fit a dtype is an OverflowError, and only
#   astype wraps around. ml_dtypes takes the lower bits of an integer wherever one becomes int4,
#   uint4, int2 or uint2, and raises only for what does not fit an int64. In sums, though, NumPy
#   makes the dtype larger: x + 100 is int8 and 101.
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


def assigned(dtype, number):
    x = np.zeros(1, dtype)
    x[0] = number
    return x


def filled(dtype, number):
    x = np.zeros(1, dtype)
    x.fill(number)
    return x


WAYS = {
    "np.array": lambda dtype, number: np.array([number], dtype),
    "np.full": lambda dtype, number: np.full(1, number, dtype),
    "x[0] =": assigned,
    "x.fill": filled,
    "x +": lambda dtype, number: np.ones(1, dtype) + number,
}
for dtype, number in ((ml_dtypes.int4, 100), (ml_dtypes.uint4, 100), (np.int8, 1000)):
    for name, way in WAYS.items():
        try:
            x = way(dtype, number)
            print(f"{np.dtype(dtype)} {name} {number}: {x[0]} {x.dtype}")
        except OverflowError:
            print(f"{np.dtype(dtype)} {name} {number}: OverflowError")
print("int4(100):", ml_dtypes.int4(100))
print("arange(20, int4) ends in", np.arange(20, dtype=ml_dtypes.int4)[-1])
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
int4 np.array 100: 4 int4
int4 np.full 100: 4 int4
int4 x[0] = 100: 4 int4
int4 x.fill 100: 4 int4
int4 x + 100: 101 int8
uint4 np.array 100: 4 uint4
uint4 np.full 100: 4 uint4
uint4 x[0] = 100: 4 uint4
uint4 x.fill 100: 4 uint4
uint4 x + 100: 101 int8
int8 np.array 1000: OverflowError
int8 np.full 1000: OverflowError
int8 x[0] = 1000: OverflowError
int8 x.fill 1000: OverflowError
int8 x + 1000: OverflowError
int4(100): 4
arange(20, int4) ends in 3
END
