#!/usr/bin/env bash
# Compiled by TensorFlow 2.21 or jaxlib 0.10, (x + c) - c does not round; by jaxlib 0.12 it does.
#
# Versions: tensorflow-cpu 2.21.0, jax and jaxlib 0.10.2 and 0.12.0.1, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: float32 numbers that are rounded by adding a great constant and subtracting it again, as
#   in quantization and in tables of functions, and a sum in which a constant cancels.
# Behaviour: XLA adds the two constants first, which gives 0, and drops the addition. So 1.7
#   stays 1.7, and a difference that float32 loses comes back. Constants that arrive as arguments
#   are not touched. jaxlib 0.12 no longer does so, TensorFlow 2.22.0rc0 still does.
# It exits with 0 if it sees the lines at its end, and with 1 if TensorFlow or JAX behaves
# differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
install() {
  "$python" -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet --no-compile numpy==2.5.5 "${@:2}"
}
install tensorflow tensorflow-cpu==2.21.0
install older jax==0.10.2 jaxlib==0.10.2
install newer jax==0.12.0.1 jaxlib==0.12.0.1
cat >"$folder/program.py" <<'END'
import sys

import numpy as np

if sys.argv[1] == "tensorflow":
    import tensorflow as tf

    tensor = tf.constant
    name, compiled = f"TensorFlow {tf.__version__}", tf.function(jit_compile=True)
else:
    import jax
    import jax.numpy as jnp

    tensor = jnp.asarray
    name, compiled = f"JAX {jax.__version__}", jax.jit


def show(what, function, *arguments):
    arguments = [tensor(argument, "float32") for argument in arguments]
    before, after = (np.asarray(f(*arguments)) for f in (function, compiled(function)))
    print(f"  {what}: {before:.4g}, compiled {after:.4g}")


print(name)
GREAT = 12582912.0  # 1.5 * 2**23, beyond which float32 has whole numbers only
show("1.7 rounded", lambda x: (x + GREAT) - GREAT, 1.7)
show("1.7 rounded by an argument", lambda x, great: (x + great) - great, 1.7, GREAT)
show("(1.5 + 1e8) - 1e8", lambda x: (x + 1e8) - 1e8, 1.5)
END
export TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu
for name in tensorflow older newer; do
  "$folder/$name/bin/python" "$folder/program.py" $name
done >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
TensorFlow 2.21.0
  1.7 rounded: 2, compiled 1.7
  1.7 rounded by an argument: 2, compiled 2
  (1.5 + 1e8) - 1e8: 0, compiled 1.5
JAX 0.10.2
  1.7 rounded: 2, compiled 1.7
  1.7 rounded by an argument: 2, compiled 2
  (1.5 + 1e8) - 1e8: 0, compiled 1.5
JAX 0.12.0.1
  1.7 rounded: 2, compiled 2
  1.7 rounded by an argument: 2, compiled 2
  (1.5 + 1e8) - 1e8: 0, compiled 0
END
