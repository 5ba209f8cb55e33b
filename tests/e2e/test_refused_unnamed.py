"""Functions that XLA refuses with any code, and without naming the op that it refuses.

XLA's CPU cannot shuffle a vector of floats: its comparison has another type than the sort wants. It
says so when it compiles, as a failed precondition, and names no op.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler import refusals
from tests.support.helpers import assert_same, jitted, plain, to_numpy
from tests.support.versions import shuffle_is_refused

X = tf.constant([3.0, 1.0, 2.0])
PROGRAMS: list[Callable[..., Any]] = []


@pytest.fixture(autouse=True)
def _auto(auto_route: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_found", defaultdict(set))


def _program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


def _shuffled(x: tf.Tensor) -> Any:
    return tf.random.shuffle(tf.sin(x) + 1.0) * 2.0


@_program
def alone(x: tf.Tensor) -> Any:
    return tf.sort(tf.random.shuffle(x))


@_program
def among_others(x: tf.Tensor) -> Any:
    for _ in range(5):
        x = tf.sin(x) + 1.0
    y = tf.random.shuffle(x)
    for _ in range(5):
        y = tf.cos(y) * 2.0
    return tf.sort(y), x


@_program
def twice(x: tf.Tensor) -> Any:
    return tf.sort(_shuffled(x)), tf.sort(tf.random.shuffle(x * 2.0)) + 1.0


@_program
def in_a_loop(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, tf.sort(_shuffled(y))

    return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1] + 1.0


@_program
def in_a_branch(x: tf.Tensor) -> Any:
    return tf.cond(x[0] > 0.0, lambda: tf.sort(_shuffled(x)), lambda: x) + 1.0


@_program
def in_a_call(x: tf.Tensor) -> Any:
    return tf.sort(tf.function(_shuffled)(x)) + 1.0


@_program
def beside_a_list(x: tf.Tensor) -> Any:
    array = tf.TensorArray(tf.float32, 2, element_shape=[3])
    array = array.write(0, tf.sort(tf.random.shuffle(x))).write(1, x)
    return array.stack()


@_program
def beside_a_callback(x: tf.Tensor) -> Any:
    y = tf.numpy_function(lambda v: v + np.float32(1), [x], tf.TensorSpec([3], tf.float32))
    return tf.sort(_shuffled(y)) + 1.0


@_program
def beside_an_op_without_a_kernel(x: tf.Tensor) -> Any:
    return tf.sort(_shuffled(x)) + tf.strings.to_number(tf.strings.as_string(x))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_computes_what_plain_graph_mode_does(program: Any) -> None:
    function = jitted(program)
    for x in (X, X + 1.0):
        assert_same(to_numpy(function(x)), to_numpy(plain(program)(x)))


def test_effects_happen_once() -> None:
    variable, seen = tf.Variable(0.0), []

    def note(value: Any) -> None:
        seen.append(float(value))

    @jitted
    def program(x: tf.Tensor) -> Any:
        variable.assign_add(1.0)
        tf.numpy_function(note, [x[0]], [])
        y = tf.sort(_shuffled(x))
        variable.assign_add(10.0)
        tf.numpy_function(note, [x[1]], [])
        return y + 1.0

    for calls in (1, 2):
        program(X)
        assert variable.numpy() == 11.0 * calls
        assert seen == [3.0, 1.0] * calls


@shuffle_is_refused
@pytest.mark.parametrize("name", ["among_others", "in_a_loop", "in_a_branch", "in_a_call"])
def test_the_log_names_the_op(name: str, caplog: pytest.LogCaptureFixture) -> None:
    program = next(program for program in PROGRAMS if program.__name__ == name)

    def searched(x: tf.Tensor) -> Any:
        return program(x)

    searched.__name__ = f"searched_{name}"  # the log says it once for each
    with caplog.at_level(logging.WARNING, "hostcall"):
        jitted(searched)(X)
    (line,) = (record.message for record in caplog.records if "Expected comp" in record.message)
    assert "On the host: RandomShuffle; the rest" in line


@shuffle_is_refused
def test_what_was_found_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    jitted(lambda x: tf.sort(_shuffled(x)) + 1.0)(X)

    @jitted
    def the_next(x: tf.Tensor) -> Any:
        return tf.sort(_shuffled(x)) + 2.0

    with caplog.at_level(logging.WARNING, "hostcall"):
        the_next(X)
    (line,) = (record.message for record in caplog.records if "the_next" in record.message)
    assert "On the host: RandomShuffle; the rest is one program" in line


@shuffle_is_refused
def test_it_can_be_an_error() -> None:
    hostcall.configure(uncompilable="error")
    try:
        with pytest.raises(tf.errors.FailedPreconditionError):
            jitted(alone)(X)
    finally:
        hostcall.configure(uncompilable="partition")


def test_an_error_of_a_run_is_none_of_compiling() -> None:
    """What has run before it must not run again."""
    calls = []

    def fail(value: Any) -> Any:
        calls.append(value)
        raise tf.errors.FailedPreconditionError(None, None, "no such luck")

    @jitted
    def program(x: tf.Tensor) -> Any:
        return tf.numpy_function(fail, [x], tf.TensorSpec([3], tf.float32))

    with pytest.raises(tf.errors.UnknownError, match="no such luck"):
        program(X)
    assert len(calls) == 1
