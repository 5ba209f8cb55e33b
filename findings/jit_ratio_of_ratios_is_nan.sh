#!/usr/bin/env bash
# Compiled by XLA, (x / y) / (z / y) is NaN where all quotients are 1, with jaxlib 0.12 as well.
#
# Versions: tensorflow-cpu 2.21.0, jax and jaxlib 0.10.2 and 0.12.0.1, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: float32 ratios of numbers of about 1e30 or 1e-30, as in physical units and in densities;
#   each quotient is about 1, and nothing is a constant.
# Behaviour: XLA makes one quotient of three: (x * y) / (y * z). Both products are infinite, or
#   both 0, and the result is NaN. (x / y) / z becomes x / (y * z), which is 0. Nothing warns,
#   and uncompiled programs are right.
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
show("(1e30 / 1e30) / (1e30 / 1e30)", lambda x, y, z: (x / y) / (z / y), 1e30, 1e30, 1e30)
show("the same of 1e-30", lambda x, y, z: (x / y) / (z / y), 1e-30, 1e-30, 1e-30)
show("(1e38 / 1e30) / 1e30", lambda x, y, z: (x / y) / z, 1e38, 1e30, 1e30)
show("1e-30 / (1e20 / 1e20)", lambda x, y, z: x / (y / z), 1e-30, 1e20, 1e20)
END
export TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu
for name in tensorflow older newer; do
  "$folder/$name/bin/python" "$folder/program.py" $name
done >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
TensorFlow 2.21.0
  (1e30 / 1e30) / (1e30 / 1e30): 1, compiled nan
  the same of 1e-30: 1, compiled nan
  (1e38 / 1e30) / 1e30: 1e-22, compiled 0
  1e-30 / (1e20 / 1e20): 1e-30, compiled 1e-30
JAX 0.10.2
  (1e30 / 1e30) / (1e30 / 1e30): 1, compiled nan
  the same of 1e-30: 1, compiled nan
  (1e38 / 1e30) / 1e30: 1e-22, compiled 0
  1e-30 / (1e20 / 1e20): 1e-30, compiled 1e-30
JAX 0.12.0.1
  (1e30 / 1e30) / (1e30 / 1e30): 1, compiled nan
  the same of 1e-30: 1, compiled nan
  (1e38 / 1e30) / 1e30: 1e-22, compiled 0
  1e-30 / (1e20 / 1e20): 1e-30, compiled 1e-30
END
