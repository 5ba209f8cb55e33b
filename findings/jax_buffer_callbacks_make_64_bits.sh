#!/usr/bin/env bash
# A buffer callback of JAX returns int64 while 64 bits are off, and adding 1 to 2 ** 40 gives 1.
#
# Versions: jax 0.12.0.1, jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: jax.experimental.buffer_callback and jax.pure_callback with results that are declared as
#   float64 and int64, while jax_enable_x64 is off, as it is if nothing is set.
# Behaviour: jax.pure_callback raises, as JAX has no such arrays then. A buffer callback has a
#   result of 64 bits, and what JAX computes with it depends on the function: jnp.sin gives float64;
#   operators convert to 32 bits first, with a warning, so that a large integer becomes 0 and then
#   1; a product of matrices has the dtype float64 and the digits of float32.
# It exits with 0 if it sees the lines at its end, and with 1 if JAX behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback


def result_of(value, dtype):
    def write(context, result):
        np.asarray(result)[...] = value

    return buffer_callback(write, jax.ShapeDtypeStruct((2,), dtype))()


def third():
    return result_of(1 / 3, "float64")


def large():
    return result_of(2**40, "int64")


def pure():
    spec = jax.ShapeDtypeStruct((2,), "float64")
    return jax.pure_callback(lambda: np.full(2, 1 / 3), spec)


PROGRAMS = {
    "pure_callback": pure,
    "third": third,
    "third + 0": lambda: third() + 0,
    "sin(third)": lambda: jnp.sin(third()),
    "third @ third": lambda: third() @ third(),
    "large": large,
    "large + 1": lambda: large() + 1,
}
warnings.simplefilter("ignore")
for name, program in PROGRAMS.items():
    try:
        value = np.asarray(jax.jit(program)())
        print(f"{name}: {value.dtype} {value.flat[0]:.9g}")
    except ValueError:
        print(f"{name}: ValueError")
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
pure_callback: ValueError
third: float64 0.333333333
third + 0: float32 0.333333343
sin(third): float64 0.327194697
third @ third: float64 0.222222224
large: int64 1.09951163e+12
large + 1: int32 1
END
