"""The cost of a log of 5 ms in a training step of 10 ms that does not wait for it."""

import time

import numpy as np
import tensorflow as tf

import hostcall
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Step, compiled, loop_of
from benchmarks.timing import FULL, Effort, Run, measure, seconds_of_calls

TITLE = "Steps of 10 ms, with a log of 5 ms"
STEPS = 50
STEP_SECONDS, LOG_SECONDS = 0.01, 0.005

# The sine of this many numbers takes less than a hundredth of a step.
SIZE = 4096


def write(_: np.ndarray) -> None:
    """Wait, as for a disk or a server."""
    time.sleep(LOG_SECONDS)


def sines(x: tf.Tensor, count: int) -> tf.Tensor:
    return loop_of(tf.sin, count)(x)


def sines_of_a_step(x: tf.Tensor) -> int:
    """Return the number of sines that take as long as a step."""
    count = 1000  # enough to make the cost of a call negligible
    return round(
        count * STEP_SECONDS / seconds_of_calls(compiled(lambda x: sines(x, count), x), 10)
    )


def ending(program: Run) -> Run:
    """Return a run of the program that ends when its last call has ended."""

    def run() -> None:
        program()
        hostcall.barrier()

    return run


def main(effort: Effort = FULL) -> list[Row]:
    x = tf.random.uniform([SIZE])
    count, steps = sines_of_a_step(x), effort.of(STEPS)
    waited = hostcall.callback(write, result=[])
    unawaited = hostcall.callback(write, result=[], wait=False)

    def with_log(log: object) -> Step:
        def step(x: tf.Tensor) -> tf.Tensor:
            y = sines(x, count)
            if callable(log):
                log(y)
            return y

        return loop_of(step, steps)

    names = ["no log", "a log that the program waits for", "a log that nobody waits for"]
    logs = [None, waited, unawaited]
    programs = {
        name: ending(compiled(with_log(log), x)) for name, log in zip(names, logs, strict=True)
    }
    samples = {key: s.per(steps) for key, s in measure(programs, effort).items()}
    return [
        alone(names[0], samples[names[0]]),
        beside(samples, names[1], names[0]),
        beside(samples, names[2], names[0], at_most(1.05)),
    ]
