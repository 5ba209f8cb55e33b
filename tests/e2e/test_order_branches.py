"""Stateful calls run once each and in program order: conditionals."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.journals import in_order, same_order


@pytest.mark.parametrize("taken", [True, False])
def test_cond_runs_the_calls_of_one_branch(taken: bool) -> None:
    def program(journal: Any, choice: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        def yes() -> tf.Tensor:
            journal.say("yes")
            return journal.numpy("yes", x)

        def no() -> tf.Tensor:
            journal.numpy("no", x)
            return journal.eager("no", x * 2.0)

        journal.say("before")
        result = tf.cond(choice, yes, no)
        journal.say("after")
        return result

    tags = same_order(program, tf.constant(taken), tf.constant([1.0]))
    assert tags == ["before", *["yes" if taken else "no"] * 2, "after"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_call_in_one_branch_only(taken: bool) -> None:
    def program(journal: Any, choice: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        journal.say("before")
        if choice:
            x = journal.numpy("inside", x)
        journal.say("after")
        return x

    tags = same_order(program, tf.constant(taken), tf.constant([1.0]))
    assert tags == ["before", *["inside"] * taken, "after"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_condition_known_in_tracing(taken: bool) -> None:
    def program(journal: Any, x: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            tf.constant(taken), lambda: journal.numpy("yes", x), lambda: journal.numpy("no", x)
        )

    assert same_order(program, tf.constant([1.0])) == ["yes" if taken else "no"]


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


@in_order(
    [*["down"] * 2, *["up"] * 3, *["down"] * 3, *["up"] * 3],
    tf.constant([False, True, False, True]),
    tf.constant([3.0]),
)
def test_while_in_both_branches(journal: Any, choices: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    for i in tf.range(4):
        if choices[i]:
            while x[0] < 4.0:
                x = journal.numpy("up", x)
        else:
            while x[0] > 1.0:
                x = journal.numpy("down", x) - 2.0
    return x


@in_order(["numpy 0", "numpy 1", "eager 2", "eager 3"], tf.constant([1.5]))
def test_branches_that_return_calls_of_different_kinds(
    journal: Any, x: tf.Tensor
) -> list[tf.Tensor]:
    return [
        tf.cond(
            x[0] > float(i),
            lambda i=i: journal.numpy(f"numpy {i}", x),
            lambda i=i: journal.eager(f"eager {i}", x),
        )
        for i in range(4)
    ]


@in_order(["first", "second"], tf.constant([1.0]))
def test_assertions_between_calls(journal: Any, x: tf.Tensor) -> tf.Tensor:
    y = journal.numpy("first", x)
    tf.debugging.assert_greater(y, x)
    return journal.eager("second", y)


@pytest.mark.parametrize("route", ["auto", "partition"])
@pytest.mark.parametrize("first", [True, False])
def test_branches_that_return_different_shapes(first: bool, route: str) -> None:
    """XLA ends the process where one of them holds a call: the function is partitioned."""
    calls: list[float] = []

    def square(v: Any) -> Any:
        calls.append(float(v[0]))
        return v * v

    def program(x: tf.Tensor) -> tf.Tensor:
        def call() -> tf.Tensor:
            y = tf.numpy_function(square, [x], tf.float32)
            y.set_shape([4])
            return y

        branches = (call, lambda: x[:2]) if first else (lambda: x[:2], call)
        return tf.cond(x[0] > 0.0, *branches) * 2.0

    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    with hostcall.scope(route=route):
        function = tf.function(program, jit_compile=True)
        for value in (x, -x):
            np.testing.assert_array_equal(function(value), tf.function(program)(value))
    assert calls == ([1.0, 1.0] if first else [-1.0, -1.0])


@pytest.mark.parametrize("kind", ["if", "switch"])
@pytest.mark.parametrize("within", ["straight", "loop", "function"])
def test_branches_whose_shapes_only_xla_knows(kind: str, within: str) -> None:
    """The same: tracing sees a vector in both, and XLA would end the process."""
    calls: list[float] = []

    def square(v: Any) -> Any:
        calls.append(float(v[0]))
        return v * v

    hostcall.declare(square, result=lambda v: v)

    def call(x: tf.Tensor) -> tf.Tensor:
        y = tf.numpy_function(square, [x], tf.float32)
        y.set_shape([None])
        return y

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

    signature = [tf.TensorSpec([None], tf.float32)]
    function = tf.function(program, jit_compile=True, input_signature=signature)
    expected = tf.function(program, input_signature=signature)
    x = tf.constant([2.0, 3.0, 4.0, 5.0])
    for value in (x, -x, x[:3]):
        calls.clear()
        assert float(function(value)) == float(expected(value))
        assert calls[: len(calls) // 2] == calls[len(calls) // 2 :]


def test_branches_whose_shapes_are_equal_after_all(caplog: pytest.LogCaptureFixture) -> None:
    def square(v: Any) -> Any:
        return v * v

    def program(x: tf.Tensor) -> tf.Tensor:
        def call() -> tf.Tensor:
            return tf.numpy_function(square, [x], tf.TensorSpec([None], tf.float32))

        return tf.cond(x[0] > 0.0, call, lambda: x[::-1]) * 2.0

    hostcall.declare(square, result=lambda v: v)
    signature = [tf.TensorSpec([None], tf.float32)]
    function = tf.function(program, jit_compile=True, input_signature=signature)
    expected = tf.function(program, input_signature=signature)
    for size in (4, 2, 4):
        x = tf.range(1.0, 1.0 + size)
        np.testing.assert_array_equal(function(x), expected(x))
    assert not [record.message for record in caplog.records if record.name == "hostcall"]


def test_branches_that_return_different_shapes_and_must_be_in_one_program(run_python: Any) -> None:
    script = """
import numpy as np, tensorflow as tf, hostcall

def call(x):
    y = tf.numpy_function(np.square, [x], tf.float32)
    y.set_shape([4])
    return y

def some(x):
    hostcall.declare(np.square, result=lambda v: v)
    return tf.numpy_function(np.square, [x], tf.TensorSpec([None], tf.float32))

with hostcall.scope(route="custom_call"):
    program = tf.function(
        lambda x: tf.cond(x[0] > 0.0, lambda: call(x), lambda: x[:2]), jit_compile=True
    )
    try:
        program(tf.ones([4]))
    except tf.errors.InvalidArgumentError as error:
        print(error.message.split(":")[0])
    program = tf.function(
        lambda x: tf.cond(x[0] > 0.0, lambda: some(x), lambda: x[:2]), jit_compile=True,
        input_signature=[tf.TensorSpec([None])],
    )
    try:
        program(tf.ones([4]))
    except tf.errors.OpError as error:
        print("return different shapes (f32[4]" in error.message)
"""
    assert run_python(script) == "hostcall\nTrue\n"


@pytest.mark.parametrize("dtype", [tf.string, tf.float32])
def test_a_branch_that_uses_a_variable_runs_after_the_call_before_it(dtype: tf.DType) -> None:
    """Tracing leaves the edge between them out, so that plain graph mode runs them in any order."""
    journal: list[str] = []
    variable = tf.Variable(0)

    def described(x: np.ndarray) -> Any:
        journal.append("described")
        return b"%d" % x.sum() if dtype == tf.string else x.sum()

    def noted(x: np.ndarray) -> np.ndarray:
        journal.append("noted")
        return x

    def call(x: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(noted, [x], tf.TensorSpec([2], tf.float32))
        return x

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(described, [x], tf.TensorSpec([], dtype))
        return tf.cond(flag, lambda: call(x), lambda: x + tf.cast(variable.assign_add(1), x.dtype))

    for _ in range(2):
        np.testing.assert_array_equal(program(tf.ones([2]), tf.constant(True)), [1.0, 1.0])
    assert journal == ["described", "noted"] * 2


@pytest.mark.custom_call
@pytest.mark.cpu
def test_a_branch_that_uses_a_variable_stays_in_the_program_behind_a_call() -> None:
    variable = tf.Variable(0.0)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(lambda x: b"%d" % x.sum(), [x], tf.TensorSpec([], tf.string))
        return tf.cond(flag, lambda: x, lambda: x + variable.assign_add(1.0))

    explanation = hostcall.explain(program, tf.ones([2]), tf.constant(True))
    assert explanation.functions[0].mode == "compiled"
