#!/usr/bin/env bash
# safetensors.numpy of this year saves x[::2] as the first half of x, and a transpose unturned.
#
# Versions: safetensors 0.8.0 (June 2026) and 0.7.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: parts of small arrays whose elements do not lie one behind another: every other element,
#   a column, a transpose, an array in Fortran order. All of them lie within their array.
# Behaviour: 0.7.0 saves what the array holds. 0.8.0 hands over an address and a number of bytes,
#   and so what lies behind the first element, whatever the strides are: other numbers, in the right
#   shape. Nothing warns. The docstring asks for contiguous arrays, in both versions; the module
#   for PyTorch refuses others, this one takes them. A big-endian array is saved right, as it
#   is copied. np.ascontiguousarray(x) helps.
# It exits with 0 if it sees the lines at its end, and with 1 if safetensors behaves
# differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile numpy==2.5.5
cat >"$folder/program.py" <<'END'
import numpy as np
import safetensors
from safetensors.numpy import load, save

numbers = np.arange(6.0)
ARRAYS = {
    "x[::2]": numbers[::2],
    "a column": numbers.reshape(3, 2)[:, 1],
    "a transpose": numbers.reshape(2, 3).T,
    "Fortran order": np.asfortranarray(numbers.reshape(2, 3)),
    "a contiguous copy": np.ascontiguousarray(numbers.reshape(2, 3).T),
    "big-endian": numbers[::2].astype(">f8"),
}
print("safetensors", safetensors.__version__)
for name, array in ARRAYS.items():
    loaded = load(save({"x": array}))["x"]
    print(f"{name}: {array.tolist()}", "is" if (loaded == array).all() else "becomes", end=" ")
    print(loaded.tolist())
END
for version in 0.7.0 0.8.0; do
  "$folder/venv/bin/pip" install --quiet --no-compile safetensors==$version
  "$folder/venv/bin/python" "$folder/program.py"
done >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
safetensors 0.7.0
x[::2]: [0.0, 2.0, 4.0] is [0.0, 2.0, 4.0]
a column: [1.0, 3.0, 5.0] is [1.0, 3.0, 5.0]
a transpose: [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] is [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
Fortran order: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] is [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
a contiguous copy: [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] is [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
big-endian: [0.0, 2.0, 4.0] is [0.0, 2.0, 4.0]
safetensors 0.8.0
x[::2]: [0.0, 2.0, 4.0] becomes [0.0, 1.0, 2.0]
a column: [1.0, 3.0, 5.0] becomes [1.0, 2.0, 3.0]
a transpose: [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] becomes [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
Fortran order: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] becomes [[0.0, 3.0, 1.0], [4.0, 2.0, 5.0]]
a contiguous copy: [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] is [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
big-endian: [0.0, 2.0, 4.0] is [0.0, 2.0, 4.0]
END
