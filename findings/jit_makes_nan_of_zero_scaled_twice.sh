#!/usr/bin/env bash
# Compiled by TensorFlow 2.21 or jaxlib 0.10, (0 * 1e30) * 1e30 is NaN; jaxlib 0.12 says 0.
#
# Versions: tensorflow-cpu 2.21.0, jax and jaxlib 0.10.2 and 0.12.0.1, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: float32 numbers that are scaled by two constants, one after the other, whose product
#   float32 cannot hold, as where units are changed twice. Each step's result fits.
# Behaviour: XLA makes one constant of the two, which is infinite: so 0 becomes NaN, 1e-30
#   infinite, and a quotient 0. jaxlib 0.12 no longer does so, TensorFlow 2.22.0rc0 still does.
#   Scaling up and down by one constant, on the other hand, is exact compiled, and overflows if
#   it is not.
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
show("(0 * 1e30) * 1e30", lambda x: (x * 1e30) * 1e30, 0.0)
show("(1e-30 * 1e30) * 1e30", lambda x: (x * 1e30) * 1e30, 1e-30)
show("(1e38 / 1e30) / 1e30", lambda x: (x / 1e30) / 1e30, 1e38)
show("(1e20 * 1e30) / 1e30", lambda x: (x * 1e30) / 1e30, 1e20)
END
export TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu
for name in tensorflow older newer; do
  "$folder/$name/bin/python" "$folder/program.py" $name
done >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
TensorFlow 2.21.0
  (0 * 1e30) * 1e30: 0, compiled nan
  (1e-30 * 1e30) * 1e30: 1e+30, compiled inf
  (1e38 / 1e30) / 1e30: 1e-22, compiled 0
  (1e20 * 1e30) / 1e30: inf, compiled 1e+20
JAX 0.10.2
  (0 * 1e30) * 1e30: 0, compiled nan
  (1e-30 * 1e30) * 1e30: 1e+30, compiled inf
  (1e38 / 1e30) / 1e30: 1e-22, compiled 0
  (1e20 * 1e30) / 1e30: inf, compiled 1e+20
JAX 0.12.0.1
  (0 * 1e30) * 1e30: 0, compiled 0
  (1e-30 * 1e30) * 1e30: 1e+30, compiled 1e+30
  (1e38 / 1e30) / 1e30: 1e-22, compiled 1e-22
  (1e20 * 1e30) / 1e30: inf, compiled inf
END
