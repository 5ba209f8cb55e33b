"""Stateless calls: right values, no side effect, no place in the order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import each_mode, like

Call = Callable[[Callable[[Any], Any], tf.Tensor], tf.Tensor]
X = tf.constant([1.0, 2.0, 3.0])


def _by(op: Any) -> Call:
    def call(function: Callable[[Any], Any], x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(op(function, [x], x.dtype, stateful=False), x.shape)

    return call


def _callback(function: Callable[[Any], Any], x: tf.Tensor) -> tf.Tensor:
    return hostcall.callback(function, result=like, stateful=False)(x)


CALLS = {"numpy_function": _by(tf.numpy_function), "py_func": _by(tf.compat.v1.py_func)}
CALLS["callback"] = _callback
each_way = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@each_mode
@each_way
def test_an_unused_call_and_one_of_a_branch_not_taken_do_not_run(call: Call, mode: Any) -> None:
    entries: list[str] = []

    def note(tag: str) -> Callable[[Any], Any]:
        return lambda x: (entries.append(tag), x * np.float32(2.0))[1]

    @mode
    def program(x: tf.Tensor, choice: tf.Tensor) -> tf.Tensor:
        call(note("unused"), x)
        call(note("unused of unused"), call(note("only used there"), x))
        y = call(note("used"), x)
        return tf.cond(choice, lambda: call(note("yes"), y), lambda: call(note("no"), y))

    for runs in (1, 2):
        np.testing.assert_array_equal(program(X, tf.constant(False)), 4.0 * X)
        assert entries == ["used", "no"] * runs


@each_way
def test_it_has_no_side_effect(call: Call) -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        say = tf.numpy_function(lambda x: x, [x], tf.float32)
        say.set_shape(x.shape)
        return call(np.sqrt, say)

    hlo = program.experimental_get_compiler_ir(X)(stage="hlo").splitlines()
    calls = [line for line in hlo if 'custom_call_target="hostcall"' in line]
    assert ["custom_call_has_side_effect=true" in line for line in calls] == [True, False]
