#!/usr/bin/env bash
# jax.jit still reads a NumPy argument when its call has returned: refilling it changes results.
#
# Versions: jax and jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: a vector of ones, which is passed to a compiled function and filled with twos when the
#   call has returned, as a loader does with a buffer of its own for the next batch.
# Behaviour: the call returns while the program runs. If the address of the vector is a multiple
#   of 64 bytes, the program works on NumPy's memory, and what it reads late are twos. Elsewhere
#   it has a copy; NumPy promises no such address, so that the same line is right or wrong from
#   one array to the next. jnp.asarray makes a copy in time; jax.device_put does not, not even
#   with may_alias=False, of which the documentation says so.
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
import jax
import jax.numpy as jnp
import numpy as np


def array(offset):
    """Return a vector of ones that begins `offset` bytes behind a multiple of 64."""
    memory = np.zeros(4096 + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    values = memory[begin : begin + 4096].view(np.float32)
    values[:] = 1.0
    return values


@jax.jit
def step(x):
    matrix = jnp.full((1000, 1000), 0.001) + x[0] * 1e-9
    for _ in range(10):
        matrix = matrix @ matrix
    return x + matrix[0, 0] * 0.0  # x alone, after some time


step(array(0)).block_until_ready()  # compiles
WAYS = {
    "as it is": lambda x: x,
    "jnp.asarray": jnp.asarray,
    "device_put": jax.device_put,
    "device_put, may_alias=False": lambda x: jax.device_put(x, may_alias=False),
}
for name, way in WAYS.items():
    for offset in (0, 16):
        values = array(offset)
        result = step(way(values))
        values[:] = 2.0
        print(f"{name}, {offset} bytes behind a multiple of 64: ones are", result[7])
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
as it is, 0 bytes behind a multiple of 64: ones are 2.0
as it is, 16 bytes behind a multiple of 64: ones are 1.0
jnp.asarray, 0 bytes behind a multiple of 64: ones are 1.0
jnp.asarray, 16 bytes behind a multiple of 64: ones are 1.0
device_put, 0 bytes behind a multiple of 64: ones are 2.0
device_put, 16 bytes behind a multiple of 64: ones are 1.0
device_put, may_alias=False, 0 bytes behind a multiple of 64: ones are 2.0
device_put, may_alias=False, 16 bytes behind a multiple of 64: ones are 1.0
END
