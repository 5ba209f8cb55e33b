#!/usr/bin/env bash
# A donated array stays readable unless a result of jax.jit has its size; often nothing warns.
#
# Versions: jax 0.12.0.1, jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: an array that is donated with donate_argnums to programs with several results, and read
#   afterwards.
# Behaviour: donated is what the result can take the place of. Where no result has as many bytes,
#   the array stays and can be read. Compiling such a program mostly warns, but not for x > 0,
#   nor where the program does not use the array. An int32 result takes the place of a float32
#   array, a bool one does not. So whether reading after donation is an error follows from what
#   the function returns, and a change of that, or of a dtype, breaks the caller.
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

PROGRAMS = {
    "x + 1": lambda x: x + 1,
    "x.astype(int32)": lambda x: x.astype("int32"),
    "x.reshape(2, 4)": lambda x: x.reshape(2, 4),
    "x > 0": lambda x: x > 0,
    "x.sum()": lambda x: x.sum(),
    "x[:4]": lambda x: x[:4],
    "a constant": lambda x: jnp.zeros(8),
    "jax.debug.callback": lambda x: jax.debug.callback(lambda x: None, x),
}
for name, program in PROGRAMS.items():
    x = jnp.arange(8.0) + 1.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.block_until_ready(jax.jit(program, donate_argnums=0)(x))
    print(name, "deleted" if x.is_deleted() else "stays", *(["with a warning"] if caught else []))
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
x + 1 deleted
x.astype(int32) deleted
x.reshape(2, 4) deleted
x > 0 stays
x.sum() stays with a warning
x[:4] stays with a warning
a constant stays
jax.debug.callback stays with a warning
END
