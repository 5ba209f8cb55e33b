"""A training loop with a simulator, recorded here, and trained again in a process without it.

The loop runs in XLA, the simulator in Python. The second process has the function's name and
nothing behind it: each call is answered from the file, so that the training ends at the same bits.
It would fail with the first value that differs, so this is a test of the model, too, which needs no
simulator.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

import hostcall

STEPS = 25


class Pendulum:
    """A simulator that is expensive, has a licence or stands in a laboratory."""

    def cost(self, gains: np.ndarray) -> float:
        angle, velocity, total = 0.5, 0.0, 0.0
        for _ in range(60):
            torque = -float(gains[0]) * angle - float(gains[1]) * velocity
            velocity += 0.05 * (np.sin(angle) + torque)
            angle += 0.05 * velocity
            total += angle * angle + 0.1 * velocity * velocity
        return total


def simulate(gains: np.ndarray) -> tuple[np.float32, np.ndarray]:
    """Return the cost of gains, and how it changes with each."""
    pendulum, step = Pendulum(), 1e-3
    sides = [pendulum.cost(gains + step * unit) for unit in (*np.eye(2), *-np.eye(2))]
    slope = np.float32([sides[0] - sides[2], sides[1] - sides[3]]) / np.float32(2 * step)
    return np.float32(pendulum.cost(gains)), slope


def missing(gains: np.ndarray) -> tuple[np.float32, np.ndarray]:
    raise ModuleNotFoundError(f"No module named 'pendulum', for {gains}")


def train(simulation: object) -> np.ndarray:
    simulated = hostcall.callback(
        simulation,
        result=(tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.float32)),
        name="pendulum",
    )

    @tf.function(jit_compile=True)
    def run(gains: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        cost = 0.0
        for _ in tf.range(STEPS):
            cost, slope = simulated(gains)
            gains -= 0.2 * slope
        return gains, cost

    gains, cost = run(tf.constant([1.0, 0.5]))
    return np.append(gains.numpy(), cost.numpy())


def main() -> None:
    if len(sys.argv) > 1:  # the process without the simulator
        with hostcall.replay(sys.argv[1]):
            print(train(missing).tobytes().hex())
        return
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "training.hostcall")
        with hostcall.record(file):
            trained = train(simulate)
        again = subprocess.run(
            [sys.executable, __file__, file], capture_output=True, text=True, check=True
        )
    assert again.stdout.split() == [trained.tobytes().hex()]
    print(f"gains {trained[:2]} after {STEPS} steps, at a cost of {trained[2]:.3f}")
    print("the same bits in a process without the simulator")


if __name__ == "__main__":
    main()
