"""The cost of graph mode's values and errors in compiled programs, beside XLA's."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from benchmarks.programs import first_call, programs, quiet_tensorflow
from benchmarks.report import Goal, Row, alone, at_most, beside
from benchmarks.steps import Array, loop_of, quiet
from benchmarks.timing import FULL, Effort, Run, Samples, in_turn, measure

TITLE = "Programs with graph mode's values and errors, beside XLA's"

GRAPH, XLA = "graph", "xla"
SETTINGS = (XLA, GRAPH)
FIRST = "first call"
STEP_OF_ALL, FIRST_OF_ALL = "the median of a step", "the median of a first call"

MANY, ROWS, TURNS = 1_000_000, 1000, 100
SECONDS_OF_FIRST_CALLS = 3.0  # of a program; long ones have FEWEST rounds
FEWEST, MOST = 3, 10

Step = Callable[..., Any]
Case = tuple[Step, tuple[tf.Tensor, ...]]


@contextlib.contextmanager
def semantics(value: str) -> Iterator[None]:
    """Compile functions with one of the two settings."""
    hostcall.configure(semantics=value)
    try:
        yield
    finally:
        hostcall.configure(semantics=GRAPH)


def around(name: str) -> dict[str, Callable[[], contextlib.AbstractContextManager[object]]]:
    """Return the settings in which the ways of a program are called."""
    return {f"{name}, {value}": partial(semantics, value) for value in SETTINGS}


def warm(name: str, make: Callable[[], Run], effort: Effort) -> dict[str, Samples]:
    """Measure a step with each setting; a function of its own is traced for each."""
    steps = {f"{name}, {value}": make() for value in SETTINGS}
    return measure(steps, effort, around(name))


def cold(name: str, make: Callable[[], Run], effort: Effort) -> dict[str, Samples]:
    """Measure first calls of new functions with each setting."""
    ways = around(f"{name}, {FIRST}")
    start, rounds = time.perf_counter(), min(FEWEST, effort.rounds)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for done, turn in enumerate(in_turn(ways, min(MOST, effort.rounds))):
        if done >= rounds and time.perf_counter() - start > SECONDS_OF_FIRST_CALLS:
            break
        for way, within in turn:
            with within():
                seconds[way].append(first_call(make))
    return {way: Samples(values) for way, values in seconds.items()}


def pair(samples: Mapping[str, Samples], name: str, goal: Goal | None) -> list[Row]:
    """Return the row of XLA's semantics, and beside it that of graph mode's."""
    peer, ours = (f"{name}, {value}" for value in SETTINGS)
    return [alone(peer, samples[peer]), beside(samples, ours, peer, goal)]


def median_of(name: str, rows: list[Row], goal: Goal) -> list[Row]:
    """Return the rows of the median of the programs' ratios, whose quartiles are theirs, too."""
    compared = [row for row in rows if row.ratio is not None]
    costs = statistics.median(row.cost.median for row in compared)
    ratios = [row.ratio.median for row in compared if row.ratio is not None]
    samples = {
        f"{name}, {XLA}": Samples([costs] * len(ratios)),
        f"{name}, {GRAPH}": Samples([costs * ratio for ratio in ratios]),
    }
    return pair(samples, name, goal)


def rows_of_programs(effort: Effort) -> list[Row]:
    """Return the rows of the real programs: of their steps, and of their first calls."""
    steps, firsts = [], []
    some = programs()
    for program in some[: effort.of(len(some))]:
        name, make = program.name, program.compiled
        steps += pair(warm(name, make, effort), name, at_most(1.1))
        firsts += pair(cold(name, make, effort), f"{name}, {FIRST}", at_most(1.1))
    return [
        *median_of(STEP_OF_ALL, steps, at_most(1.03)),
        *median_of(FIRST_OF_ALL, firsts, at_most(1.1)),
        *steps,
        *firsts,
    ]


def kept(x: Array) -> Array:
    """Return the argument: the callback beside which an op is measured."""
    return x


def with_a_callback(step: Step) -> Step:
    """Return a step that also calls Python with a scalar, before its op."""

    def program(x: tf.Tensor, *rest: tf.Tensor) -> Any:
        one = tf.reshape(x, [-1])[0]
        seen = tf.numpy_function(kept, [one], tf.TensorSpec([], x.dtype))
        return step(x, *rest), seen

    return program


def added(indices: tf.Tensor, updates: tf.Tensor) -> Step:
    """Return a step that adds rows to places of an array."""
    return lambda x: tf.tensor_scatter_nd_add(x, indices, updates)


def read_in_a_loop(x: tf.Tensor) -> tf.Tensor:
    """Read all elements of a TensorArray in a loop, and write them into another one."""
    read = tf.TensorArray(tf.float32, x.shape[0], element_shape=x.shape[1:]).unstack(x)
    written = tf.TensorArray(tf.float32, x.shape[0], element_shape=x.shape[1:])
    for i in tf.range(x.shape[0]):
        written = written.write(i, read.read(i) + 1.0)
    return written.stack()


def checked_cases(effort: Effort) -> dict[str, Case]:
    """Return ops for whose values TensorFlow's kernels raise errors."""
    count, rows = effort.of(MANY), effort.of(ROWS)
    draw = np.random.default_rng(0)
    table, numbers = tf.constant(draw.random(rows), tf.float32), tf.range(1, count + 1)
    vectors = tf.constant(draw.random((rows, 64)), tf.float32)
    indices = tf.constant(draw.integers(0, rows, count), tf.int32)
    logits, labels = tf.constant(draw.random((rows, 100)), tf.float32), indices[:rows] % 100
    scattered = loop_of(added(indices[:rows, None], table), effort.of(TURNS))
    return {
        "a gather of 1M indices": (tf.gather, (table, indices)),
        "a gather of 1M indices of 1M": (tf.gather, (tf.cast(numbers, tf.float32), indices)),
        "an embedding of 16k of 64 numbers": (tf.gather, (vectors, indices[: count // 64])),
        "a division of 1M integers": (tf.math.floordiv, (indices, numbers)),
        "a remainder of 1M integers": (tf.math.floormod, (indices, numbers)),
        "a scatter of 1000 in a loop": (scattered, (table,)),
        "1000 segments of 1M": (
            partial(tf.math.unsorted_segment_sum, num_segments=rows),
            (tf.cast(numbers, tf.float32), indices),
        ),
        "a cross entropy of 1000 labels": (
            lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x[..., None] * logits),
            (table, labels),
        ),
        "a TensorArray of 1000 in a loop": (tf.function(read_in_a_loop), (vectors,)),
    }


def rewritten_cases(effort: Effort) -> dict[str, Case]:
    """Return ops of whose values XLA's kernels give others, on arguments where they do not."""
    count = effort.of(MANY)
    draw = np.random.default_rng(1)
    x, y = (tf.constant(draw.standard_normal(count), tf.float32) for _ in range(2))
    matrix = tf.reshape(x, [effort.of(ROWS), -1])
    integers = tf.constant(draw.integers(0, 31, count), tf.int32)
    return {
        "reduce_max of 1M": (tf.reduce_max, (x,)),
        "reduce_min of 1000 rows of 1000": (lambda x: tf.reduce_min(x, 1), (matrix,)),
        "argmax of 1000 rows of 1000": (lambda x: tf.argmax(x, 1), (matrix,)),
        "softmax of 1000 rows of 1000": (tf.nn.softmax, (matrix,)),
        "log_softmax of 1000 rows of 1000": (tf.nn.log_softmax, (matrix,)),
        "maximum of 1M": (tf.maximum, (x, y)),
        "relu of 1M": (tf.nn.relu, (x,)),
        "sign of 1M": (tf.sign, (x,)),
        "a cast of 1M to int32": (lambda x: tf.cast(x * 1e3, tf.int32), (x,)),
        "a cast of 1M to uint8": (lambda x: tf.cast(x * x, tf.uint8), (x,)),
        "a shift of 1M": (tf.bitwise.left_shift, (integers, integers)),
        "a square of 1M integers, compared": (lambda x: x * x < 100, (integers,)),
        "top_k of 1000 rows of 1000": (lambda x: tf.math.top_k(x, 10), (matrix,)),
    }


def random_cases(effort: Effort) -> dict[str, Case]:
    """Return ops that draw random numbers."""
    x = tf.ones([effort.of(MANY)])
    shape = x.shape
    return {
        "dropout of 1M": (lambda x: tf.nn.dropout(x, 0.5), (x,)),
        "1M of random.uniform": (lambda x: x + tf.random.uniform(shape), (x,)),
        "1M of random.normal": (lambda x: x + tf.random.normal(shape), (x,)),
        "1M of random.truncated_normal": (lambda x: x + tf.random.truncated_normal(shape), (x,)),
        "1M of stateless_uniform": (lambda x: x + tf.random.stateless_uniform(shape, (1, 2)), (x,)),
        "1M of stateless_normal": (lambda x: x + tf.random.stateless_normal(shape, (1, 2)), (x,)),
    }


def rows_of_cases(effort: Effort) -> list[Row]:
    """Return the rows of single ops, each beside a callback."""
    cases = checked_cases(effort) | rewritten_cases(effort) | random_cases(effort)
    found = []
    for name, (step, arguments) in cases.items():
        program = with_a_callback(step)

        def make(program: Step = program, arguments: Any = arguments) -> Run:
            return partial(tf.function(program, jit_compile=True), *arguments)

        found += pair(warm(name, make, effort), name, at_most(1.1))
    return found


def main(effort: Effort = FULL) -> list[Row]:
    with quiet("hostcall"), quiet_tensorflow():
        return rows_of_programs(effort) + rows_of_cases(effort)
