"""Tests of the advice of an explanation on each op between compiled clusters."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._tools.explain.facts import HostOp
from tests.support.helpers import jitted

X = tf.TensorSpec([3], tf.float32)


def unique(x: np.ndarray) -> np.ndarray:
    return np.unique(x)


def called(x: Any) -> Any:
    return tf.numpy_function(unique, [x], tf.float32)


def asked_for(x: Any) -> Any:
    with hostcall.scope(route="partition"):
        return tf.numpy_function(unique, [x], tf.TensorSpec([3], tf.float32))


def declared(x: Any) -> Any:
    return hostcall.callback(unique, result=tf.TensorSpec([None], tf.float32))(x)


def of_strings(x: Any) -> Any:
    return tf.numpy_function(unique, [tf.strings.as_string(x)], tf.float32)


def beside_a_boundary(x: Any) -> Any:
    length = tf.numpy_function(len, [tf.strings.as_string(x)], tf.TensorSpec([], tf.int64))
    return called(x), length


_TABLE = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4], tf.int64, tf.int64), -1
)


def beside_a_table(x: Any) -> Any:
    return called(x), _TABLE.lookup(tf.cast(x, tf.int64))


def asked_for_beside_a_table(x: Any) -> Any:
    return asked_for(x), _TABLE.lookup(tf.cast(x, tf.int64))


def printing(x: Any) -> Any:
    tf.print(x)
    return called(x)


def asserting(x: Any) -> Any:
    tf.debugging.Assert(x[0] > 0.0, [x])
    return called(x)


@pytest.mark.parametrize(
    ("program", "op", "advice"),
    [
        (called, "unique", "declare(unique, result=lambda x: tf.TensorSpec([...], tf.float32))"),
        (asked_for, "unique", "remove route='partition'"),
        (declared, "unique", "@hostcall.callback(result=lambda x: tf.TensorSpec([...], tf.float32"),
        (of_strings, "unique", "declare(unique, result=lambda x: tf.TensorSpec([...]"),
        (beside_a_boundary, "len", "nothing here: one program calls it"),
        (beside_a_table, "LookupTableFindV2", "nothing here: once the shapes of the callbacks'"),
        (asked_for_beside_a_table, "LookupTableFindV2", "nothing helps: XLA cannot compile"),
        (printing, "PrintV2", "hostcall.callback(print, result=[])(x)"),
    ],
)
def test_the_line_to_write(program: Callable[[Any], Any], op: str, advice: str) -> None:
    explanation = hostcall.explain(jitted(program), X)
    found = {
        one.op if isinstance(one, HostOp) else one.callback: one.advice
        for one in explanation.boundaries
    }
    assert advice in found[op]
    assert advice.split("(")[0] in str(explanation)


def test_assertions_stand_between_clusters_only_where_xla_would_drop_them() -> None:
    explanation = hostcall.explain(jitted(asserting), X)
    assert [op for op in explanation.boundaries if isinstance(op, HostOp)] == []
    assert [check.op for check in explanation.checks] == ["Assert"]
    try:
        hostcall.configure(semantics="xla")
        explanation = hostcall.explain(jitted(asserting), X)
    finally:
        hostcall.configure(semantics="graph")
    (assertion,) = (op for op in explanation.boundaries if isinstance(op, HostOp))
    assert assertion.op == "Assert"
    assert "semantics='graph'" in assertion.advice
    assert explanation.checks == ()


def test_printing_by_a_callback_works(capfd: pytest.CaptureFixture[str]) -> None:
    program = jitted(lambda x: [hostcall.callback(print, result=[])(x), x][1])
    assert hostcall.explain(program, X).boundaries == ()
    program(tf.zeros([3]))
    assert "[0. 0. 0.]" in capfd.readouterr().out


def test_functions_that_are_not_compiled_have_no_boundaries() -> None:
    assert hostcall.explain(tf.function(called), X).boundaries == ()


def _advised(program: Any, x: Any) -> str:
    (line,) = [one.advice for one in hostcall.explain(program, x).boundaries]
    return line


def _in_both_ops(function: Callable[..., Any], tout: Any, shape: list[int]) -> list[Any]:
    def by_tensors(x: tf.Tensor) -> Any:
        return function(x.numpy())

    by_tensors.__name__ = function.__name__
    of_arrays = jitted(lambda x: tf.numpy_function(function, [x], tout))
    of_tensors = jitted(lambda x: tf.py_function(by_tensors, [x], tout))
    return [(program, tf.TensorSpec(shape, tf.float32)) for program in (of_arrays, of_tensors)]


def one_or_all(x: np.ndarray) -> np.ndarray:
    return x if x[0] else x[0]


_BLANK = "lambda x: tf.TensorSpec([...], tf.float32))"
_BOUNDED = "lambda x: hostcall.BoundedSpec([2], tf.float32, [0]))"
_SHAPE = "lambda x: tf.TensorSpec([3], tf.float32))"


@pytest.mark.parametrize(
    ("function", "values", "result"),
    [
        (unique, [], _BLANK),
        (
            unique,
            ["111", "122", "444"],
            f"{_BOUNDED}    # the largest size seen so far, in 3 calls",
        ),
        (unique, ["123", "124"], f"{_SHAPE}    # the shape seen so far, in 2 calls"),
        (one_or_all, ["000", "111", "000"], _BLANK),
    ],
)
def test_the_line_has_what_calls_have_shown(function: Any, values: list[str], result: str) -> None:
    for program, x in _in_both_ops(function, tf.float32, [3]):
        for value in values:
            program(tf.constant([*map(float, value)]))
        assert _advised(program, x) == f"hostcall.declare({function.__name__}, result={result}"


def test_a_size_that_follows_from_the_inputs_stays_a_blank() -> None:
    x = tf.TensorSpec([None], tf.float32)
    program = tf.function(called, input_signature=[x], jit_compile=True, autograph=False)
    for values in ([1.0], [1.0, 2.0]):
        program(tf.constant(values))
    assert "tf.TensorSpec([...], tf.float32))" in _advised(program, x)
    program(tf.constant([1.0, 1.0]))
    assert "hostcall.BoundedSpec([2], tf.float32, [0]))" in _advised(program, x)
