#!/usr/bin/env bash
# tf.nn.softmax with oneDNN returns 0.0 beside a NaN: the first class of [1, NaN, 2] is impossible.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, x86-64 Linux, November 2026.
# Input: float32 rows of logits, one of which has a NaN, or an infinity. All probabilities of that
#   row are unknown, as each is divided by a sum that is NaN. TensorFlow's softmax of float64, its
#   log_softmax of the same row, and its compiled softmax say so.
# Behaviour: with oneDNN's kernels, which are on by default on recent CPUs, only the NaN itself is
#   NaN. The row's other probabilities are 0.0: a mask, an argmax over other classes, or a metric
#   that reads one column sees plausible numbers. TensorFlow announces that oneDNN may change
#   results "slightly", by the order of operations. TF_ENABLE_ONEDNN_OPTS=0 gives NaN in the whole
#   row.
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

ROWS = ([np.nan, 1.0, 2.0], [1.0, np.nan, 2.0], [1.0, np.inf, 2.0])
FUNCTIONS = {
    "softmax": tf.nn.softmax,
    "compiled": tf.function(tf.nn.softmax, jit_compile=True),
    "float64": lambda x: tf.nn.softmax(tf.cast(x, tf.float64)),
    "log_softmax": tf.nn.log_softmax,
}
for name, function in FUNCTIONS.items():
    print(name, *(function(tf.constant(row, tf.float32)).numpy().tolist() for row in ROWS))
END
export TF_CPP_MIN_LOG_LEVEL=3
for onednn in 1 0; do
  echo "TF_ENABLE_ONEDNN_OPTS=$onednn"
  TF_ENABLE_ONEDNN_OPTS=$onednn "$folder/venv/bin/python" "$folder/program.py"
done >"$folder/seen"
diff - "$folder/seen" <<'END'
TF_ENABLE_ONEDNN_OPTS=1
softmax [nan, 0.0, 0.0] [0.0, nan, 0.0] [0.0, nan, 0.0]
compiled [nan, nan, nan] [nan, nan, nan] [nan, nan, nan]
float64 [nan, nan, nan] [nan, nan, nan] [nan, nan, nan]
log_softmax [nan, nan, nan] [nan, nan, nan] [nan, nan, nan]
TF_ENABLE_ONEDNN_OPTS=0
softmax [nan, nan, nan] [nan, nan, nan] [nan, nan, nan]
compiled [nan, nan, nan] [nan, nan, nan] [nan, nan, nan]
float64 [nan, nan, nan] [nan, nan, nan] [nan, nan, nan]
log_softmax [nan, nan, nan] [nan, nan, nan] [nan, nan, nan]
END
