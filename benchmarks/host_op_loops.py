"""The cost of one iteration of a loop with a host op, beside graph mode."""

from collections.abc import Callable

import tensorflow as tf

import hostcall
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Step, identity, quiet
from benchmarks.timing import FULL, Effort, measure

TITLE = "One iteration of a loop with an op on the host, on 4 floats"
ITERATIONS = 1000


def of_unknown_shape(x: tf.Tensor) -> tf.Tensor:
    """Call a script op whose result may have any size, between ops that XLA compiles."""
    y = tf.ensure_shape(tf.numpy_function(identity, [x * 2.0 + 1.0], tf.float32), [None])
    return y * 0.3


def of_strings(x: tf.Tensor) -> tf.Tensor:
    """Call an op that XLA lacks, between ops that it compiles."""
    return tf.ensure_shape(tf.strings.to_number(tf.strings.as_string(x * 2.0 + 1.0)), [4]) * 0.3


def loop(step: Step, count: int, shape: list[int | None]) -> Step:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, _: i < count,
            lambda i, y: (i + 1, step(y)),
            (tf.constant(0), x),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape(shape)),
        )[1]

    return program


def with_variable(step: Step) -> Callable[[], Step]:
    """Return a maker of the step with a variable that it reads and adds to."""

    def make() -> Step:
        total = tf.Variable(tf.zeros([4]))

        def added(x: tf.Tensor) -> tf.Tensor:
            y = tf.ensure_shape(step(x), [4])
            total.assign_add(y)
            return y + total

        return added

    return make


STEPS: dict[str, tuple[Callable[[], Step], list[int | None], str]] = {
    "a script op of unknown shape, partitioned": (lambda: of_unknown_shape, [None], "auto"),
    "a script op and a variable, partitioned": (with_variable(of_unknown_shape), [4], "auto"),
    "an op on strings, one program": (lambda: of_strings, [4], "auto"),
    "an op on strings, partitioned": (lambda: of_strings, [4], "partition"),
}


def rows_of(
    name: str, make: Callable[[], Step], shape: list[int | None], route: str, effort: Effort
) -> list[Row]:
    count = effort.of(ITERATIONS)
    x = tf.zeros([4])
    graph = f"{name.partition(',')[0]}, graph mode"
    with hostcall.scope(route=route):
        compiled = tf.function(loop(make(), count, shape), jit_compile=True)
        compiled(x)
    plain = tf.function(loop(make(), count, shape))
    measured = measure({name: lambda: compiled(x), graph: lambda: plain(x)}, effort)
    samples = {key: value.per(count) for key, value in measured.items()}
    # Partitioning has no goal if it was asked for: one program would do.
    goal = at_most(1) if route == "auto" else None
    return [alone(graph, samples[graph]), beside(samples, name, graph, goal)]


def main(effort: Effort = FULL) -> list[Row]:
    with quiet("hostcall"):  # it logs partitioning
        return [row for name, case in STEPS.items() for row in rows_of(name, *case, effort)]
