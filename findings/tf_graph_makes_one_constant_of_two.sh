#!/usr/bin/env bash
# In a tf.function without XLA, (0 * 1e30) * 1e30 is NaN, and (x + c) - c does not round.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: float32 numbers that are scaled by two constants, or rounded by adding a great constant
#   and subtracting it again, eagerly and in a tf.function that is not compiled.
# Behaviour: TensorFlow's own optimizer of graphs, Grappler, makes one constant of two, of which
#   the product is infinite and the sum 0. So a line that is right eagerly gives NaN, infinity or
#   another number as soon as it is in a tf.function. Constants that arrive as arguments are left
#   alone, and so is everything with
#   `tf.config.optimizer.set_experimental_options({"constant_folding": False})`.
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
import tensorflow as tf

GREAT = 12582912.0  # 1.5 * 2**23, beyond which float32 has whole numbers only
PROGRAMS = {
    "(0 * 1e30) * 1e30": (lambda x: (x * 1e30) * 1e30, 0.0),
    "(1e-30 * 1e30) * 1e30": (lambda x: (x * 1e30) * 1e30, 1e-30),
    "(1e38 / 1e30) / 1e30": (lambda x: (x / 1e30) / 1e30, 1e38),
    "1.7 rounded": (lambda x: (x + GREAT) - GREAT, 1.7),
    "1.7 rounded by an argument": (lambda x, great: (x + great) - great, 1.7, GREAT),
}
for name, (program, *arguments) in PROGRAMS.items():
    arguments = [tf.constant(argument) for argument in arguments]
    tf.config.optimizer.set_experimental_options({"constant_folding": True})
    values = [program(*arguments), tf.function(program)(*arguments)]
    tf.config.optimizer.set_experimental_options({"constant_folding": False})
    values.append(tf.function(program)(*arguments))
    print(f"{name}: eager {values[0]:.3g}, graph {values[1]:.3g}, unfolded {values[2]:.3g}")
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
(0 * 1e30) * 1e30: eager 0, graph nan, unfolded 0
(1e-30 * 1e30) * 1e30: eager 1e+30, graph inf, unfolded 1e+30
(1e38 / 1e30) / 1e30: eager 1e-22, graph 0, unfolded 1e-22
1.7 rounded: eager 2, graph 1.7, unfolded 2
1.7 rounded by an argument: eager 2, graph 2, unfolded 2
END
