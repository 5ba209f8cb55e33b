"""Stateful calls run once each and in program order: loops and their conditions."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.journals import in_order, same_order
from tests.support.helpers import gradient_of, jitted, plain
from tests.support.versions import one_program_keeps_the_order

ROWS = tf.reshape(tf.range(12.0), [4, 3])


@in_order(["first", "second", "third"] * 4, tf.constant([1.0]))
def test_while_loop(journal: Any, x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        journal.numpy("first", y * 10.0)
        journal.eager("second", y * 100.0)
        return i + 1, journal.v1("third", y)

    return tf.while_loop(lambda i, y: i < 4, body, [0, x])


@in_order(["a", "b", "c"] * 5, tf.constant(5))
def test_while_loop_without_data_between_the_iterations(journal: Any, n: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor) -> list[tf.Tensor]:
        journal.say("a")
        journal.numpy("b", i)
        journal.say("c")
        return [i + 1]

    return tf.while_loop(lambda i: i < n, body, [0])[0]


@in_order(
    ["before", "one", "one", "between", "two", "two", "two", "after", "ticket"], tf.constant([1.0])
)
def test_calls_before_inside_and_after_two_loops(journal: Any, x: tf.Tensor) -> tf.Tensor:
    journal.say("before")
    for i in tf.range(2):
        journal.numpy("one", i)
    journal.say("between")
    for i in tf.range(3):
        journal.numpy("two", i)
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


@in_order(["step"] * 5, tf.constant([1.0]))
def test_autograph_while_whose_condition_depends_on_the_calls(
    journal: Any, x: tf.Tensor
) -> tf.Tensor:
    while tf.reduce_sum(x) < 8.0:
        x = journal.eager("step", x)
        if x[0] > 5.0:
            break
    return x


@in_order(["before", "after"], tf.constant(0))
def test_a_loop_that_never_runs(journal: Any, n: tf.Tensor) -> tf.Tensor:
    journal.say("before")
    for i in tf.range(n):
        journal.numpy("inside", i)
    journal.say("after")
    return n


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


@in_order(
    ["row", "row end", "row", "cell", "row end", "row", "cell", "cell", "row end"],
    tf.constant([1.0]),
)
def test_loops_in_loops(journal: Any, x: tf.Tensor) -> tf.Tensor:
    for i in tf.range(3):
        journal.numpy("row", i)
        j = tf.constant(0)
        while j < i:  # XLA cannot range over a size that it does not know
            x = journal.numpy("cell", x + tf.cast(j, tf.float32))
            j += 1
        journal.numpy("row end", i)
    return x


@in_order(["before", *["map"] * 4, "after"], ROWS)
def test_map_fn(journal: Any, x: tf.Tensor) -> tf.Tensor:
    journal.say("before")
    mapped = tf.map_fn(lambda row: journal.eager("map", row), x)
    journal.say("after")
    return mapped


@in_order(["scan"] * 3 + ["fold"] * 3, ROWS)
def test_scan_and_foldl(journal: Any, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    scanned = tf.scan(lambda total, row: journal.numpy("scan", total + row), x)
    folded = tf.foldl(lambda total, row: journal.numpy("fold", total + row), x)
    return scanned, folded


def test_vectorized_map_falls_back_to_a_loop() -> None:
    def run(jit_compile: bool) -> tuple[list[float], np.ndarray]:
        entries: list[float] = []

        def note(value: np.ndarray) -> np.ndarray:
            entries.append(float(value[0]))
            return value * np.float32(2.0)

        def row(value: tf.Tensor) -> tf.Tensor:
            return tf.numpy_function(note, [value], tf.TensorSpec([2], tf.float32))

        @tf.function(jit_compile=jit_compile)
        def program(x: tf.Tensor) -> tf.Tensor:
            return tf.vectorized_map(row, x)

        return entries, program(tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).numpy()

    plain, expected = run(jit_compile=False)
    compiled, actual = run(jit_compile=True)
    assert compiled == plain
    assert compiled[-3:] == [1.0, 3.0, 5.0]
    np.testing.assert_array_equal(actual, expected)


@in_order(["write"] * 4, tf.zeros([2]))
def test_a_tensor_array_filled_by_calls(journal: Any, x: tf.Tensor) -> tf.Tensor:
    results = tf.TensorArray(tf.float32, size=4, element_shape=[2])
    for i in tf.range(4):
        results = results.write(i, journal.numpy("write", x + tf.cast(i, tf.float32)))
    return results.stack()


@in_order(["map"] * 20, tf.range(20))
def test_parallel_iterations_do_not_overlap_the_calls(journal: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda i: journal.numpy("map", i), x, parallel_iterations=10)


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

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = tf.ensure_shape(tf.py_function(noted, [y], tf.float32), [])
        return tape.gradient(y, x)

    assert float(program(tf.constant(1.0))) == 8.0
    forward = ["forward 1", "forward 2", "forward 4"]
    assert entries == [*forward, "gradient 4", "gradient 2", "gradient 1"]


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


@in_order(["outer", *["inner"] * 3, "outer", *["inner"] * 3, "outer"], tf.constant(1.0))
def test_nested_loops(journal: Any, x: tf.Tensor) -> tf.Tensor:
    def condition(name: str, limit: int) -> Any:
        def check(i: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            journal.say(name)
            return i < limit

        return check

    def outer(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inner = tf.while_loop(condition("inner", 2), lambda j, z: (j + 1, z * 2.0), [0, y])
        return i + 1, inner[1]

    return tf.while_loop(condition("outer", 2), outer, [0, x])[1]


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

        def loop(x: tf.Tensor) -> tf.Tensor:
            return tf.while_loop(
                condition,
                lambda i, y: (i + 1, tf.ensure_shape(tf.py_function(tf.sin, [y], y.dtype), [])),
                [0, x],
                maximum_iterations=5,
            )[1]

        return gradient_of(loop, x)

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
