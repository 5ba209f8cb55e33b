#!/usr/bin/env bash
# jax.jit copies an argument that it returns as it is, once for each time that it returns it.
#
# Versions: jax 0.12.0.1, jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13, November 2026.
# Input: compiled functions that return an argument, as a training step returns what it does not
#   change, or that reshape one.
# Behaviour: arrays of JAX cannot be changed, so one would do; but the results lie in memory of
#   their own. So a step that passes a table through needs twice its memory, and copies it each
#   time. Two equal results are two arrays, too, computed once and copied. A donated argument is
#   not copied. A function without jit returns its very argument.
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

PROGRAMS = {
    "x": lambda x: (x,),
    "x beside x + 1": lambda x: (x, x + 1),
    "x twice": lambda x: (x, x),
    "x.reshape(-1)": lambda x: (x.reshape(-1),),
    "x + 1 twice": lambda x: (x + 1, x + 1),
}


def addresses(arrays):
    return [array.unsafe_buffer_pointer() for array in arrays]


for name, program in PROGRAMS.items():
    for how in ("jit", "donated"):
        x = jnp.ones((64, 64)) + 1.0
        (before,) = addresses([x])
        results = jax.jit(program, donate_argnums=[0] if how == "donated" else [])(x)
        found = addresses(results)
        where = ["its own memory" if address == before else "other memory" for address in found]
        shared = [" (one and the same)"] if len(set(found)) < len(found) else []
        print(f"{name}, {how}:", ", ".join(where), *shared)
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
x, jit: other memory
x, donated: its own memory
x beside x + 1, jit: other memory, other memory
x beside x + 1, donated: its own memory, other memory
x twice, jit: other memory, other memory
x twice, donated: its own memory, other memory
x.reshape(-1), jit: other memory
x.reshape(-1), donated: its own memory
x + 1 twice, jit: other memory, other memory
x + 1 twice, donated: its own memory, other memory
END
