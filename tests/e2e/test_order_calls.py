"""Stateful calls run once each and in program order: functions that call functions."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.e2e.journals import Journal, in_order

# How an inner tf.function can be made.
INNER: dict[str, dict[str, Any]] = {
    "plain": {},
    "jitted": {"jit_compile": True},
    "no autograph": {"autograph": False},
    "not inlined": {"experimental_attributes": {"_noinline": True}},
}
INNER_FUNCTIONS = [functools.partial(tf.function, **options) for options in INNER.values()]
inner_kinds = pytest.mark.parametrize("function", INNER_FUNCTIONS, ids=INNER)

X = tf.constant([1.0, 2.0])
STEP = ["step", "step", "step end"]
MIDDLE = ["shared", "middle", "shared"]
TOP = ["top", *MIDDLE, "shared", *MIDDLE]


@inner_kinds
@in_order([*TOP, "shared", *TOP], X)
def test_three_levels_with_one_function_shared_by_all(
    journal: Any, x: Any, *, function: Any
) -> Any:
    @function
    def shared(x: tf.Tensor) -> tf.Tensor:
        return journal.numpy("shared", x)

    @function
    def middle(x: tf.Tensor) -> tf.Tensor:
        y = shared(x)
        journal.say("middle")
        return y + shared(x * 3.0)

    @function
    def top(x: tf.Tensor) -> tf.Tensor:
        journal.say("top")
        return middle(x) + shared(x) + middle(x * 2.0)

    return top(x) + shared(x) + top(x)


@inner_kinds
@in_order([*STEP, "loop", *STEP, "loop", *STEP, *STEP], X)
def test_functions_in_loops_and_loops_in_functions(journal: Any, x: Any, *, function: Any) -> Any:
    @function
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
def test_functions_in_branches(journal: Any, x: Any, *, function: Any) -> Any:
    inner = function(lambda x: journal.numpy("second", journal.numpy("first", x)))
    for i in tf.range(4):
        x = inner(x) if i % 2 == 0 else journal.eager("other", x)
    return inner(x)


@inner_kinds
@in_order(["inner", "say", "inner", "say", "inner", "say"], X)
def test_a_function_whose_result_nobody_uses(journal: Any, x: Any, *, function: Any) -> Any:
    inner = function(lambda x: journal.numpy("inner", x))
    for _ in range(3):
        inner(x)
        journal.say("say")
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
def test_one_inner_function_traced_for_two_signatures(journal: Any, x: tf.Tensor) -> Any:
    inner = tf.function(lambda x: journal.numpy(f"rank {x.shape.rank}", x))
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
    journal = Journal()

    @tf.function(jit_compile=True, experimental_attributes={"_noinline": not inlined})
    def jitted(x: tf.Tensor) -> tf.Tensor:
        journal.say("jitted 1")
        journal.say("jitted 2")
        return x + 1.0

    @tf.function
    def plain(x: tf.Tensor) -> tf.Tensor:
        journal.say("plain 1")
        for _ in tf.range(2):
            x = jitted(x)
            journal.say("loop")
        x = jitted(x)
        journal.say("plain 2")
        return x

    calls = ["jitted 1", "jitted 2"]
    for runs in (1, 2):
        np.testing.assert_array_equal(plain(X), X + 3.0)
        assert journal.tags() == ["plain 1", *[*calls, "loop"] * 2, *calls, "plain 2"] * runs


def test_two_jitted_functions_share_an_inner_one() -> None:
    journal = Journal()

    @tf.function
    def shared(x: tf.Tensor) -> tf.Tensor:
        journal.say("shared")
        return x + 1.0

    def make(tag: str) -> Any:
        @tf.function(jit_compile=True)
        def outer(x: tf.Tensor) -> tf.Tensor:
            journal.say(tag)
            return shared(shared(x))

        return outer

    first, second = make("first"), make("second")
    np.testing.assert_array_equal(shared(first(X) + second(X)), 2.0 * X + 5.0)
    assert journal.tags() == ["first", "shared", "shared", "second", "shared", "shared", "shared"]
