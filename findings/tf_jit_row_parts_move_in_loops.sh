#!/usr/bin/env bash
# In a compiled loop, x[i, 1:] is the start of a row and not its end, and x[i, ::2] is x[i, :2].
#
# Versions: tensorflow-cpu 2.21.0, Python 3.13, November 2026.
# Input: a matrix of two rows of three float32, of whose rows a loop takes a part at constant
#   positions; the number of the row is that of the iteration, so XLA does not know it.
# Behaviour: with jit_compile=True a part that begins behind 0 is moved to the start of the row, and
#   a stride behind the first position counts as 1, also a negative one. Nothing warns. A part from
#   the start, x[i, :2], is right, and so are x[i][1:] and tf.gather(x, i)[1:], and x[i, 1:] outside
#   of a loop, where TensorFlow compiles a program for each value of i.
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

PARTS = {
    "x[i, 1:]": lambda x, i: x[i, 1:],
    "x[i, ::2]": lambda x, i: x[i, ::2],
    "x[i, ::-2]": lambda x, i: x[i, ::-2],
    "x[i, :2]": lambda x, i: x[i, :2],
    "x[i][1:]": lambda x, i: x[i][1:],
}

x = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
for name, part in PARTS.items():

    def parts(x, part=part):
        return tf.map_fn(
            lambda i: tf.reshape(part(x, i), [2]), tf.range(2), fn_output_signature=tf.float32
        )

    graph, compiled = (tf.function(parts, jit_compile=jit)(x).numpy() for jit in (None, True))
    print(f"{name}: graph mode {graph.tolist()}, compiled {compiled.tolist()}")
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
x[i, 1:]: graph mode [[2.0, 3.0], [5.0, 6.0]], compiled [[1.0, 2.0], [4.0, 5.0]]
x[i, ::2]: graph mode [[1.0, 3.0], [4.0, 6.0]], compiled [[1.0, 2.0], [4.0, 5.0]]
x[i, ::-2]: graph mode [[3.0, 1.0], [6.0, 4.0]], compiled [[1.0, 2.0], [4.0, 5.0]]
x[i, :2]: graph mode [[1.0, 2.0], [4.0, 5.0]], compiled [[1.0, 2.0], [4.0, 5.0]]
x[i][1:]: graph mode [[2.0, 3.0], [5.0, 6.0]], compiled [[2.0, 3.0], [5.0, 6.0]]
END
