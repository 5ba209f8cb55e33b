"""The cost of ragged tensors in compiled loops: their rows, and sums of them."""

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from benchmarks.programs import quiet_tensorflow
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Array, quiet
from benchmarks.timing import FULL, Effort, Run, cpu_seconds, measure, measure_once_a_round

TITLE = "Ragged tensors in loops"

ROWS, LONGEST, SIZE = 32, 20, 32
CHECKS, NAMES, EDGES, WORDS, TURNS = 400, 800, 2400, 64, 20

STEP = "a training step over the rows"
FIRST = "its first call, CPU time"
DECODER, PRINTING = "a decoder", "a decoder with a tf.print"
GRAPH, OURS = "graph mode", "compiled"

Make = Callable[[bool], Run]


def training(effort: Effort) -> Make:
    """Return a maker of a training step that reads the rows of a ragged tensor in a loop."""
    draw, count = np.random.default_rng(0), effort.of(ROWS)
    lengths = draw.integers(1, LONGEST, count)
    values = draw.standard_normal((lengths.sum(), SIZE)).astype(np.float32)
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths)
    weights = tf.Variable(draw.standard_normal((SIZE, SIZE)).astype(np.float32) / SIZE)

    def step(ragged: tf.RaggedTensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.constant(0.0)
            for i in tf.range(count):
                loss += tf.reduce_mean(tf.tanh(ragged[i] @ weights) ** 2)
            loss = tf.reshape(tf.py_function(lambda v: v, [loss], tf.float32), [])
        weights.assign_sub(1e-3 * tape.gradient(loss, weights))
        return loss

    return lambda compiles: partial(tf.function(step, jit_compile=compiles or None), ragged)


def cpu_seconds_of_first_call(make: Make, compiles: bool) -> float:
    return cpu_seconds(make(compiles))


def decoder(prints: bool, effort: Effort) -> Run:
    """Return a run of a compiled decoder like those of LDPC codes: ragged sums in a loop."""
    draw = np.random.default_rng(1)
    of_names, of_checks = (np.sort(draw.integers(0, n, EDGES)) for n in (NAMES, CHECKS))
    order = draw.permutation(EDGES)

    def sums(values: tf.Tensor, owners: Array, count: int) -> tf.Tensor:
        lengths = np.bincount(owners, minlength=count)
        rows = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
        return tf.gather(tf.reduce_sum(rows, axis=1), owners)

    def turn(i: tf.Tensor, edges: tf.Tensor, given: tf.Tensor) -> tuple[tf.Tensor, ...]:
        others = sums(edges, of_names, NAMES) + given - edges
        sorted_by_check = tf.math.log1p(tf.exp(-tf.abs(tf.gather(others, order))))
        others = sums(sorted_by_check, of_checks, CHECKS) - sorted_by_check
        return i + 1, tf.gather(others, np.argsort(order)) * 0.5, given

    def program(given: tf.Tensor) -> tf.Tensor:
        first = tf.constant(0), tf.zeros_like(given), given
        edges = tf.while_loop(lambda i, *_: i < effort.of(TURNS), turn, first)[1]
        if prints:
            tf.print(tf.reduce_sum(edges), output_stream="file:///dev/null")
        return edges

    given = tf.constant(draw.standard_normal((EDGES, effort.of(WORDS))), tf.float32)
    return partial(tf.function(program, jit_compile=True), given)


def main(effort: Effort = FULL) -> list[Row]:
    with quiet("hostcall"), quiet_tensorflow():
        make = training(effort)
        ways = {f"{STEP}, {GRAPH}": False, f"{STEP}, {OURS}": True}
        samples = measure({name: make(compiles) for name, compiles in ways.items()}, effort)
        firsts = {f"{FIRST}, {GRAPH}": False, f"{FIRST}, {OURS}": True}
        samples |= measure_once_a_round(
            {name: partial(cpu_seconds_of_first_call, make, how) for name, how in firsts.items()},
            effort.times(0.5),
        )
        programs = {DECODER: decoder(False, effort), PRINTING: decoder(True, effort)}
        samples |= measure(programs, effort)
    goals = {STEP: at_most(0.9), FIRST: at_most(1.5)}
    rows = [alone(DECODER, samples[DECODER]), beside(samples, PRINTING, DECODER, at_most(1.1))]
    for name, goal in goals.items():
        peer, ours = f"{name}, {GRAPH}", f"{name}, {OURS}"
        rows += [alone(peer, samples[peer]), beside(samples, ours, peer, goal)]
    return rows
