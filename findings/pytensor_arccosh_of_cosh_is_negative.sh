#!/usr/bin/env bash
# PyTensor's arccosh(cosh(-2)) is -2, though no arccosh is negative; its derivative is that of |x|.
#
# Versions: pytensor 3.3.8, numpy 2.5.5, Python 3.13, November 2026.
# Input: arccosh(cosh(x)), which is |x|, and its derivative, for numbers of both signs, evaluated as
#   they stand (optimizer=None) and in PyTensor's mode FAST_RUN, which rewrites them.
# Behaviour: a function of its inverse is left out. arccosh gives the positive one of two numbers,
#   so it must not be left out, as arcsin(sin(x)) and arccos(cos(x)) are not; sqrt(x * x) is |x|.
#   The derivative is that of the expression as it was written: beside the value -2 stands -1, the
#   slope of |x|. Nothing warns.
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
    "arccosh(cosh(x))": pt.arccosh(pt.cosh(x)),
    "its derivative": pt.grad(pt.arccosh(pt.cosh(x)).sum(), x),
    "arcsin(sin(x))": pt.arcsin(pt.sin(x)),
    "arccos(cos(x))": pt.arccos(pt.cos(x)),
    "sqrt(x * x)": pt.sqrt(x * x),
}
values = np.array([-2.0, -0.5, 0.5, 2.0])
plain = pytensor.compile.mode.Mode(linker="py", optimizer=None)
print("x", values.tolist())
for name, expression in EXPRESSIONS.items():
    for mode in (plain, "FAST_RUN"):
        function = pytensor.function([x], expression, mode=mode)
        print(name, "as it stands" if mode is plain else "FAST_RUN", end=" ")
        print([round(value, 3) for value in function(values).tolist()])
END
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
x [-2.0, -0.5, 0.5, 2.0]
arccosh(cosh(x)) as it stands [2.0, 0.5, 0.5, 2.0]
arccosh(cosh(x)) FAST_RUN [-2.0, -0.5, 0.5, 2.0]
its derivative as it stands [-1.0, -1.0, 1.0, 1.0]
its derivative FAST_RUN [-1.0, -1.0, 1.0, 1.0]
arcsin(sin(x)) as it stands [-1.142, -0.5, 0.5, 1.142]
arcsin(sin(x)) FAST_RUN [-1.142, -0.5, 0.5, 1.142]
arccos(cos(x)) as it stands [2.0, 0.5, 0.5, 2.0]
arccos(cos(x)) FAST_RUN [2.0, 0.5, 0.5, 2.0]
sqrt(x * x) as it stands [2.0, 0.5, 0.5, 2.0]
sqrt(x * x) FAST_RUN [2.0, 0.5, 0.5, 2.0]
END
