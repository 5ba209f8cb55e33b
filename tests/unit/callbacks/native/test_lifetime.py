"""hostcall.native: how long code is kept."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted, plain
from tests.support.native_code import functions
from tests.support.native_code.programs import NEXT, called_on


def new_native() -> tuple[Any, Any, weakref.ref[Any]]:
    """A native function, its code, and a reference that tells whether the code is kept."""
    function = functions()["next_float32"]
    function.argtypes, function.restype = NEXT, None
    return hostcall.native(function, result=lambda x: x), function, weakref.ref(function)


@pytest.mark.parametrize("mode", [plain, jitted])
def test_code_lives_as_long_as_its_graph(mode: Any) -> None:
    native, function, alive = new_native()
    program = mode(called_on(native))
    concrete = program.get_concrete_function(tf.TensorSpec([2], tf.float32))
    del function, native, program
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(concrete(tf.zeros([2])), [1.0, 1.0])
    del concrete
    gc.collect()
    assert alive() is None


def test_code_that_refers_to_its_program() -> None:
    native, function, alive = new_native()
    program = jitted(called_on(native))
    np.testing.assert_array_equal(program(tf.zeros([2])), [1.0, 1.0])
    function.program = program
    del function, native, program
    gc.collect()
    assert alive() is None


def test_eager_calls_leave_nothing() -> None:
    native, function, alive = new_native()
    hostcall.declare(native, route="auto")
    called = hostcall.callback(native, result=lambda x: x)
    for _ in range(3):
        native(np.zeros(2, np.float32))
        called(tf.zeros([2]))
        tf.numpy_function(native, [tf.zeros([2])], tf.float32)
    del function, native, called
    gc.collect()
    assert alive() is None


def test_a_process_that_ends_while_code_runs(run_python: Any) -> None:
    script = """
import ctypes, threading
import tensorflow as tf
import hostcall
from tests.support.native_code import functions

ints = ctypes.POINTER(ctypes.c_int32)
gate = functions().pass_gate
gate.argtypes, gate.restype = [ints, ints], ctypes.c_int32
native = hostcall.native(gate, result=lambda x: x)
program = tf.function(lambda x: tf.numpy_function(native, [x], tf.int32), jit_compile=True)
threading.Thread(target=program, args=[tf.constant(1)], daemon=True).start()
assert functions().wait_for_all_inside(1)
print("ends")
"""
    assert run_python(script).splitlines() == ["ends"]
