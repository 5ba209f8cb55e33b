"""Shapes that are unknown, contradict each other or turn out wrong: errors that say what to do."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    PUBLIC_OPS,
    assert_says,
    each_decorator,
    each_public_op,
    failure,
    jitted,
    plain,
)

X = tf.constant([[1.0, 2.0, 3.0]])


def unruled(x: Any) -> Any:
    return x


FILE = re.escape(Path(__file__).name)


def _message(call: Callable[[], Any]) -> str:
    error = failure(call)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    return str(error)


def _refusal(call: Callable[[], Any]) -> str:
    """The error of a call that must not be partitioned."""
    with hostcall.scope(route="custom_call"):
        return _message(call)


def _shown_line(message: str) -> str:
    (line,) = [line for line in message.splitlines() if line.startswith("    ")]
    return line.strip()


@each_public_op
def test_an_unknown_shape_names_op_function_file_and_line(op: Any) -> None:
    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        return op(unruled, [x], tf.float32, name="the_op")  # the line that is meant below

    this = test_an_unknown_shape_names_op_function_file_and_line.__code__.co_firstlineno + 4
    message = _refusal(lambda: program(X))
    public = "tf.py_function" if op is tf.py_function else "tf.numpy_function"
    assert "hostcall: nothing tells the shape of result 0 of" in message
    assert "{{node the_op}}" in message
    line = unruled.__code__.co_firstlineno
    assert re.search(rf"{public} of unruled \(\S*{FILE}:{line}\)", message)
    assert re.search(rf"called at \S*{FILE}:{this}", message)
    assert_says(message, "hostcall.BoundedSpec", "set_shape", "With route='auto'")
    assert len(message.splitlines()) < 6


@each_public_op
def test_the_message_has_the_users_function_where_autograph_converts_it(op: Any) -> None:
    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        def local(x: Any) -> Any:
            return x

        for _ in tf.range(2):
            x += tf.reduce_sum(plain(lambda x: op(local, [x], tf.float32))(x))
        return x

    this = test_the_message_has_the_users_function_where_autograph_converts_it
    message = _refusal(lambda: program(X))
    line = this.__code__.co_firstlineno + 4
    assert re.search(rf"of \S*local \(\S*{FILE}:{line}\)", message)
    assert "__autograph" not in message


@pytest.mark.parametrize(
    ("op", "count", "results", "dtype"),
    [
        *((tf.numpy_function, 1, 1, name) for name in ("bool", "complex64", "bfloat16", "int4")),
        *((op, n, m, "float32") for op in PUBLIC_OPS for n, m in ((1, 4), (5, 1))),
    ],
)
def test_the_line_that_is_shown_works(op: Any, count: int, results: int, dtype: str) -> None:
    def pasted(*arrays: Any) -> Any:
        return arrays[0] if results == 1 else [arrays[0]] * results

    def program(x: tf.Tensor) -> Any:
        via = tf.int8 if dtype == "int4" else dtype  # TensorFlow's kernels cast no floats to int4
        x = tf.cast(tf.cast(x, via), dtype)
        found = op(pasted, [x] * count, x.dtype if results == 1 else [x.dtype] * results)
        return [tf.cast(tf.cast(y, via), tf.complex64) for y in tf.nest.flatten(found)]

    line = _shown_line(_refusal(lambda: jitted(program)(X))).replace("[...]", "x.shape")
    exec(line, {"tf": tf, "hostcall": hostcall, "pasted": pasted})
    expected = X.numpy().astype(tf.as_dtype(dtype).as_numpy_dtype).astype(np.complex64)
    np.testing.assert_array_equal(jitted(program)(X), [expected] * results)


def test_a_lambda_is_shown_under_a_name_to_fill_in() -> None:
    message = _refusal(lambda: jitted(lambda x: tf.py_function(lambda x: x, [x], tf.int8))(X))
    shown = _shown_line(message)
    line = "hostcall.declare(function, result=lambda x: tf.TensorSpec([...], tf.int8))"
    assert shown == f"{line}    # give the function a name, and the name to the op"
    assert 'result="trace"' in message


def test_the_second_of_two_results_is_named_and_what_is_known_of_it() -> None:
    specs = [tf.TensorSpec([1, 3], tf.float32), tf.TensorSpec([None, 3], tf.float32)]
    message = _refusal(lambda: jitted(lambda x: tf.numpy_function(lambda x: (x, x), [x], specs))(X))
    assert_says(message, "the shape of result 1 of", ", but for (None, 3), and")


def test_a_callback_is_told_to_change_its_own_result() -> None:
    same = hostcall.callback(unruled, result=lambda x: tf.TensorSpec([None, 3], x.dtype))
    message = _refusal(lambda: jitted(lambda x: same(x))(X))
    assert "hostcall.declare" not in message
    assert "tf.numpy_function" not in message
    assert_says(message, "result=", "unruled")


MISSING = "AttributeError: 'TensorSpec' object has no attribute 'missing'"


@each_decorator
@pytest.mark.parametrize(
    ("result", "complaints"),
    [
        (lambda x: x.missing, ["hostcall: ", MISSING, "TensorSpec(shape=(1, 3)", "test_shape_err"]),
        (lambda x: [x.shape, x.shape], ["2 results are declared, but Tout has 1"]),
        (lambda x: tf.TensorSpec(x.shape, tf.int32), ["as int32, but Tout says float32"]),
        (lambda x: "text", ["and not as 'text'"]),
    ],
)
def test_a_rule_that_raises_or_says_nonsense(op: Any, result: Any, complaints: list[str]) -> None:
    broken = hostcall.declare(lambda x: x, result=result)
    message = _message(lambda: jitted(lambda x: op(broken, [x], tf.float32))(X))
    assert_says(message, "the declared result of", *complaints)


@each_decorator
@pytest.mark.parametrize("result", [lambda: [2], lambda x, y: [2]])
def test_a_rule_that_takes_other_arguments(op: Any, result: Any) -> None:
    ruled = hostcall.declare(lambda v: v, result=result)
    for mode in (plain, jitted):
        with pytest.raises(TypeError) as caught:
            mode(lambda x: op(ruled, [x], tf.float32))(X)
        takes = "a shape function takes the spec of each argument"
        assert_says(caught.value, takes, "1 argument. ", "    result=lambda v: ...", FILE[:10])


def test_trace_runs_the_function_once_more() -> None:
    runs = []
    traced = hostcall.declare(lambda x: [runs.append(x), x][1], result="trace")
    np.testing.assert_array_equal(jitted(lambda x: tf.py_function(traced, [x], tf.float32))(X), X)
    assert len(runs) == 2
    untraceable = hostcall.declare(lambda x: np.sqrt(x.numpy()), result="trace")
    message = _message(lambda: jitted(lambda x: tf.py_function(untraceable, [x], tf.float32))(X))
    assert "no attribute 'numpy'" in message


def contradicting(who: str, function: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """A program that says by Tout, `set_shape` or `ensure_shape` that the result is (2, 3)."""

    def program(x: tf.Tensor) -> tf.Tensor:
        tout = tf.TensorSpec([2, 3], tf.float32) if who == "Tout" else tf.float32
        y = tf.numpy_function(function, [x], tout)
        if who == "set_shape":
            y.set_shape([2, 3])
        return tf.ensure_shape(y, [2, 3]) if who == "ensure_shape" else y

    return program


@pytest.mark.parametrize("who", ["Tout", "set_shape", "ensure_shape"])
def test_two_declarations_that_contradict_each_other(who: str) -> None:
    # In tracing the rule does not know the size, so that only XLA can find out.
    ruled = hostcall.declare(lambda x: x, result=lambda x: [x.shape[0] + 0, 3])
    signature = [tf.TensorSpec([None, 3], tf.float32)]
    program = tf.function(contradicting(who, ruled), signature, jit_compile=True)
    message = _message(lambda: program(X))
    assert_says(message, "is declared twice", "(2, 3)", "(1, 3)", who)
    np.testing.assert_array_equal(program(tf.ones([2, 3])), tf.ones([2, 3]))


@pytest.mark.parametrize("who", ["set_shape", "ensure_shape"])
def test_a_contradiction_that_tracing_sees(who: str) -> None:
    ruled = hostcall.declare(lambda x: x, result=[1, 3])
    with pytest.raises(ValueError, match="Dimension 0 in both shapes must be equal"):
        jitted(contradicting(who, ruled))(X)
