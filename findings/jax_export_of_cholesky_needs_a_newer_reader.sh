#!/usr/bin/env bash
# JAX 0.10 reads what 0.12 has exported, but for linear algebra and symbolic shapes.
#
# Versions: jax and jaxlib 0.10.2 and 0.12.0.1, flatbuffers 25.12.19, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: functions that each version exports and serializes, and the other one reads and runs.
#   JAX promises that older files can be read for six months, and newer ones for three weeks.
# Behaviour: 0.10.2 reads most of what 0.12 writes, so that a look at a few functions says that
#   all is well. Custom calls alone have another form in the file: linear algebra, and the check
#   of symbolic sizes that each export with symbolic shapes has. A function whose shapes are
#   fixed is read, and the same one with a symbolic shape is not. 0.12 reads all that 0.10.2
#   writes.
# It exits with 0 if it sees the lines at its end, and with 1 if JAX behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
install() {
  "$python" -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet --no-compile numpy==2.5.5 flatbuffers==25.12.19 "${@:2}"
}
install older jax==0.10.2 jaxlib==0.10.2
install newer jax==0.12.0.1 jaxlib==0.12.0.1
cat >"$folder/program.py" <<'END'
import pathlib
import sys

import jax
import jax.numpy as jnp
from jax import export

FIXED = jax.ShapeDtypeStruct((3,), jnp.float32)
SYMBOLIC = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32)
MATRIX = jax.ShapeDtypeStruct((3, 3), jnp.float32)
PROGRAMS = {
    "sort": (jnp.sort, FIXED),
    "cumsum": (jnp.cumsum, FIXED),
    "cumsum of n": (jnp.cumsum, SYMBOLIC),
    "product": (lambda x: x @ x, MATRIX),
    "Fourier transform": (jnp.fft.fft, FIXED),
    "Cholesky": (jnp.linalg.cholesky, MATRIX),
}
act, folder = sys.argv[1], pathlib.Path(sys.argv[2])
if act == "write":
    folder.mkdir()
    for name, (function, spec) in PROGRAMS.items():
        (folder / name).write_bytes(export.export(jax.jit(function))(spec).serialize())
else:
    print(f"JAX {jax.__version__} reads what is written {folder.name}")
    for name, (_, spec) in PROGRAMS.items():
        function = export.deserialize(bytearray((folder / name).read_bytes()))
        try:
            function.call(jnp.eye(3) if spec is MATRIX else jnp.ones(3))
            print("  read:", name)
        except jax.errors.JaxRuntimeError:
            print("  refused:", name)
END
export JAX_PLATFORMS=cpu
for name in older newer; do
  "$folder/$name/bin/python" "$folder/program.py" write "$folder/by-$name"
done
{
  "$folder/older/bin/python" "$folder/program.py" read "$folder/by-newer"
  "$folder/newer/bin/python" "$folder/program.py" read "$folder/by-older"
} >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
JAX 0.10.2 reads what is written by-newer
  read: sort
  read: cumsum
  refused: cumsum of n
  read: product
  read: Fourier transform
  refused: Cholesky
JAX 0.12.0.1 reads what is written by-older
  read: sort
  read: cumsum
  read: cumsum of n
  read: product
  read: Fourier transform
  read: Cholesky
END
