"""Stateful calls in conditions of loops, which XLA skips where it counts the iterations."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.journals import in_order, same_order
from tests.support.helpers import jitted, plain
from tests.support.versions import one_program_keeps_the_order


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_a_number_of_iterations_that_is_known(iterations: int) -> None:
    def program(journal: Any, x: tf.Tensor) -> tf.Tensor:
        def condition(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            journal.numpy("condition", i)
            return i < iterations

        def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            journal.numpy("body", y)
            return i + 1, tf.sin(y)

        return tf.while_loop(condition, body, [0, x])[1]

    expected = ["condition", "body"] * iterations + ["condition"]
    assert same_order(program, tf.constant(1.0)) == expected


def test_nested_loops() -> None:
    def program(journal: Any, x: tf.Tensor) -> tf.Tensor:
        def condition(name: str, limit: int) -> Any:
            def check(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
                journal.say(name)
                return i < limit

            return check

        def outer(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            inner = tf.while_loop(condition("inner", 2), lambda j, z: (j + 1, z * 2.0), [0, y])
            return i + 1, inner[1]

        return tf.while_loop(condition("outer", 2), outer, [0, x])[1]

    inner = ["inner"] * 3
    assert same_order(program, tf.constant(1.0)) == ["outer", *inner, "outer", *inner, "outer"]


@in_order(["inner", "inner"] * 3, tf.constant(1.0))
def test_a_loop_in_a_condition(journal: Any, x: tf.Tensor) -> tf.Tensor:
    def steps(i: tf.Tensor) -> tf.Tensor:
        def check(j: tf.Tensor) -> tf.Tensor:
            journal.numpy("inner", j)
            return j < 1

        return tf.while_loop(check, lambda j: [j + 1], [0])[0] + i

    iterations = tf.while_loop(lambda i: steps(i) < 3, lambda i: [i + 1], [0])[0]
    return x + tf.cast(iterations, tf.float32)


@one_program_keeps_the_order
@pytest.mark.parametrize("loops", [1, 2])
def test_calls_around_loops_with_variables(loops: int) -> None:
    """TensorFlow makes no edge between such a loop and a call."""
    variable = tf.Variable(1.0)

    def program(journal: list[str], x: tf.Tensor) -> tf.Tensor:
        def note(tag: str) -> None:
            tf.numpy_function(lambda: journal.append(tag), [], [])

        def condition(number: int, i: tf.Tensor) -> tf.Tensor:
            note(f"condition {number}")
            return tf.cast(i, tf.float32) < variable

        note("before")
        for number in range(loops):
            tf.while_loop(
                lambda i, number=number: condition(number, i), lambda i: [i + 1], [tf.constant(0)]
            )
            note(f"after {number}")
        return x + 1.0

    journals: list[list[str]] = []
    for compiled in (False, True):
        journals.append([])
        with hostcall.scope(route="custom_call" if compiled else "auto"):
            tf.config.run_functions_eagerly(not compiled)
            try:
                run = jitted(lambda x: program(journals[-1], x))
                run(tf.constant(1.0))
            finally:
                tf.config.run_functions_eagerly(False)
    assert journals[0] == journals[1]


def test_a_condition_that_assigns_variables() -> None:
    seen: list[float] = []
    count = tf.Variable(0.0)

    def program(x: tf.Tensor) -> tf.Tensor:
        def condition(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            tf.numpy_function(lambda c: seen.append(float(c)), [count.assign_add(1.0)], [])
            return i < 2

        return tf.while_loop(condition, lambda i, y: (i + 1, y + count), [0, x])[1]

    results = []
    for mode in (plain, jitted):
        count.assign(0.0)
        seen.clear()
        results.append((mode(program)(tf.constant(1.0)).numpy(), float(count), [*seen]))
    assert results[0] == results[1] == (1.0 + 1.0 + 2.0, 3.0, [1.0, 2.0, 3.0])


def test_the_gradient_of_such_a_loop() -> None:
    seen: list[int] = []

    def program(x: tf.Tensor) -> Any:
        def condition(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            tf.numpy_function(lambda i: seen.append(int(i)), [i], [])
            return i < 2

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(
                condition,
                lambda i, y: (i + 1, tf.ensure_shape(tf.py_function(tf.sin, [y], y.dtype), [])),
                [0, x],
                maximum_iterations=5,
            )[1]
        return tape.gradient(y, x)

    x = tf.constant(1.0)
    gradients = [mode(program)(x).numpy() for mode in (plain, jitted)]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-6)
    assert seen == [0, 1, 2] * 2


def test_a_condition_that_asks_python() -> None:
    left = [3]

    def more(_: np.ndarray) -> np.ndarray:
        left[0] -= 1
        return np.array(left[0] > 0)

    ask = hostcall.callback(more, result=tf.TensorSpec([], tf.bool))
    program = jitted(lambda x: tf.while_loop(lambda y: ask(y), lambda y: [y * 2.0], [x])[0])
    assert program(tf.constant(1.0)).numpy() == 4.0
    assert left == [0]


def test_constants_and_sizes_stay_known_in_the_loop() -> None:
    def program(journal: Any, x: tf.Tensor) -> tf.Tensor:
        shape = tf.constant([3, 1])

        def condition(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            journal.say("condition")
            return i < 2

        def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, tf.reshape(tf.reshape(y, shape) * 2.0, [3])

        return tf.while_loop(condition, body, [0, x])[1]

    # A loop that loses them would run, as clusters.
    with hostcall.scope(route="custom_call"):
        assert same_order(program, tf.constant([1.0, 2.0, 3.0])) == ["condition"] * 3
