"""The overlap of concurrent calls with one another and with XLA's own work."""

import time

import tensorflow as tf

import hostcall
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import compiled
from benchmarks.timing import FULL, Effort, measure

TITLE = "Calls that overlap"
CALLS = 8
SECONDS = 0.02
WIDTH = 1200


def sleep(x):
    """Take long, and leave the CPU to others."""
    time.sleep(SECONDS)
    return x


def like(x):
    return tf.TensorSpec(x.shape, x.dtype)


def calls_of(function, count: int):
    return lambda x: tf.add_n([function(x + float(i)) for i in range(count)])


def heavy(w: tf.Tensor) -> tf.Tensor:
    for _ in range(2):
        w = 0.001 * tf.linalg.matmul(w, w)
    return tf.reduce_sum(w)


def main(effort: Effort = FULL) -> list[Row]:
    count = max(2, effort.of(CALLS))
    one_by_one = hostcall.callback(sleep, result=like)
    at_once = hostcall.callback(sleep, result=like, stateful=False, concurrent=True)
    x = tf.zeros([4])
    one, ordered, overlapping = (
        "1 call of 20 ms",
        "8 calls of 20 ms, with side effects",
        "8 calls of 20 ms, concurrent",
    )
    samples = measure(
        {
            one: compiled(calls_of(at_once, 1), x),
            ordered: compiled(calls_of(one_by_one, count), x),
            overlapping: compiled(calls_of(at_once, count), x),
        },
        effort,
    )
    return [
        alone(one, samples[one]),
        beside(samples, ordered, one),
        beside(samples, overlapping, one, at_most(1.2)),
        *_beside_work(effort),
    ]


def _beside_work(effort: Effort) -> list[Row]:
    """Measure a call that takes a little longer than two matrix products, beside these."""
    size = max(4, effort.of(WIDTH))
    w = tf.random.normal([size, size], seed=0)
    work = compiled(heavy, w)
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    seconds = 1.3 * sorted(taken)[2]

    def wait(x):
        time.sleep(seconds)
        return x

    call = hostcall.callback(wait, result=like, stateful=False, concurrent=True)
    x = tf.zeros([4])
    product, waiting, both = "matrix products", "a call that sleeps longer", "the two, independent"
    samples = measure(
        {
            product: work,
            waiting: compiled(call, x),
            both: compiled(lambda w: (call(tf.zeros([4])), heavy(w)), w),
        },
        effort,
    )
    return [
        alone(product, samples[product]),
        beside(samples, waiting, product),
        beside(samples, both, waiting, at_most(1.2)),
    ]
