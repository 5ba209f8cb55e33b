"""Compiled functions that create variables whose initial values depend on their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall

Make = Callable[[Any], Callable[[tf.Tensor], tf.Tensor]]
VALUES = (1.0, 3.0, 4.0)
calls: list[float] = []


def counted(x: tf.Tensor) -> tf.Tensor:
    def note(value: Any) -> Any:
        calls.append(float(value))
        return value + np.float32(1)

    return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), [])


def initial_value(decorate: Any) -> Any:
    variables: list[tf.Variable] = []

    @decorate
    def program(x: tf.Tensor) -> tf.Tensor:
        if not variables:
            variables.append(tf.Variable(2.0 * x))
        return variables[0] * x

    return program


def several(decorate: Any) -> Any:
    """One of them depends on no argument; both are assigned."""
    variables: list[tf.Variable] = []

    @decorate
    def program(x: tf.Tensor) -> tf.Tensor:
        if not variables:
            variables.extend([tf.Variable(2.0 * x), tf.Variable(1.0)])
        first, second = variables
        first.assign_add(x)
        second.assign(first + x)
        return first * x + second

    return program


def other_arguments(decorate: Any) -> Any:
    variables: list[tf.Variable] = []

    @decorate
    def program(x: tf.Tensor, training: bool = False, scale: float = 3.0) -> tf.Tensor:
        if not variables:
            variables.append(tf.Variable(scale * x))
        return variables[0] * x * scale if training else x

    return lambda x: program(x, training=True)


def callbacks(decorate: Any) -> Any:
    variables: list[tf.Variable] = []

    @decorate
    def program(x: tf.Tensor) -> tf.Tensor:
        y = counted(x)
        if not variables:
            variables.append(tf.Variable(2.0 * y))
        return variables[0] * x + counted(variables[0].read_value())

    return program


def module(decorate: Any) -> Any:
    class Scaled(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight: tf.Variable | None = None

        @decorate
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            if self.weight is None:
                self.weight = tf.Variable(tf.ones([2]) * x)
            return tf.reduce_sum(x * self.weight)

    return Scaled()


def gradient(decorate: Any) -> Any:
    program = initial_value(decorate)

    def run(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = program(x)
        return tape.gradient(y, x)

    return run


def nested(decorate: Any) -> Any:
    return tf.function(initial_value(decorate), autograph=False)


def nested_in_a_compiled_one(decorate: Any) -> Any:
    return decorate(initial_value(decorate))


PROGRAMS: dict[str, Make] = {
    make.__name__: make
    for make in (
        initial_value,
        several,
        other_arguments,
        callbacks,
        module,
        gradient,
        nested,
        nested_in_a_compiled_one,
    )
}


def decorator(jit_compile: bool | None) -> Any:
    return lambda f: tf.function(f, jit_compile=jit_compile, autograph=False)


def outcome(make: Make, jit_compile: bool | None) -> tuple[list[float], list[float]]:
    """What a function returns, and the calls that it has made."""
    calls.clear()
    program = make(decorator(jit_compile))
    return [float(program(tf.constant(value))) for value in VALUES], [*calls]


@pytest.mark.parametrize("make", PROGRAMS)
def test_such_variables_are_those_of_the_uncompiled_function(make: str) -> None:
    assert outcome(PROGRAMS[make], jit_compile=True) == outcome(PROGRAMS[make], jit_compile=None)


def test_nothing_is_logged_of_the_first_call(caplog: pytest.LogCaptureFixture) -> None:
    for make in (initial_value, callbacks):
        outcome(make, jit_compile=True)
    assert not [record for record in caplog.records if record.name == "hostcall"]


@pytest.mark.usefixtures("auto_route")
def test_later_calls_are_compiled_as_a_whole() -> None:
    program = initial_value(decorator(True))
    program(tf.constant(1.0))
    (cluster,) = hostcall.explain(program, tf.TensorSpec([], tf.float32)).clusters
    assert cluster.name == cluster.function


def test_the_error_stays_where_nothing_may_be_on_the_host() -> None:
    hostcall.configure(uncompilable="error")
    try:
        with pytest.raises(tf.errors.UnimplementedError, match="failed to lift variable"):
            outcome(initial_value, jit_compile=True)
    finally:
        hostcall.configure(uncompilable="partition")
