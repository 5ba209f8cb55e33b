#!/usr/bin/env bash
# A function of PyTensor finds no NaN by x != x, and x - x, x / x and 0 * x are never NaN.
#
# Versions: pytensor 3.3.8, numpy 2.5.5, Python 3.13, November 2026.
# Input: 1, 0, infinity and NaN in expressions of one variable, evaluated as they stand
#   (optimizer=None) and in PyTensor's mode FAST_RUN, which rewrites them.
# Behaviour: the rewrites take a variable for a number that is finite and not 0. `eq(x, x)`,
#   `x <= x` and `x >= x` are constants, and so are x - x, x / x, 0 * x and log(x) - log(x): a sum
#   of 0 * x tells nothing of x. isnan(x) is right, also in pt.switch. Nothing warns.
# It exits with 0 if it sees the lines at its end, and with 1 if PyTensor behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile pytensor==3.3.8 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="float64")
EXPRESSIONS = {
    "x == x": pt.eq(x, x),
    "x != x": pt.neq(x, x),
    "x <= x": pt.le(x, x),
    "all(x == x)": pt.all(pt.eq(x, x)),
    "x - x": x - x,
    "x / x": x / x,
    "0 * x": 0 * x,
    "sum(0 * x)": pt.sum(0 * x),
    "log(x) - log(x)": pt.log(x) - pt.log(x),
    "isnan(x)": pt.isnan(x),
}
values = np.array([1.0, 0.0, np.inf, np.nan])
plain = pytensor.compile.mode.Mode(linker="py", optimizer=None)
print("x", values.tolist())
with np.errstate(all="ignore"):
    for name, expression in EXPRESSIONS.items():
        for mode in (plain, "FAST_RUN"):
            function = pytensor.function([x], expression, mode=mode, on_unused_input="ignore")
            print(name, "as it stands" if mode is plain else "FAST_RUN", function(values).tolist())
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
x [1.0, 0.0, inf, nan]
x == x as it stands [True, True, True, False]
x == x FAST_RUN [True, True, True, True]
x != x as it stands [False, False, False, True]
x != x FAST_RUN [False, False, False, False]
x <= x as it stands [True, True, True, False]
x <= x FAST_RUN [True, True, True, True]
all(x == x) as it stands False
all(x == x) FAST_RUN True
x - x as it stands [0.0, 0.0, nan, nan]
x - x FAST_RUN [0.0, 0.0, 0.0, 0.0]
x / x as it stands [1.0, nan, nan, nan]
x / x FAST_RUN [1.0, 1.0, 1.0, 1.0]
0 * x as it stands [0.0, 0.0, nan, nan]
0 * x FAST_RUN [0.0, 0.0, 0.0, 0.0]
sum(0 * x) as it stands nan
sum(0 * x) FAST_RUN 0.0
log(x) - log(x) as it stands [0.0, nan, nan, nan]
log(x) - log(x) FAST_RUN [0.0, 0.0, 0.0, 0.0]
isnan(x) as it stands [False, False, False, True]
isnan(x) FAST_RUN [False, False, False, True]
END
