#!/usr/bin/env bash
# Exported from two lines, one JAX function gives two artifacts: the bytes hold the caller's place.
#
# Versions: jax 0.12.0.1, jaxlib 0.12.0.1, flatbuffers 25.12.19, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: one jitted function, exported and serialized in one process, from one place and from
#   two.
# Behaviour: the artifact holds the places of the whole stack of calls, with columns, and not
#   only those of the function. So a build that caches by a checksum exports anew whenever a line
#   is inserted above the call of export, or two exports stand in one line. With
#   jax_traceback_in_locations_limit=0 the bytes are equal. The programs are the same in all
#   cases.
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


def artifact():
    @jax.jit
    def function(x):
        return jnp.sin(x) + 1

    return bytes(export.export(function)(jax.ShapeDtypeStruct((4,), jnp.float32)).serialize())


def compare(name):
    one_place = {artifact() for _ in range(3)}
    two_places = {artifact(), artifact()}
    print(f"{name}: {len(one_place)} from one place, {len(two_places)} from two")


compare("as it is")
jax.config.update("jax_traceback_in_locations_limit", 0)
compare("without places")
END
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
as it is: 1 from one place, 2 from two
without places: 1 from one place, 1 from two
END
