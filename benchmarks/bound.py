"""The cost of one call of a bound function with a callback inside, on 4 floats."""

import numpy as np
import tensorflow as tf

import hostcall
from benchmarks import jax_programs
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import identity, numpy_step
from benchmarks.timing import FULL, Effort, measure

TITLE = "One call of a bound function with a numpy_function, on 4 floats"

JAX = "jax.jit with pure_callback"
BOUND = "hostcall.bind"
FROM_ARRAY = "hostcall.bind, called with an array"
USUAL = "tf.function"


def main(effort: Effort = FULL) -> list[Row]:
    array = np.ones(4, np.float32)
    x = tf.constant(array)
    function = tf.function(numpy_step(identity), jit_compile=True)
    bound = hostcall.bind(function, tf.TensorSpec([4], tf.float32))
    calls = {
        JAX: jax_programs.one_call(identity, array),
        BOUND: lambda: bound(x),
        FROM_ARRAY: lambda: bound(array),
        USUAL: lambda: function(x),
    }
    samples = measure(calls, effort)
    return [
        alone(JAX, samples[JAX]),
        beside(samples, BOUND, JAX, at_most(0.5)),
        beside(samples, FROM_ARRAY, JAX),
        beside(samples, USUAL, JAX),
    ]
