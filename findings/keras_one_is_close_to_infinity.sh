#!/usr/bin/env bash
# With TensorFlow, keras.ops.isclose(1, inf) is True and isclose(inf, inf) False; allclose is right.
#
# Versions: keras 3.15.1, tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: infinity in functions of keras.ops with TensorFlow, eagerly and compiled, and in the
#   functions of NumPy that have the same names.
# Behaviour: isclose compares abs(x - y) with a bound that is infinite if y is, and so finds every
#   number close to infinity, and infinity not close to itself, as their difference is NaN.
#   ops.allclose is another function, and right. nancumsum and nancumprod put 0 or 1 in the place of
#   NaN by nan_to_num, which makes the greatest number of infinity, too: sums that are infinite
#   become 3.4e38. nansum is right. With NumPy as its backend, Keras is right in all of these.
# It exits with 0 if it sees the lines at its end, and with 1 if Keras or TensorFlow behave
# differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile \
  keras==3.15.1 tensorflow-cpu==2.21.0 numpy==2.5.5
cat >"$folder/program.py" <<'END'
import keras
import numpy as np
import tensorflow as tf

INF = np.float32(np.inf)
NAN = np.float32(np.nan)
ONE = np.float32(1)
HALF = np.float32(0.5)
QUESTIONS = {
    "isclose(inf, inf)": ("isclose", INF, INF),
    "isclose(1, inf)": ("isclose", ONE, INF),
    "isclose(inf, 1)": ("isclose", INF, ONE),
    "allclose(1, inf)": ("allclose", ONE, INF),
    "nancumsum([nan, inf])": ("nancumsum", np.array([NAN, INF])),
    "nancumprod([inf, 0.5])": ("nancumprod", np.array([INF, HALF])),
    "nansum([nan, inf])": ("nansum", np.array([NAN, INF])),
}
for question, (name, *arguments) in QUESTIONS.items():
    function = getattr(keras.ops, name)
    compiled = tf.function(function, jit_compile=True)
    tensors = [tf.constant(argument) for argument in arguments]
    answers = [getattr(np, name)(*arguments), function(*tensors), compiled(*tensors)]
    print(f"{question}:", *(np.asarray(answer) for answer in answers))
END
KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3 \
  "$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
isclose(inf, inf): True False False
isclose(1, inf): False True True
isclose(inf, 1): False False False
allclose(1, inf): False False False
nancumsum([nan, inf]): [ 0. inf] [0.0000000e+00 3.4028235e+38] [0.0000000e+00 3.4028235e+38]
nancumprod([inf, 0.5]): [inf inf] [3.4028235e+38 1.7014117e+38] [3.4028235e+38 1.7014117e+38]
nansum([nan, inf]): inf inf inf
END
