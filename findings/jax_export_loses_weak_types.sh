#!/usr/bin/env bash
# What JAX has exported gives other dtypes than the function: bfloat16 becomes float32.
#
# Versions: jax 0.12.0.1, jaxlib 0.12.0.1, flatbuffers 25.12.19, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: functions of Python's numbers, which JAX types weakly, exported with such a number, and
#   called as before.
# Behaviour: the result of a function that was serialized and read is typed strongly. What is
#   computed of it afterwards is float32, where the function itself leaves the caller's bfloat16.
#   The other way round, an argument that was a number at export is taken as weak whatever comes:
#   a float32 array beside a bfloat16 one gives bfloat16, where the function gives float32. That
#   holds for the exported function at once, without any file.
# It exits with 0 if it sees the lines at its end, and with 1 if JAX behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  jax==0.12.0.1 jaxlib==0.12.0.1 flatbuffers==25.12.19 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import jax
import jax.numpy as jnp
from jax import export

vector = jnp.ones(4, jnp.bfloat16)
scale = jax.jit(lambda c: c * 2)
add = jax.jit(lambda x, c: x + c)


def ways(function, *arguments):
    exported = export.export(function)(*arguments)
    read = export.deserialize(exported.serialize())
    return {"function": function, "exported": exported.call, "read": read.call}


for name, function in ways(scale, 1.0).items():
    print(name, "of 1.0, times a bfloat16 vector:", (function(1.0) * vector).dtype)
for name, function in ways(add, vector, 1.0).items():
    dtypes = (function(vector, 1.0).dtype, function(vector, jnp.float32(1.0)).dtype)
    print(name, "of a bfloat16 vector and a number, a float32 scalar:", *dtypes)
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
function of 1.0, times a bfloat16 vector: bfloat16
exported of 1.0, times a bfloat16 vector: bfloat16
read of 1.0, times a bfloat16 vector: float32
function of a bfloat16 vector and a number, a float32 scalar: bfloat16 float32
exported of a bfloat16 vector and a number, a float32 scalar: bfloat16 bfloat16
read of a bfloat16 vector and a number, a float32 scalar: bfloat16 bfloat16
END
