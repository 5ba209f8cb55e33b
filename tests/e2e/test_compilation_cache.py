"""TensorFlow's cache of compiled programs in a directory: processes find those of others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The script of each process. `factor` is a value that the function closes over, so that the
# program of another process must not bring its function along.
SCRIPT = """
import json
import os
import sys

import numpy as np
import tensorflow as tf

import hostcall
from hostcall._compiler.clusters import costs

costs.LAUNCH = 0.0  # each cluster is compiled
factor, route = float(os.environ["FACTOR"]), os.environ["ROUTE"]
x = tf.constant([1.0, 2.0, 3.0])
on_one_line = [lambda v, k=k: v * np.float32(factor + k) for k in range(3)]


def scaled(v):
    return v * np.float32(factor)


def call(function, v, op=tf.numpy_function):
    return tf.ensure_shape(op(function, [v], tf.float32), v.shape)


def gradient(v):
    with tf.GradientTape() as tape:
        tape.watch(v)
        y = call(lambda v: v * v * factor, v, tf.py_function)
    return tape.gradient(y, v)


def printed(v):
    tf.print("seen", v, output_stream=sys.stderr)
    return call(scaled, v)


programs = {
    "numpy_function": lambda v: call(scaled, v * 2.0) + 1.0,
    "several_on_one_line": lambda v: tf.stack([call(f, v) for f in on_one_line]),
    "loop": lambda v: tf.while_loop(
        lambda i, v: i < 3, lambda i, v: (i + 1, call(scaled, v)), (tf.constant(0), v)
    )[1],
    "gradient": gradient,
    "printed": printed,
}
with hostcall.scope(route=route):
    compiled = {name: tf.function(f, jit_compile=True) for name, f in programs.items()}
    print(json.dumps({name: f(x).numpy().tolist() for name, f in compiled.items()}))
"""

EXPECTED: dict[str, Callable[[float], Any]] = {
    "numpy_function": lambda k: [2 * v * k + 1 for v in (1, 2, 3)],
    "several_on_one_line": lambda k: [[v * (k + i) for v in (1, 2, 3)] for i in range(3)],
    "loop": lambda k: [v * k**3 for v in (1, 2, 3)],
    "gradient": lambda k: [2 * v * k for v in (1, 2, 3)],
    "printed": lambda k: [v * k for v in (1, 2, 3)],
}


@pytest.mark.parametrize("route", ["auto", "partition"])
def test_the_next_process_finds_all_programs(
    run_python: Callable[..., str], route: str, tmp_path: Path
) -> None:
    flags = f"--tf_xla_persistent_cache_directory={tmp_path}"
    kept: list[set[str]] = []
    for factor in (2.0, 5.0):
        printed = run_python(SCRIPT, FACTOR=str(factor), ROUTE=route, TF_XLA_FLAGS=flags)
        assert json.loads(printed) == {case: of(factor) for case, of in EXPECTED.items()}
        kept.append({path.name for path in tmp_path.iterdir()})
    assert kept[0]
    assert kept[1] == kept[0]
