#!/usr/bin/env bash
# tf.pow of integers, compiled, keeps only the last six bits of the exponent: 0 ** 64 is 1.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, x86-64 Linux, November 2026.
# Input: integers with exponents of 63 and more. 0, 1 and -1 to such powers overflow nothing, and
#   the overflow of 3 ** 65 is the product modulo 2 ** 32 in NumPy and in uncompiled TensorFlow.
# Behaviour: with `jit_compile=True`, exponents that differ by 64 give the same power, in each of
#   the integer dtypes that tf.pow takes. So 0 ** 64 is 0 ** 0, which is 1, and 3 ** 65 is 3. JAX,
#   which has the same compiler, is right. No warning is given, and no docstring tells of a limit.
# It exits with 0 if it sees the lines at its end, and with 1 if TensorFlow behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile tensorflow-cpu==2.21.0 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import numpy as np
import tensorflow as tf

compiled = tf.function(tf.pow, jit_compile=True)
print("base exponent NumPy eager compiled")
for base, exponent in [(3, 63), (3, 64), (3, 65), (0, 64), (0, 65), (2, 64)]:
    x, y = tf.constant(base), tf.constant(exponent)
    power = np.power(np.int32(base), np.int32(exponent))
    print(base, exponent, power, tf.pow(x, y).numpy(), compiled(x, y).numpy())
for dtype in (tf.int8, tf.int16, tf.int64):
    x, y = tf.constant(0, dtype), tf.constant(64, dtype)
    print(dtype.name, "0 64", tf.pow(x, y).numpy(), compiled(x, y).numpy())
END
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen"
diff - "$folder/seen" <<'END'
base exponent NumPy eager compiled
3 63 2111105451 2111105451 2111105451
3 64 2038349057 2038349057 1
3 65 1820079875 1820079875 3
0 64 0 0 1
0 65 0 0 0
2 64 0 0 1
int8 0 64 0 1
int16 0 64 0 1
int64 0 64 0 1
END
