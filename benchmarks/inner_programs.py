"""The cost of a first call whose callback compiles many small programs of its own."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import hostcall.jax
from benchmarks.programs import quiet_tensorflow
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Array, quiet
from benchmarks.timing import FULL, Effort, cpu_seconds, measure_once_a_round

TITLE = "A first call whose callback compiles programs of its own"

PROGRAMS = 60

GRAPH, OURS = "graph mode", "compiled"
PEER, CALL = "jax.pure_callback", "hostcall.jax.call"


def energy(count: int, x: Array) -> np.float32:
    """Compile programs and run them, as functions of quantum chemistry do that JAX computes."""
    total, v = 0.0, np.asarray(x)
    for i in range(count):
        term = jax.jit(lambda v, i=i: jnp.sum(jnp.exp(-(v**2)) * i) + jnp.linalg.norm(v))
        total += float(term(v))
    return np.float32(total)


def in_tensorflow(count: int, compiles: bool) -> float:
    """Return the CPU seconds of the first call of a new function of TensorFlow's."""

    def program(x: tf.Tensor) -> tf.Tensor:
        found = tf.numpy_function(partial(energy, count), [x], tf.TensorSpec([], tf.float32))
        return tf.reshape(found, []) * 2.0

    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    return cpu_seconds(partial(tf.function(program, jit_compile=compiles or None), x))


def in_jax(count: int, by_hostcall: bool) -> float:
    """Return the CPU seconds of the first call of a new program of JAX's."""
    spec = jax.ShapeDtypeStruct((), np.float32)
    call = hostcall.jax.call if by_hostcall else jax.pure_callback
    program = jax.jit(lambda x: call(partial(energy, count), spec, x) * 2)
    x = np.ones(4, np.float32)
    return cpu_seconds(lambda: program(x).block_until_ready())


def main(effort: Effort = FULL) -> list[Row]:
    count = effort.of(PROGRAMS)
    makes = {
        GRAPH: partial(in_tensorflow, count, compiles=False),
        OURS: partial(in_tensorflow, count, compiles=True),
        PEER: partial(in_jax, count, by_hostcall=False),
        CALL: partial(in_jax, count, by_hostcall=True),
    }
    with quiet("hostcall"), quiet_tensorflow():
        samples = measure_once_a_round(makes, effort.times(0.5))
    rows = []
    for peer, ours in ((GRAPH, OURS), (PEER, CALL)):
        rows += [alone(peer, samples[peer]), beside(samples, ours, peer, at_most(1.3))]
    return rows
