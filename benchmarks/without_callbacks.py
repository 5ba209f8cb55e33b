"""The cost of functions without script ops, with hostcall on beside off."""

import contextlib
import time
from collections.abc import Callable

import tensorflow as tf

from benchmarks.partition import host
from benchmarks.report import Row, about, alone, beside
from benchmarks.steps import Step, compiled, quiet, switched_off
from benchmarks.timing import FULL, Effort, measure, measure_once_a_round

TITLE = "Functions without script ops, hostcall on beside off"


def small(x: tf.Tensor) -> tf.Tensor:
    return x * 2.0 + 1.0


def layers(x: tf.Tensor) -> tf.Tensor:
    for _ in range(10):
        x = tf.nn.relu(tf.matmul(x, x) * 0.01 - 0.1)
        x = x / (1.0 + tf.reduce_sum(tf.exp(-x), axis=1, keepdims=True))
    return x


PROGRAMS: dict[str, tuple[Step, list[int]]] = {
    "x * 2 + 1 on 4 floats": (small, [4]),
    "10 layers of 64 x 64": (layers, [64, 64]),
}


AROUND = {"off": switched_off, "on": contextlib.nullcontext}


def seconds_to_compile(program: Step, x: tf.Tensor, state: str) -> Callable[[], float]:
    def make() -> float:
        with AROUND[state]():
            start = time.perf_counter()
            tf.function(program, jit_compile=True)(x).numpy()
            return time.perf_counter() - start

    return make


def partition_a_function() -> None:
    """Make this process compile a function that is partitioned."""

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(host(x * x))

    with quiet("hostcall"):  # it logs partitioning
        program(tf.ones([4]))


def rows_of_compiling(name: str, program: Step, x: tf.Tensor, effort: Effort) -> list[Row]:
    makes = {
        f"trace and compile {name}, {state}": seconds_to_compile(program, x, state)
        for state in AROUND
    }
    with quiet("tensorflow"):  # it warns that a function is traced often
        samples = measure_once_a_round(makes, effort)
    off, on = makes
    return [alone(off, samples[off]), beside(samples, on, off, about(1))]


def rows_of_running(name: str, program: Step, x: tf.Tensor, effort: Effort) -> list[Row]:
    calls = {f"run {name}, {state}": compiled(program, x) for state in AROUND}
    samples = measure(calls, effort, dict(zip(calls, AROUND.values(), strict=True)))
    off, on = calls
    return [alone(off, samples[off]), beside(samples, on, off, about(1))]


def main(effort: Effort = FULL) -> list[Row]:
    rows = []
    for name, (program, shape) in PROGRAMS.items():
        rows += rows_of_running(name, program, tf.ones(shape), effort)
        rows += rows_of_compiling(name, program, tf.ones(shape), effort)
    # These come last: the rows above need a process that has partitioned nothing.
    partition_a_function()
    for name, (program, shape) in PROGRAMS.items():
        rows += rows_of_compiling(f"{name} after partitioning", program, tf.ones(shape), effort)
    return rows
