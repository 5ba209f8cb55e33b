"""hostcall.record and hostcall.replay of native code."""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import MODES, failure, jitted
from tests.support.native_code.programs import NEXT, SCALE, of, pointer


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "run.hostcall")


@pytest.mark.parametrize("mode", MODES)
def test_calls_are_answered_from_the_file(mode: Any, file: str) -> None:
    add, double = of("next_float32", *NEXT), of("scale", *SCALE)

    @mode
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in range(3):
            x = tf.ensure_shape(tf.numpy_function(add, [x], tf.float32), [2])
        return tf.numpy_function(double, [x, 0.5], tf.float32)

    x = tf.constant([0.0, -1.0])
    program(x)
    with hostcall.record(file):
        expected = program(x).numpy()
    with hostcall.replay(file):
        np.testing.assert_array_equal(program(x).numpy(), expected)
    with (
        pytest.raises(hostcall.ReplayError, match=r"call 1 of native:next_float32 .*got 1.0"),
        hostcall.replay(file),
    ):
        program(x + 1)
    np.testing.assert_array_equal(program(x).numpy(), expected)


def test_python_answers_in_the_place_of_native_code(file: str) -> None:
    def program_of(function: Any) -> Any:
        spec = tf.TensorSpec([2], tf.float32)
        return jitted(lambda x: tf.numpy_function(function, [x, 2.0], spec))

    def scale(x: Any, y: Any) -> Any:
        raise AssertionError("a function was called in a replay")

    scale.__qualname__ = "scale"
    x = tf.constant([1.0, 2.0])
    with hostcall.record(file):
        program_of(of("scale", *SCALE))(x)
    with hostcall.replay(file):
        assert program_of(scale)(x).numpy().tolist() == [2.0, 4.0]


def test_errors_of_native_code(file: str) -> None:
    fail = of("root", pointer("int32"), pointer("int32"), returns=ctypes.c_int32)
    program = jitted(lambda x: tf.numpy_function(fail, [x], tf.TensorSpec([], tf.int32)))
    for context in (hostcall.record(file), hostcall.replay(file), contextlib.nullcontext()):
        with context:
            assert "returned status" in failure(program, tf.constant(-7)).message
