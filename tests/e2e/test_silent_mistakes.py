"""Mistakes that raise no error: the log and the reports name them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._frontend import missing_gradients
from hostcall._functions import declarations
from tests.support.helpers import (
    MODES,
    assert_says,
    eagerly,
    gradient_of,
    jitted,
    partitioned,
    plain,
)

X = tf.constant([1.0, 2.0])
SPEC = tf.TensorSpec([2], tf.float32)
FILE = Path(__file__).name


@pytest.fixture(autouse=True)
def _told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_late", set())
    monkeypatch.setattr(missing_gradients, "_told", set())


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "hostcall"]


@pytest.mark.parametrize("mode", MODES)
def test_a_declaration_that_comes_after_a_trace_is_logged_once(
    mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def function(x: Any) -> Any:
        return x

    program = mode(lambda x: tf.numpy_function(function, [x], SPEC))
    hostcall.declare(function, pure=True)
    program(X)
    assert _logged(caplog) == []
    hostcall.declare(function, pure=True)  # the same once more
    assert _logged(caplog) == []
    for _ in range(2):
        hostcall.declare(function, timeout=60.0)
        (message,) = _logged(caplog)
    line = function.__code__.co_firstlineno
    assert_says(message, f"{FILE}:{line}) comes after", "called at", f"{FILE}:{line + 3}")


def test_a_declaration_of_another_function_or_before_any_trace_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Model:
        def run(self, x: Any) -> Any:
            return x

    one, other = Model(), Model()
    jitted(lambda x: tf.numpy_function(one.run, [x], SPEC))(X)
    hostcall.declare(other.run, result=SPEC)
    tf.numpy_function(other.run, [X], SPEC)  # an eager call leaves no graph
    hostcall.declare(other.run, timeout=60.0)
    assert _logged(caplog) == []
    hostcall.declare(one.run, result=SPEC)
    assert len(_logged(caplog)) == 1


def halved(x: Any) -> Any:
    return np.asarray(x / 2, np.float32)


@pytest.mark.parametrize("build", [eagerly, plain, jitted, partitioned])
@pytest.mark.parametrize("inside", [False, True])
def test_a_gradient_of_a_callback_without_one_is_logged(
    build: Any, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    half = hostcall.callback(halved, result=SPEC)

    def program(x: tf.Tensor) -> tf.Tensor:
        return x * half(x)

    run = build(lambda x: gradient_of(program, x)) if inside else build(program)
    found = run(X) if inside else gradient_of(run, X)
    np.testing.assert_array_equal(found, X / 2.0)  # as if the callback returned a constant
    (message,) = _logged(caplog)
    line = halved.__code__.co_firstlineno
    assert_says(message, f"{FILE}:{line}", "grad=lambda inputs, results, upstream: ...")


@pytest.mark.parametrize("build", [eagerly, plain, jitted])
def test_where_no_gradient_is_meant_nothing_is_logged(
    build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    half = hostcall.callback(halved, result=SPEC)
    with_one = hostcall.callback(halved, result=SPEC, grad=lambda i, r, dy: dy / 2.0)
    count = hostcall.callback(lambda n: np.float32(n), result=tf.TensorSpec([], tf.float32))

    def program(x: tf.Tensor) -> tf.Tensor:
        one = tf.numpy_function(halved, [x], SPEC)  # as in stock TensorFlow
        return x * tf.stop_gradient(half(x)) + with_one(x) + one + count(tf.size(x))

    np.testing.assert_array_equal(gradient_of(build(program), X), X / 2.0 + 0.5)
    half(X)
    assert _logged(caplog) == []
