"""A policy that trains in a compiled loop, with its simulators in other processes.

Each step of the loop runs one Python simulator for each set of gains: `hostcall.map` divides them
among the workers of a process pool. The optimizer is compiled with the loop, and knows only the
scores. Workers import this module alone, so TensorFlow is imported where the loop is.
"""

import concurrent.futures
import math
import multiprocessing
import os

import numpy as np

STEPS, POPULATION, SPREAD = 60, 16, 0.3


def cost(torque_gains: np.ndarray) -> float:
    """How far a pendulum stays from standing upright under a linear controller, in pure Python."""
    angle, velocity, total = 0.5, 0.0, 0.0
    for _ in range(100):
        torque = -(float(torque_gains[0]) * angle + float(torque_gains[1]) * velocity)
        velocity += 0.05 * (math.sin(angle) + max(-2.0, min(2.0, torque)))
        angle += 0.05 * velocity
        total += angle * angle + 0.1 * velocity * velocity
    return total / 100


def costs(population: np.ndarray) -> np.ndarray:
    """Return the costs of a part of the population. The pool calls it for each part."""
    return np.float32([[cost(gains), os.getpid()] for gains in population])


def workers() -> concurrent.futures.ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    return concurrent.futures.ProcessPoolExecutor(2, mp_context=context)


def main() -> None:
    import tensorflow as tf

    import hostcall

    pool = workers()
    simulate = hostcall.callback(
        hostcall.map(costs, executor=pool),
        result=lambda population: tf.TensorSpec([population.shape[0], 2], tf.float32),
        stateful=False,
        retries=2,
    )

    @tf.function(jit_compile=True)
    def train(gains: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Step by an estimate of the gradient: the scores of gains around the present ones."""
        first = last = tf.zeros([POPULATION, 2])
        for step in tf.range(STEPS):
            noise = tf.random.stateless_normal([POPULATION // 2, 2], [7, step])
            noise = tf.concat([noise, -noise], 0)
            last = simulate(gains + SPREAD * noise)
            first = tf.where(step == 0, last, first)
            slope = tf.reduce_mean(last[:, :1] * noise, 0) / SPREAD
            gains -= 2.0 * slope / (tf.norm(slope) + 1.0)
        return gains, first, last

    with pool:
        gains, first, last = train(tf.constant([0.0, 0.0]))
    before, after = (float(tf.reduce_mean(result[:, 0])) for result in (first, last))
    processes = {int(process) for process in last[:, 1].numpy()}
    assert after < 0.2 * before
    assert os.getpid() not in processes
    print(f"gains {gains.numpy().round(2)}, learnt with simulators in other processes")
    print(f"mean cost {before:.2f} before, {after:.2f} after {STEPS} steps")


if __name__ == "__main__":
    main()
