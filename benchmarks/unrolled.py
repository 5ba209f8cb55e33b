"""The cost of one of 100 calls that follow each other in one program, without a loop."""

import jax
import numpy as np
import tensorflow as tf

import hostcall
from benchmarks import jax_programs
from benchmarks.report import Row, alone, at_least, beside
from benchmarks.steps import (
    bare_with_result,
    compiled,
    eager_step,
    identity,
    in_graph,
    numpy_step,
)
from benchmarks.timing import FULL, Effort, Run, measure
from benchmarks.tracing import chain_of

TITLE = "One of 100 calls in one program, on 4 floats"
CALLS = 100

BARE = "bare call and copies"
NUMPY, EAGER, BOUND = "compiled numpy_function", "compiled py_function", "hostcall.bind"
GRAPH, JAX = "graph mode numpy_function", "jax.pure_callback"


def chain_in_jax(array: np.ndarray, count: int) -> Run:
    def chain(v: jax.Array) -> jax.Array:
        for _ in range(count):
            v = jax_programs.by_pure_callback(identity, v)
        return v

    program, argument = jax.jit(chain), jax.device_put(array)
    return lambda: program(argument).block_until_ready()


def main(effort: Effort = FULL) -> list[Row]:
    count = effort.of(CALLS)
    array = np.ones(4, np.float32)
    x = tf.constant(array)
    chain = chain_of(numpy_step(identity), count)
    bound = hostcall.bind(chain, x)

    def bare_chain() -> None:
        for _ in range(count):
            bare_with_result(identity, array)

    programs: dict[str, Run] = {
        BARE: bare_chain,
        NUMPY: compiled(chain, x),
        EAGER: compiled(chain_of(eager_step(identity), count), x),
        BOUND: lambda: bound(x),
        GRAPH: in_graph(chain, x),
        JAX: chain_in_jax(array, count),
    }
    measured = measure(programs, effort)
    samples = {name: value.per(count) for name, value in measured.items()}
    rows = [alone(BARE, samples[BARE])]
    for name in (NUMPY, EAGER, BOUND):
        rows += [
            beside(samples, name, BARE),
            beside(samples, JAX, name, at_least(1)),
            beside(samples, GRAPH, name, at_least(1)),
        ]
    return rows
