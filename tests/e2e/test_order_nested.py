"""Stateful calls run once each and in program order: conditionals, and functions in functions."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.journals import Journal, in_order, same_order
from tests.support.helpers import assert_says, failure, jitted, like, plain


@pytest.mark.parametrize("chosen", [-1, 0, 1, 2, 7])
def test_switch_case(chosen: int) -> None:
    def program(journal: Any, index: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        journal.say("before")
        branches = {
            0: lambda: journal.numpy("zero", x),
            1: lambda: journal.eager("one", journal.v1("one", x)),
            2: lambda: x,
        }
        result = tf.switch_case(index, branches, default=lambda: journal.numpy("other", x))
        journal.say("after")
        return result

    inside = {0: ["zero"], 1: ["one", "one"], 2: []}.get(chosen, ["other"])
    tags = same_order(program, tf.constant(chosen), tf.constant([1.0]))
    assert tags == ["before", *inside, "after"]


@in_order(["predicate", "large"], tf.constant([1.0]))
def test_a_predicate_made_by_a_call(journal: Any, x: tf.Tensor) -> tf.Tensor:
    if journal.numpy("predicate", x)[0] > 1.5:
        x = journal.numpy("large", x)
    else:
        x = journal.numpy("small", x)
    return x


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True), (False, False)])
def test_cond_in_while_in_cond(flags: tuple[bool, bool]) -> None:
    def program(journal: Any, outer: tf.Tensor, inner: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        journal.say("start")
        if outer:
            journal.say("outer")
            for i in tf.range(3):
                journal.numpy("loop", i)
                if inner and i > 0:
                    x = journal.numpy("deep", x)
                    journal.say("deep end")
                else:
                    x = journal.eager("shallow", x)
            journal.say("outer end")
        journal.say("stop")
        return x

    tags = same_order(program, *map(tf.constant, flags), tf.constant([1.0]))
    shallow, deep = ["loop", "shallow"], ["loop", "deep", "deep end"]
    loop = [*shallow, *deep, *deep] if flags[1] else shallow * 3
    inside = ["outer", *loop, "outer end"] if flags[0] else []
    assert tags == ["start", *inside, "stop"]


# XLA ends the process where branches return different shapes and one of them holds a call.

UNKNOWN = tf.TensorSpec([None], tf.float32)
squared: list[float] = []


def square(v: Any) -> Any:
    squared.append(float(v[0]))
    return v * v


hostcall.declare(square, result=like)


def call(x: tf.Tensor) -> tf.Tensor:
    """To tracing, the result is a vector."""
    return tf.numpy_function(square, [x], UNKNOWN)


@pytest.mark.parametrize("kind", ["if", "switch"])
@pytest.mark.parametrize("within", ["straight", "loop", "function"])
def test_branches_whose_shapes_only_xla_knows(kind: str, within: str) -> None:
    def choose(x: tf.Tensor) -> tf.Tensor:
        branches = [lambda: call(x), lambda: x[1:]]
        if kind == "if":
            chosen = tf.cond(x[0] > 0.0, *branches)
        else:
            chosen = tf.switch_case(tf.cast(x[0] > 0.0, tf.int32), [*branches, *branches])
        return tf.reduce_sum(chosen)

    def program(x: tf.Tensor) -> tf.Tensor:
        if within == "straight":
            return choose(x) * 2.0
        if within == "function":
            inner = tf.function(choose)
            return inner(x) + inner(x[:3])
        total = tf.constant(0.0)
        for i in tf.range(2):
            total += choose(x + tf.cast(i, tf.float32))
        return total

    function = tf.function(program, jit_compile=True, input_signature=[UNKNOWN])
    expected = tf.function(program, input_signature=[UNKNOWN])
    x = tf.constant([2.0, 3.0, 4.0, 5.0])
    for value in (x, -x, x[:3]):
        squared.clear()
        assert float(function(value)) == float(expected(value))
        assert squared[: len(squared) // 2] == squared[len(squared) // 2 :]


def test_branches_whose_shapes_are_equal_after_all(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x[0] > 0.0, lambda: call(x), lambda: x[::-1]) * 2.0

    function = tf.function(program, jit_compile=True, input_signature=[UNKNOWN])
    for size in (4, 2, 4):
        x = tf.range(1.0, 1.0 + size)
        np.testing.assert_array_equal(function(x), plain(program)(x))
    assert not [record.message for record in caplog.records if record.name == "hostcall"]


def test_branches_that_return_different_shapes_and_must_be_in_one_program() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x[0] > 0.0, lambda: tf.ensure_shape(call(x), x.shape), lambda: x[:2])

    with hostcall.scope(route="custom_call"):
        assert failure(jitted(program), tf.ones([4])).message.startswith("hostcall:")
        function = tf.function(program, jit_compile=True, input_signature=[UNKNOWN])
        assert_says(failure(function, tf.ones([4])).message, "return different shapes (f32[4]")


@pytest.mark.parametrize("dtype", [tf.string, tf.float32])
def test_a_branch_that_uses_a_variable_runs_after_the_call_before_it(dtype: tf.DType) -> None:
    """Tracing leaves the edge between them out, so that plain graph mode runs them in any order."""
    journal, variable = Journal(), tf.Variable(0)

    def described(x: np.ndarray) -> Any:
        journal.note("described")
        return b"%d" % x.sum() if dtype == tf.string else x.sum()

    @jitted
    def program(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(described, [x], tf.TensorSpec([], dtype))
        add = lambda: x + tf.cast(variable.assign_add(1), x.dtype)  # noqa: E731
        return tf.cond(flag, lambda: journal.numpy("noted", x), add)

    for runs in (1, 2):
        np.testing.assert_array_equal(program(tf.ones([2]), tf.constant(True)), [2.0, 2.0])
        assert journal.tags() == ["described", "noted"] * runs


@pytest.mark.custom_call
@pytest.mark.cpu
def test_a_branch_that_uses_a_variable_stays_in_the_program_behind_a_call() -> None:
    variable = tf.Variable(0.0)

    @jitted
    def program(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(lambda x: b"%d" % x.sum(), [x], tf.TensorSpec([], tf.string))
        return tf.cond(flag, lambda: x, lambda: x + variable.assign_add(1.0))

    explanation = hostcall.explain(program, tf.ones([2]), tf.constant(True))
    assert explanation.functions[0].mode == "compiled"


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


RANKS = ["rank 1", "rank 0", "rank 1"]


@in_order(["a begins", "a", *["b begins", "b"] * 2, "a begins", "a", *RANKS], X)
def test_functions_of_the_same_name_and_signatures_of_one_do_not_collide(
    journal: Any, x: tf.Tensor
) -> Any:
    def make(tag: str) -> Callable[[tf.Tensor], tf.Tensor]:
        @tf.function
        def inner(x: tf.Tensor) -> tf.Tensor:
            journal.say(f"{tag} begins")
            return journal.numpy(tag, x)

        return inner

    a, b = make("a"), make("b")
    inner = tf.function(lambda x: journal.numpy(f"rank {x.shape.rank}", x))
    return a(x) + b(x) + a(b(x)), inner(x), inner(x[0]), inner(x)


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
    def compiled(x: tf.Tensor) -> tf.Tensor:
        journal.say("compiled 1")
        journal.say("compiled 2")
        return x + 1.0

    @tf.function
    def program(x: tf.Tensor) -> tf.Tensor:
        journal.say("plain 1")
        for _ in tf.range(2):
            x = compiled(x)
            journal.say("loop")
        x = compiled(x)
        journal.say("plain 2")
        return x

    calls = ["compiled 1", "compiled 2"]
    for runs in (1, 2):
        np.testing.assert_array_equal(program(X), X + 3.0)
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
