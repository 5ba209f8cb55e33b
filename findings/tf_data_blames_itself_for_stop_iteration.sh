#!/usr/bin/env bash
# A StopIteration in Dataset.filter is told as an implementation error of TensorFlow's own.
#
# Versions: tensorflow-cpu 2.21.0, numpy 2.5.5, Python 3.13, November 2026.
# Input: a function that calls next() of an iterator which ends too early, called by
#   tf.numpy_function in the functions of several methods of a dataset.
# Behaviour: StopIteration becomes OutOfRangeError, by which TensorFlow means the end of a
#   dataset. Dataset.map and scan say that a function was the cause. filter, flat_map, interleave
#   and take_while raise an InternalError instead: their iterator is said to have an
#   implementation error. reduce raises the OutOfRangeError itself, for which loops that end at
#   OutOfRangeError look: there it is the end of the data.
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

numbers = tf.data.Dataset.range(5)


def run(make):
    left = iter([1, 2])

    def function(x):
        next(left)
        return x

    def call(x):
        return tf.ensure_shape(tf.numpy_function(function, [x], tf.int64), [])

    try:
        result = make(call)
        print("no error", list(result.as_numpy_iterator()))
    except tf.errors.OpError as error:
        blames_itself = "implementation error" in error.message
        print(type(error).__name__, "an implementation error" if blames_itself else "StopIteration")


METHODS = {
    "map": lambda call: numbers.map(call),
    "scan": lambda call: numbers.scan(tf.constant(0, tf.int64), lambda s, x: (s + call(x), x)),
    "filter": lambda call: numbers.filter(lambda x: call(x) >= 0),
    "flat_map": lambda call: numbers.flat_map(lambda x: tf.data.Dataset.from_tensors(call(x))),
    "take_while": lambda call: numbers.take_while(lambda x: call(x) >= 0),
    "reduce": lambda call: numbers.reduce(tf.constant(0, tf.int64), lambda s, x: s + call(x)),
}
for name, make in METHODS.items():
    print(name, end=": ")
    run(make)
END
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" "$folder/program.py" >"$folder/seen" 2>"$folder/log"
diff - "$folder/seen" <<'END'
map: InvalidArgumentError StopIteration
scan: InvalidArgumentError StopIteration
filter: InternalError an implementation error
flat_map: InternalError an implementation error
take_while: InternalError an implementation error
reduce: OutOfRangeError StopIteration
END
