"""A Python simulator with state of its own, stepped from a compiled loop.

The policy runs in XLA, the simulator in Python. The calls keep program order, so the simulator gets
the actions one after another.
"""

import numpy as np
import tensorflow as tf

import hostcall


class Pendulum:
    """Angle and velocity live in this object; TensorFlow never sees more than observations."""

    def __init__(self) -> None:
        self.angle, self.velocity, self.steps = 0.5, 0.0, 0

    def step(self, torque: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.steps += 1
        self.velocity += 0.05 * (np.sin(self.angle) + float(torque))
        self.angle += 0.05 * self.velocity
        return np.float32([self.angle, self.velocity]), np.float32(np.cos(self.angle))


def rollout(simulator: Pendulum, gains: tf.Tensor, steps: int) -> tf.Tensor:
    step = hostcall.callback(
        simulator.step, result=(tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.float32))
    )

    @tf.function(jit_compile=True)
    def run(gains: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, state: tf.Tensor, reward: tf.Tensor) -> tuple[tf.Tensor, ...]:
            torque = -tf.reduce_sum(gains * state)
            state, gained = step(torque)
            return i + 1, state, reward + gained

        start = (0, tf.constant([0.5, 0.0]), 0.0)
        return tf.while_loop(lambda i, *_: i < steps, body, start)[2]

    return run(gains)


def in_numpy(simulator: Pendulum, gains: np.ndarray, steps: int) -> np.float32:
    state, reward = np.float32([0.5, 0.0]), np.float32(0)
    for _ in range(steps):
        state, gained = simulator.step(-np.sum(gains * state))
        reward += gained
    return reward


def main() -> None:
    for gains in ([0.0, 0.0], [2.0, 0.0], [4.0, 2.0]):
        compiled, plain = Pendulum(), Pendulum()
        reward = rollout(compiled, tf.constant(gains), 200)
        np.testing.assert_allclose(reward, in_numpy(plain, np.float32(gains), 200), rtol=1e-5)
        np.testing.assert_allclose(compiled.angle, plain.angle, rtol=1e-4)
        assert compiled.steps == 200
        print(f"gains {gains}: reward {reward:8.3f}, ends at angle {compiled.angle:8.3f}")


if __name__ == "__main__":
    main()
