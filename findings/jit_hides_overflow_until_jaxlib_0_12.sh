#!/usr/bin/env bash
# log(exp(200)) is 200 compiled by TensorFlow 2.21 or jaxlib 0.10, and infinite with jaxlib 0.12.
#
# Versions: tensorflow-cpu 2.21.0, jax and jaxlib 0.10.2 and 0.12.0.1, numpy 2.5.5, Python 3.13,
#   November 2026.
# Input: float32 programs that overflow on the way, though their result would fit: log of exp,
#   products and quotients of exp, the root of a square, a power of exp.
# Behaviour: XLA shortens the pairs: log(exp(x)) is x, exp(x) * exp(y) is exp(x + y), and the
#   root of x * x is abs(x). So an unstable formula looks stable as long as it is compiled, and
#   uncompiled, or where something stands between the two ops, it gives infinity or NaN. jaxlib
#   0.12 and TensorFlow 2.22.0rc0 no longer shorten these pairs, so that the same program begins
#   to overflow after an update. One pair is left in all: the logarithm of a power.
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

    exp, log, sqrt, power, tensor = tf.exp, tf.math.log, tf.sqrt, tf.pow, tf.constant
    name, compiled = f"TensorFlow {tf.__version__}", tf.function(jit_compile=True)
else:
    import jax
    import jax.numpy as jnp

    exp, log, sqrt, power, tensor = jnp.exp, jnp.log, jnp.sqrt, jnp.power, jnp.asarray
    name, compiled = f"JAX {jax.__version__}", jax.jit


def show(what, function, *arguments):
    arguments = [tensor(argument, "float32") for argument in arguments]
    before, after = (np.asarray(f(*arguments)) for f in (function, compiled(function)))
    print(f"  {what}: {before:.4g}, compiled {after:.4g}")


print(name)
show("log(exp(200))", lambda x: log(exp(x)), 200.0)
show("exp(100) * exp(-100)", lambda x, y: exp(x) * exp(y), 100.0, -100.0)
show("exp(100) / exp(99)", lambda x, y: exp(x) / exp(y), 100.0, 99.0)
show("sqrt(1e30 * 1e30)", lambda x: sqrt(x * x), 1e30)
show("exp(100) ** 0.5", lambda x, y: power(exp(x), y), 100.0, 0.5)
show("log(1e30 ** 3.5)", lambda x: log(power(x, 3.5)), 1e30)
END
export TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu
for name in tensorflow older newer; do
  "$folder/$name/bin/python" "$folder/program.py" $name
done >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
TensorFlow 2.21.0
  log(exp(200)): inf, compiled 200
  exp(100) * exp(-100): nan, compiled 1
  exp(100) / exp(99): nan, compiled 2.718
  sqrt(1e30 * 1e30): inf, compiled 1e+30
  exp(100) ** 0.5: inf, compiled 5.185e+21
  log(1e30 ** 3.5): inf, compiled 241.8
JAX 0.10.2
  log(exp(200)): inf, compiled 200
  exp(100) * exp(-100): nan, compiled 1
  exp(100) / exp(99): nan, compiled 2.718
  sqrt(1e30 * 1e30): inf, compiled 1e+30
  exp(100) ** 0.5: inf, compiled 5.185e+21
  log(1e30 ** 3.5): inf, compiled 241.8
JAX 0.12.0.1
  log(exp(200)): inf, compiled inf
  exp(100) * exp(-100): nan, compiled nan
  exp(100) / exp(99): nan, compiled nan
  sqrt(1e30 * 1e30): inf, compiled inf
  exp(100) ** 0.5: inf, compiled inf
  log(1e30 ** 3.5): inf, compiled 241.8
END
