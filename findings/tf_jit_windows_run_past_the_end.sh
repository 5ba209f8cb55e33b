#!/usr/bin/env bash
# In a compiled loop, the last window x[i:i+2] of a vector has two elements, of which one is a zero.
#
# Versions: tensorflow-cpu 2.21.0, Python 3.13, November 2026.
# Input: a vector of four float32, and windows of two that begin at each of its elements, in
#   tf.map_fn or in a loop over tf.range; as everywhere in Python and TensorFlow, a slice that
#   reaches past the end has fewer elements.
# Behaviour: with jit_compile=True the last window has the size 2, and not 1, and its mean is 4.5,
#   half of that of its only element. Sums are right, since the element beyond the end is 0. Nothing
#   warns. Windows to the end, x[i:], are right, and so is x[i:i+2] outside of loops, where
#   TensorFlow compiles a program for each value of i or computes the size from it.
# It exits with 0 if it sees the lines at its end, and with 1 if TensorFlow behaves differently.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-}" python3.13 "$HOME"/.pyenv/versions/3.13*/bin/python3; do
  "$python" -c "" 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile tensorflow-cpu==2.21.0
cat >"$folder/program.py" <<'END'
import tensorflow as tf


def loop(x):
    means = tf.TensorArray(tf.float32, 4)
    for i in tf.range(4):
        means = means.write(i, tf.reduce_mean(x[i : i + 2]))
    return means.stack()


def of_windows(function):
    return lambda x: tf.map_fn(
        lambda i: tf.cast(function(x[i : i + 2]), tf.float32),
        tf.range(4),
        fn_output_signature=tf.float32,
    )


x = tf.constant([1.0, 2.0, 3.0, 9.0])
programs = {
    "means in a loop": loop,
    "means": of_windows(tf.reduce_mean),
    "sizes": of_windows(tf.size),
    "sums": of_windows(tf.reduce_sum),
}
for name, program in programs.items():
    graph, compiled = (tf.function(program, jit_compile=jit)(x).numpy() for jit in (None, True))
    print(f"{name}: graph mode {graph.tolist()}, compiled {compiled.tolist()}")
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
means in a loop: graph mode [1.5, 2.5, 6.0, 9.0], compiled [1.5, 2.5, 6.0, 4.5]
means: graph mode [1.5, 2.5, 6.0, 9.0], compiled [1.5, 2.5, 6.0, 4.5]
sizes: graph mode [2.0, 2.0, 2.0, 1.0], compiled [2.0, 2.0, 2.0, 2.0]
sums: graph mode [3.0, 5.0, 12.0, 9.0], compiled [3.0, 5.0, 12.0, 9.0]
END
