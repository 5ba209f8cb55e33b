"""The memory of a process after 1,000 compiled functions, beside stock TensorFlow."""

import os
import subprocess
import sys

from benchmarks.report import Row, alone, at_most, beside
from benchmarks.timing import FULL, Effort, Samples

TITLE = "Memory of a process with 1,000 compiled functions"
FUNCTIONS = 1000

STOCK = "without hostcall"
IMPORTED = "hostcall imported"
CALLING = "hostcall, with a callback in each function"

# Runs in its own process, and prints the resident memory: its own bytes and shared ones.
SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
if {imported}:
    import hostcall

def program(factor):
    @tf.function(jit_compile=True, autograph=False)
    def run(x):
        y = tf.tanh(x * factor)
        if {calling}:
            y = tf.numpy_function(np.negative, [y], tf.float32)
        else:  # a node in its place
            y = tf.identity(y)
        return tf.ensure_shape(y, [4])
    return run

x = tf.zeros([4])
programs = [program(float(i)) for i in range({functions})]
for run in programs:
    run(x)
with open("/proc/self/statm") as file:
    print(int(file.read().split()[1]) * {page})
"""


def bytes_of(imported: bool, calling: bool, functions: int) -> float:
    script = SCRIPT.format(
        imported=imported,
        calling=calling,
        functions=functions,
        page=os.sysconf("SC_PAGE_SIZE"),
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


def main(effort: Effort = FULL) -> list[Row]:
    functions = effort.of(FUNCTIONS)
    cases = {STOCK: (False, False), CALLING: (True, True)}
    rounds = 1
    if effort.part == 1:
        cases[IMPORTED] = (True, False)
        rounds = 3
    values: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (imported, calling) in cases.items():
            values[name].append(bytes_of(imported, calling, functions))
    samples = {name: Samples(found) for name, found in values.items()}
    rows = [alone(STOCK, samples[STOCK], "bytes")]
    rows += [
        beside(samples, name, STOCK, at_most(1.05), "bytes") for name in samples if name != STOCK
    ]
    return rows
