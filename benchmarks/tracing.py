"""The growth of tracing and compiling with the number of script ops, up to 1,000 of them."""

import time

import tensorflow as tf

from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Step, identity, numpy_step, switched_off
from benchmarks.timing import FULL, Effort, Samples

TITLE = "Tracing and compiling, for each of the ops in a chain"
FEW, MANY = 250, 1000
STOCK = f"trace, {MANY} times numpy_function, hostcall off"

# TensorFlow's graph gets a node for each; XLA drops the identities at once.
STEPS: dict[str, Step] = {
    "numpy_function": numpy_step(identity),
    "tf.identity": tf.identity,
}


def chain_of(step: Step, count: int) -> Step:
    def chain(x: tf.Tensor) -> tf.Tensor:
        for _ in range(count):
            x = step(x)
        return x

    return chain


def seconds_of(step: Step, count: int) -> tuple[float, float]:
    """Return the seconds of tracing, and of compiling and a first call."""
    chain = chain_of(step, count)
    x = tf.zeros([4])
    start = time.perf_counter()
    traced = tf.function(chain, jit_compile=True, autograph=False).get_concrete_function(x)
    between = time.perf_counter()
    traced(x).numpy()
    return between - start, time.perf_counter() - between


def seconds_of_stock(count: int) -> float:
    """Return the seconds of tracing with hostcall off; stock TensorFlow cannot compile the op."""
    with switched_off():
        chain = tf.function(chain_of(STEPS["numpy_function"], count), autograph=False)
        start = time.perf_counter()
        chain.get_concrete_function(tf.zeros([4]))
        return time.perf_counter() - start


def samples_of(effort: Effort) -> dict[str, Samples]:
    """Return the seconds per op, by the kind of work, the number of ops and the op."""
    values: dict[str, list[float]] = {}
    few, many = effort.of(FEW), effort.of(MANY)
    for _ in range(effort.times(0.25).rounds):
        for name, step in STEPS.items():
            for count, full in ((few, FEW), (many, MANY)):
                trace, compilation = (seconds / count for seconds in seconds_of(step, count))
                parts = {"trace": trace, "compile": compilation, "both": trace + compilation}
                for part, seconds in parts.items():
                    values.setdefault(f"{part}, {full} times {name}", []).append(seconds)
        values.setdefault(STOCK, []).append(seconds_of_stock(many) / many)
    return {key: Samples(seconds) for key, seconds in values.items()}


def main(effort: Effort = FULL) -> list[Row]:
    seconds_of(STEPS["numpy_function"], 2)  # not timed: the first compilation takes longer
    samples = samples_of(effort)
    rows = []
    for part in ("trace", "compile", "both"):
        few, many = (f"{part}, {count} times numpy_function" for count in (FEW, MANY))
        peer = f"{part}, {MANY} times tf.identity"
        last = part == "both"
        rows += [
            alone(few, samples[few]),
            beside(samples, many, few, at_most(1.2) if last else None),
            alone(peer, samples[peer]),
            beside(samples, many, peer, at_most(1.3) if last else None),
        ]
    traced = f"trace, {MANY} times numpy_function"
    rows += [alone(STOCK, samples[STOCK]), beside(samples, traced, STOCK)]
    return rows
