#!/usr/bin/env bash
# tf.map_fn runs the calls of tf.numpy_function one by one, with parallel_iterations=4, too.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: a tf.function that maps a Python function, which waits as for a file or a server, over
#   eight elements with parallel_iterations=4. TensorFlow has four threads for ops, and waiting
#   gives up Python's lock.
# Behaviour: no two calls overlap, neither of tf.numpy_function nor of tf.py_function, so
#   `parallel_iterations` has no effect. Both ops are stateful, and one iteration's stateful ops
#   wait for those of the iteration before. With `stateful=False` the calls overlap, and may
#   begin in any order. Where order matters, that is welcome; that the argument of a map does
#   nothing is not said anywhere.
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
import threading
import time

import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(4)
lock = threading.Lock()
running, most, order = 0, 0, []


def wait(i):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
        order.append(int(i))
    time.sleep(0.1)
    with lock:
        running -= 1
    return i


CALLS = {
    "numpy_function": lambda i: tf.numpy_function(wait, [i], tf.int32),
    "py_function": lambda i: tf.py_function(wait, [i], tf.int32),
    "stateful=False": lambda i: tf.numpy_function(wait, [i], tf.int32, stateful=False),
}
for name, call in CALLS.items():

    @tf.function
    def mapped(x, call=call):
        return tf.map_fn(lambda i: tf.ensure_shape(call(i), []), x, parallel_iterations=4)

    most, order = 0, []
    mapped(tf.range(8))
    overlap = "overlap" if most > 1 else "never overlap"
    print(name, overlap, *(["in order"] if order == sorted(order) and most == 1 else []))
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
numpy_function never overlap in order
py_function never overlap in order
stateful=False overlap
END
