"""Ctrl-C at moments that a test has to look for."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.stress import programs
from tests.support.stress.interrupt_cases import (
    Interrupted,
    assert_sound,
    interrupt_main_thread,
    raise_here,
)
from tests.support.stress.programs import check, compiled, program
from tests.support.threads import PATIENCE


def wait_for(event: threading.Event, _: Any) -> None:
    assert event.wait(PATIENCE)


def run_in_native_code(gradient: bool) -> None:
    """The interrupt comes when the callback has returned, and the program computes by itself."""
    main = threading.main_thread().ident or 0
    returned, sent = threading.Event(), threading.Event()

    def body(x: Any) -> Any:
        returned.set()
        return x * np.float32(2.0)

    def call(x: tf.Tensor) -> tf.Tensor:
        y = programs.py_function(body, x)
        for _ in range(12):
            y = tf.tanh(y @ y)
        return y

    def send() -> None:
        assert returned.wait(PATIENCE)
        # Until the main thread has left all that is Python's, below the call of the program.
        while sys._current_frames()[main].f_code.co_name != "quick_execute":
            pass
        interrupt_main_thread()
        sent.set()

    function = compiled((lambda x: programs.gradient(call, x)) if gradient else call)
    x = tf.random.stateless_uniform([700, 700], [1, 2])
    expected = function(x)
    returned.clear()
    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        wait_for(sent, function(x))  # should the program be quicker than the sender
    sender.join()
    np.testing.assert_array_equal(function(x), expected)
    programs.assert_no_states()


def run_compilation() -> None:
    """Where XLA asks for the shapes."""
    traced: list[bool] = []

    def rule(x: tf.TensorSpec) -> tf.TensorSpec:
        if traced:
            traced.clear()
            raise_here()
        return programs.like(x)

    double = hostcall.callback(lambda x: x * np.float32(2.0), result=rule)
    function = compiled(lambda x: [double(x)])
    concrete = function.get_concrete_function(tf.TensorSpec([4], tf.float32))
    traced.append(True)
    with pytest.raises(KeyboardInterrupt):
        concrete(programs.values("small"))
    assert_sound(function, "small")


def run_handler() -> None:
    """A handler that runs TensorFlow itself, and returns: the call goes on."""
    results: list[Any] = []
    x = programs.values("small")

    def handle(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        results.append(function(x))
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            failing(x)
        assert isinstance(hostcall.last_error(caught.value), ValueError)

    def fail(x: Any) -> None:
        raise ValueError("blah")

    failing = compiled(program(fail, "numpy_function", "small"))
    interrupted = Interrupted(raise_here)
    function = compiled(program(interrupted, "py_function", "small"))
    signal.signal(signal.SIGINT, handle)
    check(function(x), x)
    assert interrupted.went_on.wait(PATIENCE)
    check(results[0], x)
