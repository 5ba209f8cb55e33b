#!/usr/bin/env bash
# Numba's np.mean of 33 million ones in float32 is 0.5, and the deviation of equal numbers not 0.
#
# Versions: numba 0.68.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: NumPy's sum, mean, variance and deviation of 2 ** 25 numbers of float32, all the same, by
#   NumPy and in a function that Numba compiles.
# Behaviour: Numba has loops of its own for these, which add one number after another in the dtype
#   of the array: beyond 2 ** 24, adding 1 to a float32 changes nothing. NumPy adds in pairs of
#   blocks. Neither warns; a function gives another mean when it is decorated. Numba's result is
#   the same each time. In float64, both are right.
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

ones = np.ones(2**25, np.float32)
tenths = np.full(2**25, 0.1, np.float32)
FUNCTIONS = {
    "sum of ones": lambda: ones.sum(),
    "mean of ones": lambda: np.mean(ones),
    "mean of tenths": lambda: np.mean(tenths),
    "deviation of tenths": lambda: np.std(tenths),
    "mean of ones in float64": lambda: np.mean(ones.astype(np.float64)),
}


def compiled(name):
    @numba.njit
    def sums(x):
        return x.sum()

    @numba.njit
    def mean(x):
        return np.mean(x)

    @numba.njit
    def deviation(x):
        return np.std(x)

    function = {"sum": sums, "mean": mean, "deviation": deviation}[name.split()[0]]
    x = tenths if "tenths" in name else ones
    return function(x.astype(np.float64) if "float64" in name else x)


for name, function in FUNCTIONS.items():
    print(f"{name}: NumPy {float(function()):.3g}, Numba {float(compiled(name)):.3g}")
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
sum of ones: NumPy 3.36e+07, Numba 1.68e+07
mean of ones: NumPy 1, Numba 0.5
mean of tenths: NumPy 0.1, Numba 0.0625
deviation of tenths: NumPy 1.49e-08, Numba 0.0375
mean of ones in float64: NumPy 1, Numba 1
END
