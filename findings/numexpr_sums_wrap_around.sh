#!/usr/bin/env bash
# numexpr's sum of four times 2 ** 30 in int32 is 0, and that of 33 million ones in float32 a half.
#
# Versions: numexpr 2.14.2, numpy 2.5.5, Python 3.13, November 2026.
# Input: sums and products of all elements of arrays, and a quotient of a great uint64, by NumPy and
#   by the same expression in numexpr.evaluate.
# Behaviour: NumPy adds small integers in 64 bits, and float32 in pairs of blocks. numexpr adds in
#   the dtype of the array, one by one, on one thread: integers wrap around, and beyond 2 ** 24
#   adding 1 to a float32 changes nothing. uint64 is not among its types: the bits are taken as
#   int64. Nothing warns. `sum(x * 1.0)` of int32 is right, as it is float64.
# It exits with 0 if it sees the lines at its end, and with 1 if numexpr behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile numexpr==2.14.2 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import numexpr
import numpy as np

CASES = {
    "sum of int32": ("sum(x)", np.sum, np.full(4, 2**30, np.int32)),
    "product of int32": ("prod(x)", np.prod, np.full(4, 2**10, np.int32)),
    "sum of int32 * 1.0": ("sum(x * 1.0)", np.sum, np.full(4, 2**30, np.int32)),
    "sum of float32": ("sum(x)", np.sum, np.ones(2**25, np.float32)),
    "half of uint64": ("x // 2", lambda x: x // 2, np.array([2**63 + 4], np.uint64)),
}
for name, (expression, function, x) in CASES.items():
    seen = numexpr.evaluate(expression, {"x": x})
    print(f"{name}: NumPy {function(x).tolist()}, numexpr {seen.tolist()}")
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
sum of int32: NumPy 4294967296, numexpr 0
product of int32: NumPy 1099511627776, numexpr 0
sum of int32 * 1.0: NumPy 4294967296, numexpr 4294967296.0
sum of float32: NumPy 33554432.0, numexpr 16777216.0
half of uint64: NumPy [4611686018427387906], numexpr [-4611686018427387902]
END
