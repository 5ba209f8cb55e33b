"""A Python simulator on two workers of Dask, called by each step of a compiled training loop.

One command starts the workers and trains: `python examples/simulator_on_dask.py`. With
`Client("tcp://...")`, the address of a scheduler, the same program uses a cluster.
"""

import os

import numpy as np
from distributed import Client, LocalCluster

# Dask's workers import this file. What only the program needs is imported in `main`, so that they
# start without TensorFlow.


def simulate(gains: np.ndarray) -> np.ndarray:
    """How well a controller holds a pendulum up, and the process that has tried it."""
    angle, velocity, reward = 0.5, 0.0, 0.0
    for _ in range(100):
        torque = -gains[0] * angle - gains[1] * velocity
        velocity += 0.05 * (np.sin(angle) + torque)
        angle += 0.05 * velocity
        reward -= angle**2
    return np.float32([reward, os.getpid()])


def in_numpy(gains: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        slope = [simulate(gains + d)[0] - simulate(gains - d)[0] for d in np.float32(np.eye(2))]
        gains = gains + np.float32(0.05) * np.float32(slope)
    return gains


def main() -> None:
    import tensorflow as tf

    import hostcall

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        reward = hostcall.callback(
            simulate,
            result=tf.TensorSpec([2], tf.float32),
            stateful=False,  # so that simulations may overlap
            executor=client.get_executor(pure=False),
        )

        @tf.function(jit_compile=True)
        def train(gains: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
            for _ in tf.range(steps):
                better = [reward(gains + d)[0] for d in tf.unstack(tf.eye(2))]
                worse = [reward(gains - d)[0] for d in tf.unstack(tf.eye(2))]
                gains += 0.05 * (tf.stack(better) - tf.stack(worse))
            return gains

        start = np.float32([2.0, 1.0])
        gains = train(start, tf.constant(5))
        np.testing.assert_allclose(gains, in_numpy(start, 5), rtol=1e-4)
        before, after = reward(start), reward(gains)
        assert os.getpid() not in (int(before[1]), int(after[1]))
        print(f"gains {start}: reward {before[0]:7.2f}")
        print(f"gains {gains.numpy()}: reward {after[0]:7.2f}")


if __name__ == "__main__":
    main()
