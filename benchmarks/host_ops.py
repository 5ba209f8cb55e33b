"""The cost of an op without an XLA kernel that a compiled program calls."""

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import hostcall
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Step, compiled, in_graph, loop_of, quiet
from benchmarks.timing import FULL, Effort, Run, measure

TITLE = "Ops without XLA kernels, called by one program"
TURNS = 1000
WIDTH = 600

# The kernel divides more matrices than this among threads.
AT_ONCE = 8


def printing(x: tf.Tensor) -> tf.Tensor:
    tf.print("at", x)
    return x + 1.0


def eigenvalues_of(matrices: tf.Tensor) -> Step:
    """Return a step that keeps nearly the same matrices, since the cost depends on their values."""

    def step(x: tf.Tensor) -> tf.Tensor:
        return matrices + 1e-6 * tf.math.real(tf.linalg.eigvals(x))[..., tf.newaxis]

    return step


def heavy(x: tf.Tensor) -> tf.Tensor:
    for _ in range(6):
        x = tf.tanh(x @ x * 0.001)
    return x


def heavy_with_a_host_op(x: tf.Tensor) -> tf.Tensor:
    y = heavy(x)
    return y * tf.strings.to_number(tf.strings.as_string(tf.reduce_sum(y)))


@contextlib.contextmanager
def no_output() -> Iterator[None]:
    """Discard the lines that TensorFlow prints."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def in_parts(program: Step, x: tf.Tensor) -> Run:
    """Return the program, partitioned around the ops that XLA has no kernel for."""
    function = tf.function(program, jit_compile=True)
    with hostcall.scope(route="partition"):
        function.get_concrete_function(x)
    return lambda: function(x)


def in_a_loop(name: str, step: Step, x: tf.Tensor, effort: Effort, most: float) -> list[Row]:
    count = effort.of(TURNS)
    program = loop_of(step, count)
    names = [f"{name}, {how}" for how in ("graph mode", "one program", "partitioned")]
    programs = {
        names[0]: in_graph(program, x),
        names[1]: compiled(program, x),
        names[2]: in_parts(program, x),
    }
    samples = {key: s.per(count) for key, s in measure(programs, effort).items()}
    return [
        alone(names[0], samples[names[0]]),
        beside(samples, names[1], names[0], at_most(most)),
        beside(samples, names[2], names[0]),
    ]


def eigenvalues_in_a_loop(matrix: tf.Tensor, effort: Effort) -> list[Row]:
    """Compare with the kernel's own time: its time per matrix in calls with many matrices."""
    name, kernel = "eigvals of 4 x 4 in a loop", "eigvals of 4 x 4, the kernel alone"
    count, step = effort.of(TURNS), eigenvalues_of(matrix)
    program = loop_of(step, count)
    matrices = tf.stack([matrix] * AT_ONCE)
    samples = measure(
        {
            kernel: in_graph(loop_of(eigenvalues_of(matrices), count), matrices),
            f"{name}, graph mode": in_graph(program, matrix),
            f"{name}, one program": compiled(program, matrix),
        },
        effort,
    )
    samples = {
        key: s.per(count * AT_ONCE if key == kernel else count) for key, s in samples.items()
    }
    return [
        alone(kernel, samples[kernel]),
        beside(samples, f"{name}, graph mode", kernel),
        beside(samples, f"{name}, one program", kernel, at_most(1.5)),
    ]


def beside_compiled_work(effort: Effort) -> list[Row]:
    size = max(4, effort.of(WIDTH))
    x = tf.constant(np.random.default_rng(0).random((size, size)), tf.float32)
    work, more = "6 layers of 600 x 600, no host op", "6 layers of 600 x 600, one host op"
    samples = measure({work: compiled(heavy, x), more: compiled(heavy_with_a_host_op, x)}, effort)
    return [alone(work, samples[work]), beside(samples, more, work, at_most(1.1))]


def main(effort: Effort = FULL) -> list[Row]:
    matrix = tf.constant(np.random.default_rng(0).random((4, 4)), tf.float32)
    with quiet("hostcall"), no_output():
        rows = in_a_loop("tf.print in a loop", printing, tf.constant(0.0), effort, 0.5)
        rows += eigenvalues_in_a_loop(matrix, effort)
        rows += beside_compiled_work(effort)
    return rows
