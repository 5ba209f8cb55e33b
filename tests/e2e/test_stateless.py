"""Stateless calls: right values, no side effect, no place in the order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall

Call = Callable[[Callable[[Any], Any], tf.Tensor], tf.Tensor]

X = tf.constant([1.0, 2.0, 3.0])


def _by(op: Any) -> Call:
    def call(function: Callable[[Any], Any], x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(op(function, [x], x.dtype, stateful=False), x.shape)

    return call


_numpy_function, _v1_py_func = _by(tf.numpy_function), _by(tf.compat.v1.py_func)


def _callback(function: Callable[[Any], Any], x: tf.Tensor) -> tf.Tensor:
    return hostcall.callback(function, result=lambda x: x, stateful=False)(x)


def _noting(entries: list[str]) -> Callable[[str], Callable[[np.ndarray], np.ndarray]]:
    return lambda tag: lambda x: (entries.append(tag), x * np.float32(2.0))[1]


each_way = pytest.mark.parametrize("call", [_numpy_function, _v1_py_func, _callback])
each_mode = pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "jitted"])


@each_mode
@each_way
def test_an_unused_call_does_not_run(call: Call, jit_compile: bool) -> None:
    entries: list[str] = []
    note = _noting(entries)

    @tf.function(jit_compile=jit_compile)
    def program(x: tf.Tensor) -> tf.Tensor:
        call(note("unused"), x)
        call(note("unused of unused"), call(note("only used there"), x))
        return call(note("used"), x)

    for runs in (1, 2):
        np.testing.assert_array_equal(program(X), 2.0 * X)
        assert entries == ["used"] * runs


@each_mode
@each_way
def test_a_call_of_a_branch_not_taken_does_not_run(call: Call, jit_compile: bool) -> None:
    entries: list[str] = []
    note = _noting(entries)

    @tf.function(jit_compile=jit_compile)
    def program(x: tf.Tensor, choice: tf.Tensor) -> tf.Tensor:
        return tf.cond(choice, lambda: call(note("yes"), x), lambda: call(note("no"), x))

    np.testing.assert_array_equal(program(X, tf.constant(False)), 2.0 * X)
    assert entries == ["no"]


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
