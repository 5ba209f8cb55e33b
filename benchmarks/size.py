"""The cost of one call by the size of its array, from 4 floats to 64 MiB."""

from functools import partial

import numpy as np
import tensorflow as tf

import hostcall
from benchmarks import jax_programs
from benchmarks.report import Goal, Row, alone, at_least, at_most, beside
from benchmarks.steps import (
    add_one,
    bare_borrowed,
    bare_with_result,
    bare_written,
    borrowed,
    compiled,
    eager_step,
    identity,
    in_graph,
    numpy_step,
    written,
)
from benchmarks.timing import FULL, Effort, Samples, measure

TITLE = "One call with the identity, by size"

SIZES = {"4": 4, "1k": 1 << 10, "64k": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}  # floats
GOALS = {"1M": at_most(1.2), "16M": at_most(1.2)}  # 4 MiB, 64 MiB

BARE = "bare call and copies"  # one in, one out
NONE = "compiled, no callback"  # XLA's own cost for a result of that size
NUMPY = "compiled numpy_function"
EAGER = "compiled py_function"
BOUND = "hostcall.bind, numpy_function"
BOUND_EAGER = "hostcall.bind, py_function"
BOUND_NONE = "hostcall.bind, no callback"
FROM_ARRAY = "hostcall.bind, numpy_function, called with an array"
EAGER_FROM_ARRAY = "hostcall.bind, py_function, called with an array"
GRAPH = "graph mode numpy_function"
GRAPH_FROM_ARRAY = "graph mode numpy_function, called with an array"
BORROWED = "compiled numpy_function, borrow=True"
WRITTEN = "compiled numpy_function, borrow=True and out=True"
ONE_COPY = "bare call and copy out"
NO_COPY = "bare call that writes its result"
ADDED = "compiled numpy_function that adds 1"
GRAPH_ADDED = "graph mode numpy_function that adds 1"
JAX = "jax.pure_callback"
JAX_FROM_ARRAY = "jax.pure_callback, called with an array"


def rows_of(label: str, size: int, effort: Effort) -> list[Row]:
    array = np.ones(size, np.float32)  # zeros may have no memory of their own
    x = tf.constant(array)
    programs = {
        BARE: partial(bare_with_result, identity, array),
        NONE: compiled(lambda v: v + 1.0, x),
        NUMPY: compiled(numpy_step(identity), x),
        EAGER: compiled(eager_step(identity), x),
        BOUND: partial(hostcall.bind(numpy_step(identity), x), x),
        BOUND_NONE: partial(hostcall.bind(lambda v: v + 1.0, x), x),
        BOUND_EAGER: partial(hostcall.bind(eager_step(identity), x), x),
        GRAPH: in_graph(numpy_step(identity), x),
        ADDED: compiled(numpy_step(add_one), x),
        GRAPH_ADDED: in_graph(numpy_step(add_one), x),
        JAX: jax_programs.one_call(identity, array),
        ONE_COPY: partial(bare_borrowed, borrowed, array),
        BORROWED: compiled(numpy_step(borrowed), x),
        NO_COPY: partial(bare_written, written, array),
        WRITTEN: compiled(numpy_step(written), x),
    }
    # Measured apart: they return memory to the system, and the others would have to ask for it.
    from_array = {
        FROM_ARRAY: partial(hostcall.bind(numpy_step(identity), x), array),
        EAGER_FROM_ARRAY: partial(hostcall.bind(eager_step(identity), x), array),
        GRAPH_FROM_ARRAY: in_graph(numpy_step(identity), array),
        JAX_FROM_ARRAY: jax_programs.one_call(identity, array, from_array=True),
    }
    samples: dict[str, Samples] = {}
    for group in (programs, from_array):
        samples |= measure({f"{key}, {label}": run for key, run in group.items()}, effort)
    goal = GOALS.get(label)

    def row(program: str, peer: str, goal: Goal | None = None) -> Row:
        return beside(samples, f"{program}, {label}", f"{peer}, {label}", goal)

    return [
        alone(f"{BARE}, {label}", samples[f"{BARE}, {label}"]),
        row(NONE, BARE),
        row(NUMPY, BARE, goal),
        row(BOUND, BARE, goal),
        *(row(program, BARE) for program in (EAGER, GRAPH, JAX)),
        row(NUMPY, NONE),
        alone(f"{GRAPH_ADDED}, {label}", samples[f"{GRAPH_ADDED}, {label}"]),
        row(ADDED, GRAPH_ADDED, at_most(1.1)),
        *(
            line
            for bound, peers in (
                (BOUND, (JAX, GRAPH)),
                (BOUND_EAGER, (JAX, GRAPH)),
                (FROM_ARRAY, (JAX_FROM_ARRAY, GRAPH_FROM_ARRAY)),
                (EAGER_FROM_ARRAY, (JAX_FROM_ARRAY, GRAPH_FROM_ARRAY)),
            )
            for line in (
                alone(f"{bound}, {label}", samples[f"{bound}, {label}"]),
                *(row(peer, bound, at_least(1)) for peer in peers),
            )
        ),
        alone(f"{BOUND_NONE}, {label}", samples[f"{BOUND_NONE}, {label}"]),
        row(GRAPH, BOUND_NONE),
        alone(f"{ONE_COPY}, {label}", samples[f"{ONE_COPY}, {label}"]),
        row(BORROWED, ONE_COPY, goal),
        alone(f"{NO_COPY}, {label}", samples[f"{NO_COPY}, {label}"]),
        row(WRITTEN, NO_COPY, goal),
    ]


def main(effort: Effort = FULL) -> list[Row]:
    largest = effort.of(max(SIZES.values()))
    return [
        row
        for label, size in SIZES.items()
        if size <= largest
        for row in rows_of(label, size, effort)
    ]
