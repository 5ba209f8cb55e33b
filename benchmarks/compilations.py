"""The cost of sizes and values that change from step to step, if XLA compiles for each."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import Array, quiet
from benchmarks.timing import FULL, Effort, measure, measure_once_a_round

TITLE = "Steps whose sizes and values change"

STEPS, MANY, FEW = 200, 100, 3
WIDTH = 128

COMPILED, PLAIN, BY_HAND = "compiled", "graph mode", "partitioned by hand, compiled"

Program = Callable[..., object]
Inputs = list[tuple[tf.Tensor, ...]]


def weights(count: int = 4) -> list[tf.Tensor]:
    draw = np.random.default_rng(0)
    return [tf.constant(draw.standard_normal((WIDTH, WIDTH)) * 0.1, tf.float32)] * count


def network(x: tf.Tensor) -> tf.Tensor:
    for layer in weights():
        x = tf.nn.relu(x @ layer)
    return x


def rows(count: Array) -> Array:
    return np.ones((count, WIDTH), np.float32)


def behind_a_size(count: tf.Tensor) -> tf.Tensor:
    """Run a network on as many rows as Python returns."""
    x = tf.ensure_shape(tf.numpy_function(rows, [count], tf.float32), [None, WIDTH])
    return tf.reduce_sum(network(x))


def behind_a_size_by_hand() -> Program:
    cluster = tf.function(
        lambda x: tf.reduce_sum(network(x)), jit_compile=True, reduce_retracing=True
    )

    def program(count: tf.Tensor) -> tf.Tensor:
        x = tf.numpy_function(rows, [count], tf.float32)
        return cluster(tf.ensure_shape(x, [None, WIDTH]))

    by_hand: Program = tf.function(program)
    return by_hand


def matching(cost: Array) -> Array:
    """Choose a prediction for each target, in place of the Hungarian algorithm."""
    matched: Array = np.argmin(cost, axis=0)
    return matched


def detection_loss(x: tf.Tensor, targets: tf.Tensor, weight: tf.Variable) -> tuple[object, ...]:
    """Compute DETR's loss and gradient; the first row of `targets` holds their number."""
    with tf.GradientTape() as tape:
        predicted = network(x @ weight)[:, :4]
        count = tf.cast(targets[0, 0], tf.int32)
        boxes = tf.slice(targets, [1, 0], [count, 4])
        cost = tf.reduce_sum(tf.abs(predicted[:, None] - boxes[None]), -1)
        matched = tf.gather(predicted, tf.numpy_function(matching, [cost], tf.int64))
        loss = tf.reduce_mean(tf.abs(matched - boxes))
    return loss, tape.gradient(loss, weight)


def confident(scores: Array) -> Array:
    return np.asarray(scores > np.median(scores))


def masked_loss(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    kept = tf.boolean_mask(scores, mask)
    count = tf.maximum(tf.cast(tf.shape(kept)[0], tf.float32), 1.0)
    return tf.reduce_sum(tf.nn.log_softmax(kept) ** 2) / count


def loss_of_chosen_rows(x: tf.Tensor, weight: tf.Variable) -> tuple[object, ...]:
    """Compute a loss in one program: Python chooses the rows, and XLA makes the size."""
    with tf.GradientTape() as tape:
        scores = network(x @ weight)
        mask = tf.numpy_function(confident, [scores[:, 0]], tf.TensorSpec([WIDTH], tf.bool))
        loss = masked_loss(scores, mask)
    return loss, tape.gradient(loss, weight)


def loss_of_given_rows(x: tf.Tensor, mask: tf.Tensor, weight: tf.Variable) -> tuple[object, ...]:
    """Compute the same loss without a call of Python; XLA compiles it by itself."""
    with tf.GradientTape() as tape:
        loss = masked_loss(network(x @ weight), mask)
    return loss, tape.gradient(loss, weight)


def running_loss(x: tf.Tensor, mask: tf.Tensor, weight: tf.Variable) -> tuple[object, ...]:
    """Compute a loss with an op that XLA gets wrong for sizes that it makes itself."""
    with tf.GradientTape() as tape:
        kept = tf.boolean_mask(network(x @ weight), mask)
        loss = tf.reduce_sum(tf.tanh(tf.cumsum(kept, 0)))
    tf.numpy_function(np.size, [loss], tf.TensorSpec([], tf.int64))
    return loss, tape.gradient(loss, weight)


def masks(steps: int) -> list[tf.Tensor]:
    draw = np.random.default_rng(3)
    return [tf.constant(draw.permutation(WIDTH) < 1 + i % MANY) for i in range(steps)]


def targets_of(counts: list[int]) -> list[tf.Tensor]:
    draw, found = np.random.default_rng(1), []
    for count in counts:
        padded = np.zeros((MANY + 1, 4), np.float32)
        padded[0, 0] = count
        padded[1 : count + 1] = draw.standard_normal((count, 4))
        found.append(tf.constant(padded))
    return found


def environment(action: Array) -> tuple[Array, Array]:
    return np.full(4, action, np.float32), np.ones((), np.float32)


def episode(state: tf.Tensor, steps: tf.Tensor, layers: list[tf.Variable]) -> tuple[object, ...]:
    """Run an actor-critic episode in a loop around an environment; return loss and gradient."""
    with tf.GradientTape() as tape:
        chosen = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        rewards = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(steps):
            logits = tf.nn.relu(state[None] @ layers[0]) @ layers[1]
            action = tf.random.categorical(logits, 1)[0, 0]
            probabilities = tf.nn.softmax(logits)
            chosen = chosen.write(i, probabilities[0, action])
            following, reward = tf.numpy_function(environment, [action], [tf.float32, tf.float32])
            state = tf.ensure_shape(following, [4])
            rewards = rewards.write(i, reward)
        loss = -tf.reduce_sum(tf.math.log(chosen.stack()) * rewards.stack())
    return loss, tape.gradient(loss, layers)


def run_all(program: Program, inputs: Inputs) -> None:
    for each in inputs:
        program(*each)


def from_the_start(make: Callable[[], Program], inputs: Inputs) -> float:
    """Return the seconds of all calls, with tracing and compiling."""
    program = make()
    start = time.perf_counter()
    run_all(program, inputs)
    return time.perf_counter() - start


def sizes(count: int, steps: int) -> Inputs:
    return [(tf.constant(100 + i % count),) for i in range(steps)]


def both_ways(program: Program) -> dict[str, Callable[[], Program]]:
    return {
        PLAIN: partial(tf.function, program),
        COMPILED: partial(tf.function, program, jit_compile=True),
    }


def rows_of_sizes(effort: Effort) -> list[Row]:
    steps = effort.of(STEPS)
    found = []
    for count, peer in ((MANY, PLAIN), (FEW, BY_HAND)):
        makes = {**both_ways(behind_a_size), BY_HAND: behind_a_size_by_hand}
        name = f"{STEPS} steps, {count} sizes"
        inputs = sizes(count, steps)
        ways = {f"{name}, {way}": makes[way] for way in (peer, COMPILED)}
        warm = measure({n: partial(run_all, make(), inputs) for n, make in ways.items()}, effort)
        reference, ours = ways
        found += [alone(reference, warm[reference]), beside(warm, ours, reference, at_most(1))]
        cold = {
            f"{n}, from the start": partial(from_the_start, make, inputs)
            for n, make in ways.items()
        }
        samples = measure_once_a_round(cold, effort.times(0.25))
        reference, ours = cold
        found += [alone(reference, samples[reference]), beside(samples, ours, reference)]
    return found


def rows_of_programs(effort: Effort) -> list[Row]:
    draw = np.random.default_rng(2)
    x = tf.constant(draw.standard_normal((WIDTH, WIDTH)), tf.float32)
    weight = tf.Variable(tf.eye(WIDTH))
    layers = [tf.Variable(tf.ones(shape) * 0.1) for shape in ((4, 32), (32, 2))]
    counts = [1 + i * 7 % MANY for i in range(effort.of(STEPS))]
    targets = targets_of(counts)
    same_size = targets_of([20] * effort.of(STEPS))
    cases: dict[str, tuple[Program, Inputs]] = {
        "a loss as DETR's, new targets of one size": (
            lambda x, t: detection_loss(x, t, weight),
            [(x, t) for t in same_size],
        ),
        "a loss as DETR's, new targets of 100 sizes": (
            lambda x, t: detection_loss(x, t, weight),
            [(x, t) for t in targets],
        ),
        "a running loss behind a mask, 100 sizes": (
            lambda x, mask: running_loss(x, mask, weight),
            [(x, mask) for mask in masks(effort.of(STEPS))],
        ),
        "an episode of actor and critic, 50 steps": (
            lambda state, n: episode(state, n, layers),
            [(tf.ones([4]), tf.constant(effort.of(50)))],
        ),
    }
    found = []
    for name, (program, inputs) in cases.items():
        ways = {f"{name}, {way}": make() for way, make in both_ways(program).items()}
        samples = measure({n: partial(run_all, f, inputs) for n, f in ways.items()}, effort)
        samples = {n: taken.per(len(inputs)) for n, taken in samples.items()}
        plain, compiled = ways
        found += [alone(plain, samples[plain]), beside(samples, compiled, plain, at_most(1))]
    return found


def rows_of_masks(effort: Effort) -> list[Row]:
    """Measure a size that XLA makes: XLA computes all rows, graph mode only the chosen ones.

    These figures have no goal: the second pair shows that the difference is XLA's.
    """
    x, weight = weights()[0], tf.Variable(tf.eye(WIDTH))
    mask = tf.constant(confident(network(x @ weight)[:, 0].numpy()))
    programs: dict[str, Program] = {
        "a loss behind a mask, with its gradient, one program": (
            lambda: loss_of_chosen_rows(x, weight)
        ),
        "the same, given the mask, without a callback": (
            lambda: loss_of_given_rows(x, mask, weight)
        ),
    }
    makes = {f"{n}, {way}": make for n, f in programs.items() for way, make in both_ways(f).items()}
    samples = measure({n: make() for n, make in makes.items()}, effort)
    ours, plain_ours, xla, plain_xla = (
        f"{name}, {way}" for name in programs for way in (COMPILED, PLAIN)
    )
    return [
        alone(plain_ours, samples[plain_ours]),
        beside(samples, ours, plain_ours),
        alone(plain_xla, samples[plain_xla]),
        beside(samples, xla, plain_xla),
    ]


def main(effort: Effort = FULL) -> list[Row]:
    with quiet("hostcall"), quiet("tensorflow"):  # they log partitioning and retracing
        half = effort.times(0.5)
        return rows_of_sizes(half) + rows_of_programs(half) + rows_of_masks(half)
