"""Calls with side effects around loops and branches, in programs that XLA runs on its own threads.

Programs of few or small operations run one operation after another, whatever the tokens say.
"""

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.helpers import jitted, plain

X = tf.zeros([100_000])
BESIDE = 7  # the calls in front of a loop or branch, and behind it


class Log:
    """The numbers that were called, in their order, and those that began while another ran."""

    def __init__(self, op: Any) -> None:
        self.x: Any = X  # the argument of the program
        self.said: list[int] = []
        self.overlapping: list[int] = []
        self._op = op
        self._running = threading.Lock()

    def call(self, number: Any) -> tf.Tensor:
        x = self.x + tf.cast(number, tf.float32)
        return tf.ensure_shape(self._op(self._note, [x], x.dtype), X.shape)

    def _note(self, x: Any) -> Any:
        number = int(x[0])
        self.said.append(number)
        alone = self._running.acquire(blocking=False)
        threading.Event().wait(0.001)
        if alone:
            self._running.release()
        else:
            self.overlapping.append(number)
        return x


Part = Callable[[Log], Any]


def calls(first: int) -> Part:
    return lambda log: [log.call(first + i) for i in range(BESIDE)]


def loop(log: Log) -> Any:
    y = log.x + 0.0
    for i in tf.range(3):
        y = y + log.call(100 + i)
    return y


def loop_for_effect(log: Log) -> Any:
    for i in tf.range(3):
        log.call(110 + i)


def branch(log: Log) -> Any:
    return log.call(120) if log.x[0] < 1.0 else log.x + 0.0


def branch_for_effect(log: Log) -> Any:
    if log.x[0] < 1.0:
        log.call(130)
        log.call(131)


def branch_of_several(log: Log) -> Any:
    return tf.switch_case(
        tf.cast(log.x[0], tf.int32) + 1, [lambda i=i: log.call(140 + i) for i in range(3)]
    )


def branch_without_effects(log: Log) -> Any:
    return log.x + 1.0 if log.x[0] < 1.0 else log.call(150)


def condition_with_effects(log: Log) -> Any:
    return tf.while_loop(lambda i: log.call(160 + i)[0] < 162.0, lambda i: [i + 1], [0])


def loop_of_branches(log: Log) -> Any:
    for i in tf.range(3):
        log.call(170 + i)
        if i % 2 == 0:
            log.call(180 + i)
        loop_for_effect(log)


def called_function(log: Log) -> Any:
    return tf.function(lambda: (log.call(190), loop(log), log.call(191)))()


FLOWS = [loop, loop_for_effect, branch, branch_for_effect, branch_of_several]
FLOWS += [branch_without_effects, condition_with_effects, loop_of_branches, called_function]
NAMES = {flow.__name__: flow for flow in FLOWS}


def check(parts: list[Part], op: Any, mode: Any = jitted) -> None:
    found, expected = Log(op), Log(op)

    def step(log: Log) -> Callable[[tf.Tensor], Any]:
        def run(x: tf.Tensor) -> Any:
            log.x = x
            results = [part(log) for part in parts]
            return [result for result in results if result is not None]

        return run

    compiled, graph = mode(step(found)), plain(step(expected))
    for _ in range(2):
        tf.nest.map_structure(np.testing.assert_array_equal, compiled(X), graph(X))
    assert found.said == expected.said
    assert found.overlapping == []


@pytest.mark.parametrize("flow", NAMES)
@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function])
def test_at_the_beginning_and_the_end_and_one_among_calls(flow: str, op: Any) -> None:
    check([NAMES[flow], calls(0), NAMES[flow], calls(10), NAMES[flow]], op)


@pytest.mark.parametrize("seed", range(3))
def test_several_in_any_order(seed: int) -> None:
    chosen = random.Random(seed).sample(FLOWS, 4)
    check([*chosen[:2], calls(0), *chosen[2:], calls(10)], tf.numpy_function)


def test_loops_that_use_variables() -> None:
    total = tf.Variable(0.0)

    def assigning(log: Log) -> Any:
        for i in tf.range(3):
            total.assign_add(log.call(100 + i)[0])
            if total > 150.0:
                total.assign_add(log.call(200 + i)[0])
            loop_for_effect(log)

    log = Log(tf.numpy_function)

    def run(x: tf.Tensor) -> Any:
        log.x = x
        return calls(0)(log), assigning(log), calls(10)(log)

    jitted(run)(X)
    inner = [100, 110, 111, 112, 101, 201, 110, 111, 112, 102, 202, 110, 111, 112]
    assert log.said == [*range(BESIDE), *inner, *range(10, 10 + BESIDE)]
    assert log.overlapping == []
    assert total.numpy() == 100 + 101 + 201 + 102 + 202


def test_gradients() -> None:
    def gradient(log: Log) -> Any:
        with tf.GradientTape() as tape:
            x = tf.reduce_sum(log.x) + 2.0
            tape.watch(x)
            y = x
            for i in range(BESIDE):
                y = y * log.call(i + 1)[0]
            for i in tf.range(2):
                y = y + log.call(i + 20)[0] * x
        return tape.gradient(y, x)

    check([gradient, loop, calls(30)], tf.py_function)
