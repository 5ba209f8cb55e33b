#!/usr/bin/env bash
# jax.scipy.special.comb(n, 1) is not n: for a million it is 442413, with 64 bits for 1e15 a tenth.
#
# Versions: jax 0.12.0.1, jaxlib 0.12.0.1, scipy 1.18.1, numpy 2.5.5, Python 3.13, November 2026.
#   The function came with JAX this year (jax-ml/jax#37599).
# Input: exact integers n and k that the dtype can hold, whose result it can hold, too.
# Behaviour: JAX computes exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)). The difference of
#   two great logarithms keeps no digit after the point, and exp turns that absolute error into a
#   relative one. In float32, three digits are right for n = 10000, and none for a million; in
#   float64, five for 1e10, and the order of magnitude is lost at 1e15. The docstring says that
#   `exact=True` is not supported, but of no error. SciPy's function of the same name, also without
#   `exact`, is right in all digits of each of these.
# It exits with 0 if it sees the lines at its end, and with 1 if JAX or SciPy behave differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  jax==0.12.0.1 jaxlib==0.12.0.1 scipy==1.18.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import math

import jax
import jax.numpy as jnp
import scipy.special
from jax.scipy.special import comb


def show(dtype, n, k):
    right = math.comb(n, k)
    found, of_scipy = comb(jnp.asarray(n, dtype), jnp.asarray(k, dtype)), scipy.special.comb(n, k)
    error, of_scipy = (abs(float(value) - right) / right for value in (found, of_scipy))
    print(dtype, n, k, f"{error:.0e}", "right" if of_scipy < 1e-15 else of_scipy)


print("dtype n k, relative errors of JAX and SciPy")
for n in (10**4, 10**6):
    show("float32", n, 1)
jax.config.update("jax_enable_x64", True)
for n, k in [(10**10, 1), (10**10, 2), (10**15, 1), (10**15, 3)]:
    show("float64", n, k)
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
dtype n k, relative errors of JAX and SciPy
float32 10000 1 6e-04 right
float32 1000000 1 6e-01 right
float64 10000000000 1 3e-06 right
float64 10000000000 2 4e-06 right
float64 1000000000000000 1 9e-01 right
float64 1000000000000000 3 1e+00 right
END
