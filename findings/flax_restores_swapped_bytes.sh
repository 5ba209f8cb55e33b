#!/usr/bin/env bash
# flax.serialization gives 16777216 for a 1 that was saved in an array of big-endian integers.
#
# Versions: flax 0.12.12, jax 0.12.0.1, jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: arrays of 0, 1 and 2 as big-endian int32 and float32, as many file formats of science give
#   them, saved and restored by msgpack_serialize, to_bytes and to_state_dict.
# Behaviour: Flax saves the bytes as they are, and the name of the dtype, which says nothing of
#   their order. So the restored numbers are others, in the right shape; the floats are next to 0.
#   Nothing warns. A state dictionary without bytes is right. JAX's own arrays have no such order;
#   jnp.asarray refuses these.
# It exits with 0 if it sees the lines at its end, and with 1 if Flax behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  flax==0.12.12 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import numpy as np
from flax import serialization

WAYS = {
    "msgpack": lambda tree: serialization.msgpack_restore(serialization.msgpack_serialize(tree)),
    "bytes": lambda tree: serialization.from_bytes(tree, serialization.to_bytes(tree)),
    "state_dict": lambda tree: serialization.from_state_dict(
        tree, serialization.to_state_dict(tree)
    ),
}
ARRAYS = {
    "big-endian int32": np.arange(3).astype(">i4"),
    "little-endian int32": np.arange(3).astype("<i4"),
    "big-endian float32": np.arange(3).astype(">f4"),
}
for name, array in ARRAYS.items():
    for way, restored in WAYS.items():
        print(name, way, np.asarray(restored({"x": array})["x"]).tolist())
END
export JAX_PLATFORMS=cpu
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
big-endian int32 msgpack [0, 16777216, 33554432]
big-endian int32 bytes [0, 16777216, 33554432]
big-endian int32 state_dict [0, 1, 2]
little-endian int32 msgpack [0, 1, 2]
little-endian int32 bytes [0, 1, 2]
little-endian int32 state_dict [0, 1, 2]
big-endian float32 msgpack [0.0, 4.600602988224807e-41, 8.96831017167883e-44]
big-endian float32 bytes [0.0, 4.600602988224807e-41, 8.96831017167883e-44]
big-endian float32 state_dict [0.0, 1.0, 2.0]
END
