"""Stateful calls run once each and in program order: loops and their conditions."""

from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.journals import Journal, in_order, same_order
from tests.support.helpers import gradient_of, jitted


@in_order(["first", "second", "third"] * 4, tf.constant([1.0]))
def test_while_loop(journal: Any, x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        journal.numpy("first", y * 10.0)
        journal.eager("second", y * 100.0)
        return i + 1, journal.v1("third", y)

    return tf.while_loop(lambda i, y: i < 4, body, [0, x])


@in_order(
    ["before", "one", "one", "between", "two", "two", "two", "after", "ticket"], tf.constant(0)
)
def test_calls_before_inside_and_after_loops(journal: Any, n: tf.Tensor) -> tf.Tensor:
    journal.say("before")
    for i in tf.range(2):
        journal.numpy("one", i)
    journal.say("between")
    for i in tf.range(3):
        journal.numpy("two", i)
    for i in tf.range(n):
        journal.numpy("never", i)
    journal.say("after")
    return journal.ticket()


@in_order(
    ["top", "middle", "bottom", "top", "top", "middle", "bottom", "top", "middle", "leaving"],
    tf.constant([1.0]),
)
def test_autograph_for_with_break_and_continue(journal: Any, x: tf.Tensor) -> tf.Tensor:
    for i in tf.range(10):
        journal.numpy("top", i)
        if i == 1:
            continue
        x = journal.numpy("middle", x)
        if i == 3:
            journal.say("leaving")
            break
        journal.eager("bottom", i)
    return x


@in_order(["before", *["condition", "body"] * 3, "condition", "after"], tf.constant([1.0]))
def test_calls_in_the_condition_of_a_loop(journal: Any, x: tf.Tensor) -> Any:
    def condition(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return journal.numpy("condition", i) < 4

    def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, journal.eager("body", y)

    journal.say("before")
    result = tf.while_loop(condition, body, [0, x])
    journal.say("after")
    return result


@in_order(["ticket"] * 5)
def test_a_call_in_the_condition_alone(journal: Any) -> tf.Tensor:
    count = tf.constant(0)
    while journal.ticket() < 5:
        count += 1
    return count


@in_order(["before", *["map"] * 20, "after"], tf.range(20))
def test_parallel_iterations_do_not_overlap_the_calls(journal: Any, x: tf.Tensor) -> tf.Tensor:
    journal.say("before")
    mapped = tf.map_fn(lambda i: journal.eager("map", i), x, parallel_iterations=10)
    journal.say("after")
    return mapped


@in_order(["scan"] * 3 + ["fold"] * 3, tf.ones([4, 3]))
def test_scan_and_foldl(journal: Any, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    scanned = tf.scan(lambda total, row: journal.numpy("scan", total + row), x)
    folded = tf.foldl(lambda total, row: journal.numpy("fold", total + row), x)
    return scanned, folded


@in_order(["begin", "eager", "numpy", "end"] * 3, tf.range(70_000.0))
def test_large_arrays_in_a_loop(journal: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        journal.say("begin")
        x = journal.eager("eager", x) + journal.numpy("numpy", x * 2.0)
        journal.say("end")
    return x


def test_gradient_of_a_loop_runs_its_calls_backwards() -> None:
    # Stock TensorFlow fails here, so that there is nothing to compare with.
    entries: list[str] = []

    @tf.custom_gradient
    def noted(value: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            entries.append(f"gradient {int(value)}")
            return 2.0 * upstream

        entries.append(f"forward {int(value)}")
        return 2.0 * value, gradient

    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.ensure_shape(tf.py_function(noted, [x], tf.float32), [])
        return x

    assert float(jitted(lambda x: gradient_of(loop, x))(tf.constant(1.0))) == 8.0
    assert entries == [*(f"forward {i}" for i in (1, 2, 4)), *(f"gradient {i}" for i in (4, 2, 1))]


# Stateful calls in conditions of loops, which XLA skips where it counts the iterations.


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


@pytest.mark.parametrize("loops", [1, 2])
def test_calls_around_loops_with_variables(loops: int) -> None:
    """TensorFlow makes no edge between such a loop and a call; eagerly there is an order."""
    variable = tf.Variable(1.0)

    def program(journal: Journal, x: tf.Tensor) -> tf.Tensor:
        def condition(number: int, i: tf.Tensor) -> tf.Tensor:
            journal.say(f"condition {number}")
            return tf.cast(i, tf.float32) < variable

        journal.say("before")
        for number in range(loops):
            tf.while_loop(
                lambda i, number=number: condition(number, i), lambda i: [i + 1], [tf.constant(0)]
            )
            journal.say(f"after {number}")
        return x + 1.0

    eager, compiled = Journal(), Journal()
    program(eager, tf.constant(1.0))
    with hostcall.scope(route="custom_call"):
        jitted(lambda x: program(compiled, x))(tf.constant(1.0))
    assert compiled.entries == eager.entries


@in_order(["condition"] * 3, tf.constant(1.5))
def test_the_gradient_of_such_a_loop(journal: Any, x: tf.Tensor) -> Any:
    def condition(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        journal.numpy("condition", i)
        return i < 2

    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, tf.ensure_shape(tf.py_function(tf.square, [y], y.dtype), [])

    return gradient_of(lambda x: tf.while_loop(condition, body, [0, x], maximum_iterations=5)[1], x)


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
