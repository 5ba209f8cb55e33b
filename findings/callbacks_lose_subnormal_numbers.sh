#!/usr/bin/env bash
# In a Python function that TensorFlow or JAX calls, 5e-324 > 0 is False, without NumPy, too.
#
# Versions: tensorflow-cpu 2.21.0, jax 0.12.0.1, jaxlib 0.12.0.1, numpy 2.5.5, Python 3.13,
#   x86-64 Linux, November 2026.
# Input: comparisons and products of subnormal numbers, by Python itself and by NumPy, in a
#   function that is called directly, by tf.py_function and tf.numpy_function, and by
#   jax.pure_callback.
# Behaviour: both frameworks switch the CPU of the thread to taking subnormal numbers for zero,
#   and do not switch back for the function that they call. There, Python's own floats are
#   affected: a positive number is not greater than 0, and `a != b` does not mean that a - b is
#   not 0. An eager tf.numpy_function is called as any function, but an eager tf.py_function is
#   not. Afterwards the thread is as before. Nothing says so.
# It exits with 0 if it sees the lines at its end, and with 1 if TensorFlow or JAX behaves
# differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  tensorflow-cpu==2.21.0 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import jax
import numpy as np
import tensorflow as tf

least, small, near = 5e-324, 2.5e-308, 2.4e-308
seen = []


def look(x):
    seen[:] = [
        least > 0.0,
        small != near and small - near != 0.0,
        bool((np.full(4, 1e-40, np.float32) * np.float32(1.0)).all()),
    ]
    return np.asarray(x)


def of_tensorflow(op):
    return lambda x: op(look, [x], tf.float32)


CALLS = {
    "directly": lambda: look(1.0),
    "numpy_function, eager": lambda: of_tensorflow(tf.numpy_function)(1.0),
    "numpy_function, graph": lambda: tf.function(of_tensorflow(tf.numpy_function))(1.0),
    "py_function, eager": lambda: of_tensorflow(tf.py_function)(1.0),
    "py_function, graph": lambda: tf.function(of_tensorflow(tf.py_function))(1.0),
    "pure_callback": lambda: jax.jit(
        lambda x: jax.pure_callback(look, jax.ShapeDtypeStruct((), "float32"), x)
    )(1.0).block_until_ready(),
    "directly, afterwards": lambda: look(1.0),
}
print("5e-324 > 0, different numbers differ, products of NumPy are not 0")
for name, call in CALLS.items():
    call()
    print(name, *seen)
END
export TF_CPP_MIN_LOG_LEVEL=3 JAX_PLATFORMS=cpu
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
5e-324 > 0, different numbers differ, products of NumPy are not 0
directly True True True
numpy_function, eager True True True
numpy_function, graph False False False
py_function, eager False False False
py_function, graph False False False
pure_callback False False False
directly, afterwards True True True
END
