"""A function with ops that XLA has no kernels for compiles without a word of TensorFlow's on it."""

from __future__ import annotations

import os
import subprocess
import sys

_SCRIPT = """
import sys, tempfile

import tensorflow as tf

import hostcall

writer = tf.summary.create_file_writer(tempfile.mkdtemp())
keys = tf.constant([1, 2], tf.int64)
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, [10.0, 20.0]), -1.0)

def printing(x):
    tf.print("x is", x, output_stream=sys.stdout)
    return x * 2.0

def looking_up(x):
    return table.lookup(tf.cast(x, tf.int64)) + 1.0

def texts(x):
    return tf.strings.to_number(tf.strings.as_string(x)) * 2.0

def summing_up(x):
    with writer.as_default():
        tf.summary.write("total", tf.reduce_sum(x), step=1)
    return x + 1.0

def eigenvalues(x):
    return tf.math.real(tf.linalg.eigvals(tf.linalg.diag(x)))

def in_a_branch(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: texts(x), lambda: x)

def in_a_branch_that_is_known(x):
    return tf.cond(tf.constant(True), lambda: x, lambda: texts(x))

def in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, texts(y)), [0, x])[1]

def called(x):
    return tf.function(texts)(x) + 1.0

def beside_a_callback(x):
    y = tf.numpy_function(lambda v: v, [x], tf.TensorSpec([2], tf.float32))
    return printing(y)

def all_of(x):
    y = summing_up(looking_up(printing(x)))
    return texts(eigenvalues(y))

for program in (
    printing, looking_up, texts, summing_up, eigenvalues, in_a_branch, in_a_branch_that_is_known,
    in_a_loop, called, beside_a_callback, all_of,
):
    tf.function(program, jit_compile=True)(tf.constant([1.0, 2.0]))
"""


def test_the_terminal_shows_one_line_a_function() -> None:
    environment = {name: v for name, v in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", _SCRIPT]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert [line for line in lines if "OP_REQUIRES" in line or "Detected unsupported" in line] == []
    assert len([line for line in lines if line.startswith("hostcall: ")]) == 11
