"""The cost of a call through a worker process, for 4 floats and 4 MiB.

The client in C++ makes the call, as in a server. Its peer is an eager call of the same op.
"""

import json
import os
import sys
from pathlib import Path
from unittest import mock

import tensorflow as tf

import hostcall
from benchmarks.report import Row, alone, beside
from benchmarks.steps import identity
from benchmarks.timing import FULL, Effort, measure

# Only the builds of hostcall's developers have this module.
from tests.support.serving.native import module

TITLE = "One call through a worker, with the identity"

SIZES = {"4 floats": 4, "4 MiB": 1 << 20}
IN_PROCESS = "in the process, {}"
THROUGH_WORKER = "through a worker, {}"


def main(effort: Effort = FULL) -> list[Row]:
    hostcall.allow(identity.__module__)
    calls = {}
    for size, count in SIZES.items():
        x = tf.ones([effort.of(count)])
        calls[IN_PROCESS.format(size)] = _in_process(x)
        calls[THROUGH_WORKER.format(size)] = _through_worker(x.numpy())
    with mock.patch.dict(os.environ, _worker_variables()):
        calls[THROUGH_WORKER.format("4 floats")]()  # starts the worker
    samples = measure(calls, effort)
    rows = []
    for size in SIZES:
        here, there = IN_PROCESS.format(size), THROUGH_WORKER.format(size)
        rows += [alone(here, samples[here]), beside(samples, there, here)]
    return rows


def _worker_variables():
    """Return the environment variables by which the client starts its worker."""
    return {
        "HOSTCALL_WORKER_PYTHON": sys.executable,
        "HOSTCALL_ALLOW": identity.__module__,
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }


def _token() -> str:
    spec = [{"spec": ["float32", None]}]
    record = {
        "id": "pyfunc_0",
        "kind": "numpy",
        "inputs": 1,
        "outputs": "float32",
        "function": {"place": f"{identity.__module__}:{identity.__qualname__}"},
        "static": spec,
        "plain": spec,
    }
    return "hostcall:1:" + json.dumps(record, separators=(",", ":"))


def _in_process(x):
    token = _token()
    return lambda: tf.raw_ops.PyFunc(input=[x], token=token, Tout=[tf.float32])[0]


def _through_worker(array):
    argument = (tf.float32.as_datatype_enum, [*array.shape], array.tobytes())
    return module.PreparedCall(_token().encode(), [argument], tf.float32.as_datatype_enum)
