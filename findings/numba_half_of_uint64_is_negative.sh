#!/usr/bin/env bash
# In a function that Numba compiles, half of a great np.uint64 is negative, and so is x - 1.
#
# Versions: numba 0.68.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: a number of 2 ** 63 + 4 as np.uint64, such as a hash or the state of a random generator,
#   and operators with Python integers, by NumPy 2 and in a function that Numba compiles.
# Behaviour: for NumPy 2 a Python integer takes the dtype of what it stands beside. For Numba it is
#   int64, and uint64 with int64 is int64: the number is read as a negative one, before it is
#   divided or compared with. np.uint64(2) instead of 2 gives the same as NumPy. Of an array, the
#   quotient is another one again. Nothing warns.
# It exits with 0 if it sees the lines at its end, and with 1 if Numba behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile numba==0.68.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import numba
import numpy as np

FUNCTIONS = {
    "x // 2": lambda x: x // 2,
    "x // np.uint64(2)": lambda x: x // np.uint64(2),
    "x - 1": lambda x: x - 1,
    "x % 10": lambda x: x % 10,
    "x + 0 > 0": lambda x: x + 0 > 0,
    "x >> 1": lambda x: x >> 1,
    "float(x + 0)": lambda x: float(x + 0),
}
number = np.uint64(2**63 + 4)
print("x", number)
for name, function in FUNCTIONS.items():
    print(f"{name}: NumPy {function(number)}, Numba {numba.njit(function)(number)}")
array = np.array([number])
for name in ("x // 2", "x - 1"):
    seen = numba.njit(FUNCTIONS[name])(array)
    print(f"{name} of an array: NumPy {FUNCTIONS[name](array)}, Numba {seen} {seen.dtype}")
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
x 9223372036854775812
x // 2: NumPy 4611686018427387906, Numba -4611686018427387902
x // np.uint64(2): NumPy 4611686018427387906, Numba 4611686018427387906
x - 1: NumPy 9223372036854775811, Numba -9223372036854775805
x % 10: NumPy 2, Numba 6
x + 0 > 0: NumPy True, Numba False
x >> 1: NumPy 4611686018427387906, Numba 4611686018427387906
float(x + 0): NumPy 9.223372036854776e+18, Numba -9.223372036854776e+18
x // 2 of an array: NumPy [4611686018427387906], Numba [-4.61168602e+18] float64
x - 1 of an array: NumPy [9223372036854775811], Numba [-9.22337204e+18] float64
END
