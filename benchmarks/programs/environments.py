"""Programs in which a policy acts in an environment of Python."""

from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.programs.program import Decorator, Function, Program, draws
from benchmarks.steps import Array

LIMIT, BATCH, SEEN = 30, 32, 8


class Corridor:
    """A corridor in which one walks to the left (0) or right (1), from place 0 to place 5."""

    def reset(self) -> Array:
        self.place, self.time = 0, 0
        return self.observation()

    def act(self, action: Array) -> tuple[Array, Array, bool]:
        self.place += 2 * int(action) - 1
        self.time += 1
        arrived = self.place == 5
        return self.observation(), np.array(1.0 if arrived else -0.1, np.float32), arrived

    def observation(self) -> Array:
        return np.array([self.place / 5, self.time / LIMIT], np.float32)


def episode(part: Decorator) -> Function:
    """Build a step of training on an episode, with the environment in the loop."""
    corridor = Corridor()

    @part
    def chosen(observation: Any, weights: Any, noise: Any) -> Any:
        chance = tf.sigmoid(tf.tensordot(observation, weights[:2], 1) + weights[2])
        return tf.cast(noise < chance, tf.int32)

    @part
    def loss_of(weights: Any, observations: Any, actions: Any, rewards: Any) -> Any:
        logits = tf.linalg.matvec(observations, weights[:2]) + weights[2]
        unlikely = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(actions, tf.float32), logits)
        return tf.reduce_sum(tf.cumsum(rewards, reverse=True) * unlikely)

    def played(weights: Any, noise: Any) -> Any:
        seen = tf.numpy_function(corridor.reset, [], tf.float32)
        seen.set_shape([2])
        kept = [tf.TensorArray(dtype, LIMIT, element_shape=shape) for dtype, shape in KEPT]

        def step(t: Any, seen: Any, done: Any, kept: Any) -> Any:
            action = chosen(seen, weights, noise[t])
            after, reward, done = tf.numpy_function(
                corridor.act, [action], [tf.float32, tf.float32, tf.bool]
            )
            for tensor, shape in ((after, [2]), (reward, []), (done, [])):
                tensor.set_shape(shape)
            written = (seen, action, reward)
            kept = [array.write(t, value) for array, value in zip(kept, written, strict=True)]
            return t + 1, after, done, kept

        def goes_on(t: Any, _: Any, done: Any, __: Any) -> Any:
            return ~done & (t < LIMIT)

        *_, kept = tf.while_loop(goes_on, step, (0, seen, tf.constant(False), kept))
        return [array.stack() for array in kept]

    def train(weights: Any, noise: Any) -> Any:
        observed = played(weights, noise)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = loss_of(weights, *observed)
        return weights - 0.02 * tape.gradient(loss, weights), loss

    return train


KEPT: tuple[tuple[tf.DType, list[int]], ...] = ((tf.float32, [2]), (tf.int32, []), (tf.float32, []))


def acted(state: Array, actions: Array) -> tuple[Array, Array]:
    """Return the next states of a batch of pendulums, and the rewards."""
    angle, speed = state[:, 0], state[:, 1]
    speed = speed + 0.05 * (15 * np.sin(angle) + 3 * (actions - 1))
    after = state.copy()
    after[:, 0], after[:, 1] = angle + 0.05 * speed, speed
    return after, (-(angle**2) - 0.1 * speed**2).astype(np.float32)


def policy(part: Decorator) -> Function:
    """Build one step of a policy in a batch of environments."""

    @part
    def chosen(state: Any, first: Any, second: Any) -> Any:
        hidden = tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(state, first)), second))
        return tf.argmax(hidden[:, :3], axis=1, output_type=tf.int32)

    def step(state: Any, first: Any, second: Any) -> Any:
        action = chosen(state, first, second)
        after, reward = tf.numpy_function(acted, [state, action], [tf.float32, tf.float32])
        after.set_shape(state.shape)
        reward.set_shape([BATCH])
        return after, tf.reduce_mean(reward)

    return step


def replayed(part: Decorator) -> Function:
    """Build a step of Q-learning on a batch that a replay buffer of Python's draws."""
    random = np.random.default_rng(0)
    kept = [random.standard_normal([5000, SEEN]).astype(np.float32) for _ in range(2)]
    gained = random.standard_normal(5000).astype(np.float32)

    def sample() -> tuple[Array, Array, Array]:
        rows = np.random.default_rng(1).integers(0, 5000, 256)
        return kept[0][rows], kept[1][rows], gained[rows]

    @part
    def loss_of(weights: Any, head: Any, before: Any, after: Any, reward: Any) -> Any:
        def value(seen: Any) -> Any:
            return tf.reduce_max(tf.matmul(tf.nn.relu(tf.matmul(seen, weights)), head), axis=1)

        return tf.reduce_mean((value(before) - reward - 0.9 * tf.stop_gradient(value(after))) ** 2)

    def step(weights: Any, head: Any) -> Any:
        batch = tf.numpy_function(sample, [], [tf.float32] * 3)
        for tensor, shape in zip(batch, ([256, SEEN], [256, SEEN], [256]), strict=True):
            tensor.set_shape(shape)
        with tf.GradientTape() as tape:
            tape.watch([weights, head])
            loss = loss_of(weights, head, *batch)
        return loss, *tape.gradient(loss, [weights, head])

    return step


def programs() -> list[Program]:
    noise = tf.constant(np.random.default_rng(0).random(LIMIT), tf.float32)
    first, second = draws(SEEN, 64), draws(64, 64)
    return [
        Program("an environment in a loop", episode, (tf.zeros([3]), noise)),
        Program("a policy in 32 environments", policy, (draws(BATCH, SEEN), first, second)),
        Program("a batch of a replay buffer", replayed, (draws(SEEN, 64), draws(64, 4))),
    ]
