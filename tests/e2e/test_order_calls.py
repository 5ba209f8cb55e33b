"""Stateful calls run once each and in program order: functions that call functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.e2e.journals import in_order

# How an inner tf.function can be made.
INNER: dict[str, dict[str, Any]] = {
    "plain": {},
    "jitted": {"jit_compile": True},
    "no autograph": {"autograph": False},
    "not inlined": {"experimental_attributes": {"_noinline": True}},
}

inner_kinds = pytest.mark.parametrize("options", INNER.values(), ids=INNER.keys())

X = tf.constant([1.0, 2.0])
STEP = ["step", "step", "step end"]
MIDDLE = ["shared", "middle", "shared"]
TOP = ["top", *MIDDLE, "shared", *MIDDLE]


@inner_kinds
@in_order(["before", "inner 1", "inner 2", "after"], X)
def test_a_function_that_is_called_once(
    journal: Any, x: tf.Tensor, *, options: dict[str, Any]
) -> tf.Tensor:
    @tf.function(**options)
    def inner(x: tf.Tensor) -> tf.Tensor:
        journal.say("inner 1")
        return journal.numpy("inner 2", x)

    journal.say("before")
    y = inner(x)
    journal.say("after")
    return y


@inner_kinds
@in_order(["inner 1", "inner 2", "between", "inner 1", "inner 2"], X)
def test_a_function_that_is_called_twice(
    journal: Any, x: tf.Tensor, *, options: dict[str, Any]
) -> list[tf.Tensor]:
    @tf.function(**options)
    def inner(x: tf.Tensor) -> tf.Tensor:
        journal.numpy("inner 1", x)
        return journal.eager("inner 2", x)

    first = inner(x)
    journal.say("between")
    # Independent of the first one, and ready before it.
    return [first, inner(x * 2.0)]


@inner_kinds
@in_order([*TOP, "shared", *TOP], X)
def test_three_levels_with_one_function_shared_by_all(
    journal: Any, x: tf.Tensor, *, options: dict[str, Any]
) -> tf.Tensor:
    @tf.function(**options)
    def shared(x: tf.Tensor) -> tf.Tensor:
        return journal.numpy("shared", x)

    @tf.function(**options)
    def middle(x: tf.Tensor) -> tf.Tensor:
        y = shared(x)
        journal.say("middle")
        return y + shared(x * 3.0)

    @tf.function(**options)
    def top(x: tf.Tensor) -> tf.Tensor:
        journal.say("top")
        return middle(x) + shared(x) + middle(x * 2.0)

    return top(x) + shared(x) + top(x)


@inner_kinds
@in_order([*STEP, "loop", *STEP, "loop", *STEP, *STEP], X)
def test_functions_in_loops_and_loops_in_functions(
    journal: Any, x: tf.Tensor, *, options: dict[str, Any]
) -> tf.Tensor:
    @tf.function(**options)
    def step(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(2):
            journal.numpy("step", i)
        return journal.eager("step end", x)

    x = step(x)
    for _ in tf.range(2):
        journal.say("loop")
        x = step(x)
    return step(x)


@inner_kinds
@in_order(["first", "second", "other"] * 2 + ["first", "second"], X)
def test_functions_in_branches(journal: Any, x: tf.Tensor, *, options: dict[str, Any]) -> tf.Tensor:
    @tf.function(**options)
    def inner(x: tf.Tensor) -> tf.Tensor:
        return journal.numpy("second", journal.numpy("first", x))

    for i in tf.range(4):
        x = inner(x) if i % 2 == 0 else journal.eager("other", x)
    return inner(x)


@inner_kinds
@in_order(["inner", "say 0", "inner", "say 1", "inner", "say 2"], X)
def test_a_function_whose_result_nobody_uses(
    journal: Any, x: tf.Tensor, *, options: dict[str, Any]
) -> tf.Tensor:
    @tf.function(**options)
    def inner(x: tf.Tensor) -> tf.Tensor:
        return journal.numpy("inner", x)

    for i in range(3):
        inner(x)
        journal.say(f"say {i}")
    return x


@in_order(["a begins", "a", *["b begins", "b"] * 2, "a begins", "a"], X)
def test_functions_of_the_same_name_do_not_collide(journal: Any, x: tf.Tensor) -> tf.Tensor:
    def make(tag: str) -> Callable[[tf.Tensor], tf.Tensor]:
        @tf.function
        def inner(x: tf.Tensor) -> tf.Tensor:
            journal.say(f"{tag} begins")
            return journal.numpy(tag, x)

        return inner

    a, b = make("a"), make("b")
    return a(x) + b(x) + a(b(x))


@in_order(["rank 1", "rank 0", "rank 1"], X)
def test_one_inner_function_traced_for_two_signatures(
    journal: Any, x: tf.Tensor
) -> list[tf.Tensor]:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return journal.numpy(f"rank {x.shape.rank}", x)

    return [inner(x), inner(x[0]), inner(x)]


@in_order(["inner", "forward"] * 2 + ["between"] + ["backward"] * 2, X)
def test_a_custom_gradient_inside_an_inner_function(journal: Any, x: tf.Tensor) -> Any:
    @tf.custom_gradient
    def tripled(x: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return 3.0 * journal.numpy("backward", upstream)

        return 3.0 * journal.numpy("forward", x), gradient

    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        journal.say("inner")
        return tripled(x)

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = inner(inner(x))
    journal.say("between")
    return tape.gradient(y, x)


@pytest.mark.parametrize("inlined", [True, False])
def test_a_jitted_function_inside_a_plain_one(inlined: bool) -> None:
    entries: list[str] = []

    def say(tag: str) -> None:
        tf.numpy_function(lambda: entries.append(tag), [], [])

    @tf.function(jit_compile=True, experimental_attributes={"_noinline": not inlined})
    def jitted(x: tf.Tensor) -> tf.Tensor:
        say("jitted 1")
        say("jitted 2")
        return x + 1.0

    @tf.function
    def plain(x: tf.Tensor) -> tf.Tensor:
        say("plain 1")
        for _ in tf.range(2):
            x = jitted(x)
            say("loop")
        x = jitted(x)
        say("plain 2")
        return x

    for _ in range(2):
        entries.clear()
        np.testing.assert_array_equal(plain(X), X + 3.0)
        jitted_calls = ["jitted 1", "jitted 2"]
        loop = [*jitted_calls, "loop"] * 2
        assert entries == ["plain 1", *loop, *jitted_calls, "plain 2"]


def test_a_jitted_function_called_in_a_python_loop() -> None:
    entries: list[int] = []

    @tf.function(jit_compile=True)
    def jitted(i: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(lambda i: entries.append(int(i)), [i], [])
        tf.numpy_function(lambda i: entries.append(-int(i)), [i], [])
        return i + 1

    i = tf.constant(1)
    for _ in range(5):
        i = jitted(i)
    assert entries == [1, -1, 2, -2, 3, -3, 4, -4, 5, -5]


def test_two_jitted_functions_share_an_inner_one() -> None:
    entries: list[str] = []

    @tf.function
    def shared(x: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(lambda: entries.append("shared"), [], [])
        return x + 1.0

    def make(tag: str) -> Any:
        @tf.function(jit_compile=True)
        def outer(x: tf.Tensor) -> tf.Tensor:
            tf.numpy_function(lambda: entries.append(tag), [], [])
            return shared(shared(x))

        return outer

    first, second = make("first"), make("second")
    np.testing.assert_array_equal(first(X) + second(X), 2.0 * X + 4.0)
    assert entries == ["first", "shared", "shared", "second", "shared", "shared"]
    entries.clear()
    np.testing.assert_array_equal(shared(X), X + 1.0)
    assert entries == ["shared"]
