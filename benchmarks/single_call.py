"""The cost that a callback adds to one call of a compiled function, on 4 floats."""

from functools import partial

import tensorflow as tf

from benchmarks.report import Row, alone, at_most, at_most_more, beside
from benchmarks.steps import Step, compiled, eager_step, identity, loop_of, numpy_step
from benchmarks.timing import FULL, Effort, measure

TITLE = "One call of a compiled function, on 4 floats"

ONE_KERNEL = "no callback, one kernel"
# XLA has a faster way to run programs of a single kernel, with or without callbacks.
KERNELS = "no callback, a loop of 2"
NUMPY = "numpy_function"
EAGER = "py_function"
TAPE = "eager mode, with its gradient"
INSIDE = "py_function and its gradient"
OUTSIDE = "py_function, its gradient by a tape around the program"
OUTSIDE_NONE = "no callback, its gradient by a tape around the program"


def square(v: tf.Tensor) -> tf.Tensor:
    return v * v


def doubled(step: Step) -> Step:
    return lambda x: step(x) * 2.0


def with_gradient(step: Step) -> Step:
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = step(x)
        return tape.gradient(y, x)

    return program


def main(effort: Effort = FULL) -> list[Row]:
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    squares = doubled(eager_step(square))
    calls = {
        ONE_KERNEL: compiled(doubled(lambda v: v + 1.0), x),
        KERNELS: compiled(doubled(loop_of(lambda v: v + 1.0, 2)), x),
        NUMPY: compiled(doubled(numpy_step(identity)), x),
        EAGER: compiled(doubled(eager_step(identity)), x),
        TAPE: partial(with_gradient(doubled(square)), x),
        INSIDE: compiled(with_gradient(squares), x),
    }
    around_program = {OUTSIDE: squares, OUTSIDE_NONE: doubled(square)}
    for name, program in around_program.items():
        calls[name] = partial(with_gradient(tf.function(program, jit_compile=True)), x)
    samples = measure(calls, effort.times(3))  # differences need more rounds than ratios do
    return [
        alone(ONE_KERNEL, samples[ONE_KERNEL]),
        beside(samples, NUMPY, ONE_KERNEL, at_most_more(2e-6)),
        beside(samples, EAGER, ONE_KERNEL, at_most_more(12e-6)),
        beside(samples, KERNELS, ONE_KERNEL),
        beside(samples, NUMPY, KERNELS),
        beside(samples, EAGER, KERNELS),
        alone(TAPE, samples[TAPE]),
        beside(samples, INSIDE, TAPE, at_most(2)),
        beside(samples, OUTSIDE_NONE, TAPE),
        beside(samples, OUTSIDE, TAPE),
    ]
