"""Shapes that are unknown, contradict each other or turn out wrong: errors that say what to do."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_says, each_mode, each_public_op, failure, jitted

X = tf.constant([[1.0, 2.0, 3.0]])


def unruled(x: Any) -> Any:
    return x


LINE_OF_UNRULED = unruled.__code__.co_firstlineno


def _here(line: int) -> str:
    return re.escape(f"{Path(__file__).name}:{line}")


def _message(call: Callable[[], Any]) -> str:
    error = failure(call)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    return str(error)


def _refusal(call: Callable[[], Any]) -> str:
    """The error of a call that must not be partitioned."""
    with hostcall.scope(route="custom_call"):
        return _message(call)


def _shown_lines(message: str) -> str:
    lines = message.splitlines()
    first = lines.index("    import hostcall")
    return "\n".join(line.strip() for line in lines[first : first + 2])


@each_public_op
def test_an_unknown_shape_names_op_function_file_and_line(op: Any) -> None:
    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        return op(unruled, [x], tf.float32, name="the_op")  # the line that is meant below

    this = test_an_unknown_shape_names_op_function_file_and_line.__code__.co_firstlineno + 4
    message = _refusal(lambda: program(X))
    public = "tf.py_function" if op is tf.py_function else "tf.numpy_function"
    assert "hostcall: the shape of result 0 of op 'the_op'" in message
    assert re.search(rf"{public} of unruled \(\S*{_here(LINE_OF_UNRULED)}\)", message)
    assert re.search(rf"called at \S*{_here(this)}", message)
    assert_says(message, "hostcall.BoundedSpec", "set_shape")


@each_public_op
def test_a_refusal_says_which_route_was_asked_for_and_which_would_do(op: Any) -> None:
    message = _refusal(lambda: jitted(lambda x: op(unruled, [x], tf.float32))(X))
    assert_says(message, "route='custom_call' was asked for", "route='auto' or route='partition'")


@each_public_op
@pytest.mark.parametrize("route", ["auto", "partition"])
def test_these_routes_need_no_shape(op: Any, route: str) -> None:
    with hostcall.scope(route=route):
        program = jitted(lambda x: tf.sin(op(lambda x: x[0], [x * 2.0], tf.float32)) + 1.0)
        np.testing.assert_allclose(program(X), np.sin([2.0, 4.0, 6.0]) + 1.0, rtol=1e-6)


@each_public_op
def test_the_message_has_the_users_function_where_autograph_converts_it(op: Any) -> None:
    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        def local(x: Any) -> Any:
            return x

        if tf.reduce_sum(x) > 0.0:
            x = op(local, [x], tf.float32)
        return x

    this = test_the_message_has_the_users_function_where_autograph_converts_it
    message = _refusal(lambda: program(X))
    assert re.search(rf"of \S*local \(\S*{_here(this.__code__.co_firstlineno + 4)}\)", message)
    assert "__autograph" not in message


@each_public_op
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("results", [1, 2, 4])
def test_the_lines_that_are_shown_work(op: Any, count: int, results: int) -> None:
    def pasted(*arrays: Any) -> Any:
        return arrays[0] if results == 1 else [arrays[0]] * results

    @jitted
    def program(x: tf.Tensor) -> Any:
        return op(pasted, [x] * count, tf.float32 if results == 1 else [tf.float32] * results)

    lines = _shown_lines(_refusal(lambda: program(X))).replace("[...]", "x.shape")
    exec(lines, {"tf": tf, "pasted": pasted})
    again = jitted(program.python_function)(X)
    np.testing.assert_array_equal(again, X if results == 1 else [X] * results)


@pytest.mark.parametrize("name", ["bool", "complex64", "bfloat16", "half", "int4", "float8_e5m2"])
def test_the_lines_that_are_shown_work_for_any_dtype(name: str) -> None:
    def pasted(x: Any) -> Any:
        return np.zeros([3], dtype.as_numpy_dtype)

    dtype = tf.as_dtype(name)

    def program() -> Any:
        result = tf.numpy_function(pasted, [tf.zeros([3], dtype)], dtype)
        return tf.cast(result, tf.complex64)

    lines = _shown_lines(_refusal(jitted(program))).replace("...", "3")
    exec(lines, {"tf": tf, "pasted": pasted})
    np.testing.assert_array_equal(jitted(program)(), np.zeros([3]))


def test_a_lambda_is_shown_under_a_name_to_fill_in() -> None:
    message = _refusal(lambda: jitted(lambda x: tf.py_function(lambda x: x, [x], tf.int8))(X))
    shown = _shown_lines(message).splitlines()[1]
    line = "hostcall.declare(function, result=lambda x: tf.TensorSpec([...], tf.int8))"
    assert shown == f"{line}    # give the function a name, and the name to the op"
    assert 'result="trace"' in message


def test_what_is_known_is_said() -> None:
    def partly(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(unruled, [x], tf.TensorSpec([None, 3], tf.float32))

    assert "all that is known is (None, 3)" in _refusal(lambda: jitted(partly)(X))


def test_the_second_of_two_results_is_named() -> None:
    def two(x: tf.Tensor) -> Any:
        return tf.numpy_function(
            lambda x: (x, x), [x], [tf.TensorSpec([1, 3], tf.float32), tf.float32]
        )

    assert "the shape of result 1 of op" in _refusal(lambda: jitted(two)(X))


def test_an_unknown_shape_in_a_loop_of_a_nested_function() -> None:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.py_function(unruled, [x], tf.float32)

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = tf.reduce_sum(inner(x)) + x
        return x

    assert "tf.py_function of unruled" in _refusal(lambda: program(X))


def test_a_callback_is_told_to_change_its_own_result() -> None:
    same = hostcall.callback(unruled, result=lambda x: tf.TensorSpec([None, 3], x.dtype))
    message = _refusal(lambda: jitted(lambda x: same(x))(X))
    assert "hostcall.declare" not in message
    assert "tf.numpy_function" not in message
    assert_says(message, "result=", "unruled")


@each_public_op
def test_a_rule_that_raises(op: Any) -> None:
    broken = hostcall.declare(lambda x: x, result=lambda x: x.no_such_attribute)
    message = _message(lambda: jitted(lambda x: op(broken, [x], tf.float32))(X))
    wrong = "AttributeError: 'TensorSpec' object has no attribute 'no_such_attribute'"
    assert_says(message, "hostcall: the declared result of", wrong, "TensorSpec(shape=(1, 3)")
    assert Path(__file__).name in message


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (lambda x: [x.shape, x.shape], "2 results are declared, but Tout has 1"),
        (lambda x: tf.TensorSpec(x.shape, tf.int32), "declared as int32, but Tout says float32"),
        (lambda x: "text", "and not as 'text'"),
        (lambda: [2], "TypeError"),
        (lambda x, y: [2], "TypeError"),
    ],
)
def test_a_rule_that_says_nonsense(result: Any, complaint: str) -> None:
    broken = hostcall.declare(lambda x: x, result=result)
    message = _message(lambda: jitted(lambda x: tf.numpy_function(broken, [x], tf.float32))(X))
    assert_says(message, complaint, "the declared result of")


def test_a_function_that_cannot_be_traced() -> None:
    untraceable = hostcall.declare(lambda x: np.sqrt(x.numpy()), result="trace")
    message = _message(lambda: jitted(lambda x: tf.py_function(untraceable, [x], tf.float32))(X))
    assert "no attribute 'numpy'" in message


def test_trace_runs_the_function_once_more() -> None:
    runs = []
    traced = hostcall.declare(lambda x: [runs.append(x), x][1], result="trace")
    np.testing.assert_array_equal(jitted(lambda x: tf.py_function(traced, [x], tf.float32))(X), X)
    assert len(runs) == 2


def _by_set_shape(x: tf.Tensor) -> tf.Tensor:
    x.set_shape([2, 3])
    return x


CONTRADICTIONS: dict[str, Callable[[Any], Any]] = {
    "Tout": lambda f: lambda x: tf.numpy_function(f, [x], tf.TensorSpec([2, 3], tf.float32)),
    "set_shape": lambda f: lambda x: _by_set_shape(tf.numpy_function(f, [x], tf.float32)),
    "ensure_shape": lambda f: (
        lambda x: tf.ensure_shape(tf.numpy_function(f, [x], tf.float32), [2, 3])
    ),
}


@pytest.mark.parametrize("who", CONTRADICTIONS)
def test_two_declarations_that_contradict_each_other(who: str) -> None:
    # In tracing the rule does not know the size, so that only XLA can find out.
    ruled = hostcall.declare(lambda x: x, result=lambda x: [x.shape[0] + 0, 3])
    program = tf.function(
        CONTRADICTIONS[who](ruled),
        jit_compile=True,
        input_signature=[tf.TensorSpec([None, 3], tf.float32)],
    )
    message = _message(lambda: program(X))
    assert_says(message, "is declared twice", "(2, 3)", "(1, 3)", who)
    np.testing.assert_array_equal(program(tf.ones([2, 3])), tf.ones([2, 3]))


@pytest.mark.parametrize("who", ["set_shape", "ensure_shape"])
def test_a_contradiction_that_tracing_sees(who: str) -> None:
    ruled = hostcall.declare(lambda x: x, result=[1, 3])
    with pytest.raises(ValueError, match="Dimension 0 in both shapes must be equal"):
        jitted(CONTRADICTIONS[who](ruled))(X)


@each_public_op
@each_mode
@pytest.mark.parametrize("declared", [[2, 3], [1, 4], [3], [1, 1, 3], []], ids=str)
def test_a_result_of_another_shape_names_the_function(op: Any, mode: Any, declared: Any) -> None:
    def mistaken(x: Any) -> Any:
        return x

    hostcall.declare(mistaken, result=declared)
    message = _message(lambda: mode(lambda x: op(mistaken, [x], tf.float32))(X))
    assert_says(message, "0-th value returned by", "(1, 3)", "declared shape", "mistaken")
