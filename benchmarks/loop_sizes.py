"""The cost of a call in a compiled loop by the size of its array, from a scalar to 64 MiB."""

import numpy as np
import tensorflow as tf

from benchmarks import jax_programs
from benchmarks.report import Row, alone, at_least, beside
from benchmarks.steps import (
    bare_with_result,
    compiled,
    eager_step,
    identity,
    in_graph,
    loop_of,
    numpy_step,
)
from benchmarks.timing import FULL, Effort, Run, measure

TITLE = "One of many calls in a compiled loop, by size"

# The shape of the array, and the number of calls in the loop.
SIZES: dict[str, tuple[list[int], int]] = {
    "a scalar": ([], 1000),
    "4 floats": ([4], 1000),
    "1k": ([1 << 10], 500),
    "64k": ([1 << 16], 100),
    "1M": ([1 << 20], 10),
    "16M": ([1 << 24], 4),
}
LARGEST = "16M"
BARE = "bare call and copies"
OURS = {"compiled numpy_function": numpy_step, "compiled py_function": eager_step}
GRAPH = {"graph mode numpy_function": numpy_step, "graph mode py_function": eager_step}
JAX = "jax.pure_callback"


def bare_loop(array: np.ndarray, count: int) -> Run:
    def run() -> None:
        for _ in range(count):
            bare_with_result(identity, array)

    return run


def rows_of(label: str, shape: list[int], count: int, effort: Effort) -> list[Row]:
    array = np.ones(shape, np.float32)
    x = tf.constant(array)
    programs = {
        BARE: bare_loop(array, count),
        **{name: compiled(loop_of(step(identity), count), x) for name, step in OURS.items()},
        **{name: in_graph(loop_of(step(identity), count), x) for name, step in GRAPH.items()},
        JAX: jax_programs.loop_of_calls(jax_programs.by_pure_callback, identity, array, count),
    }
    measured = measure({f"{name}, {label}": run for name, run in programs.items()}, effort)
    samples = {name: value.per(count) for name, value in measured.items()}
    limit = f"{BARE}, {label}"
    rows = [alone(limit, samples[limit])]
    for ours, graph in zip(OURS, GRAPH, strict=True):
        name = f"{ours}, {label}"
        rows += [
            beside(samples, name, limit),
            beside(samples, f"{JAX}, {label}", name, at_least(1)),
            beside(samples, f"{graph}, {label}", name, at_least(1)),
            # This shows whether any call that copies could beat graph mode.
            beside(samples, f"{graph}, {label}", limit),
        ]
    return rows


def main(effort: Effort = FULL) -> list[Row]:
    return [
        row
        for label, (shape, count) in SIZES.items()
        if effort.part == 1 or label != LARGEST  # which takes seconds
        for row in rows_of(label, shape, effort.of(count), effort)
    ]
