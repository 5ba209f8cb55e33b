"""hostcall.native in programs: order, threads, Numba, and what is told of calls."""

from __future__ import annotations

import ctypes
from typing import Any

import numba
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import MODES, failure, jitted
from tests.support.native_code import functions, functions_with_gil
from tests.support.native_code.programs import (
    NEXT,
    SCALE,
    called_on,
    each_mode,
    eagerly,
    in_graphs,
    of,
    partitioned,
    pointer,
    same,
)
from tests.support.threads import in_threads


@pytest.mark.parametrize("mode", MODES)
def test_loops_and_branches(mode: Any) -> None:
    add, double = of("next_float32", *NEXT), of("scale", *SCALE)

    def program(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(10):
            if i % 2 == 0:
                y = tf.numpy_function(add, [x], tf.float32)
            else:
                y = tf.numpy_function(double, [x, 2.0], tf.float32)
            x = tf.ensure_shape(y, [2])
        return x

    expected = np.array([0.0, 1.0], np.float32)
    for i in range(10):
        expected = expected + 1 if i % 2 == 0 else expected * 2
    np.testing.assert_array_equal(mode(program)(tf.constant([0.0, 1.0])), expected)


@in_graphs
def test_calls_run_in_the_order_of_the_program(mode: Any) -> None:
    note = of("note", pointer("int32"), result=[])
    taken = (ctypes.c_int32 * 64)()

    def noted_in_python(i: Any) -> None:
        functions().note(ctypes.byref(ctypes.c_int32(-int(i))))

    def program() -> tf.Tensor:
        for i in tf.range(5):
            tf.numpy_function(note, [i + 10], [])
            tf.numpy_function(noted_in_python, [i + 10], [])
            tf.numpy_function(note, [i + 20], [])
        return tf.constant(0)

    functions().take_notes(taken)
    mode(program)()
    count = functions().take_notes(taken)
    assert list(taken)[:count] == [n for i in range(5) for n in (i + 10, -i - 10, i + 20)]


def test_calls_need_no_lock_of_pythons() -> None:
    """Threads go on calling while another one holds the lock until they are done."""
    threads, calls = 8, 10
    gate = of("pass_gate", *[pointer("int32")] * 2, returns=ctypes.c_int32)
    with_gil = functions_with_gil()

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(calls):
            x = tf.ensure_shape(tf.numpy_function(gate, [x], tf.int32), [])
        return x

    functions().reset_gate()
    functions().open_gate_and_wait(0)
    assert int(program(tf.constant(0))) == calls  # and is compiled now
    functions().reset_gate()

    def work(number: int) -> None:
        if number < threads:
            assert int(program(tf.constant(number))) == number + calls
        else:
            assert functions().wait_for_all_inside(threads)
            assert with_gil.open_gate_and_wait(threads * calls)

    in_threads(threads + 1, work)


@each_mode
def test_numba(mode: Any) -> None:
    types = numba.types
    pointer = types.CPointer(types.float32)

    @numba.cfunc(types.void(pointer, pointer, types.int64))
    def add(x: Any, y: Any, n: Any) -> None:
        for i in range(n):
            y[i] = x[i] + 1

    native = hostcall.native(add, result=same)
    np.testing.assert_array_equal(mode(called_on(native, tf.float32))(tf.constant([1.0])), [2.0])
    assert native.__name__ == "add"


@each_mode
def test_numba_of_dtypes_that_ctypes_has_not(mode: Any) -> None:
    types = numba.types

    @numba.cfunc(types.int32(types.CPointer(types.complex64), types.voidptr, types.intp))
    def conjugate(x: Any, y: Any, n: Any) -> Any:
        results = numba.carray(y, (n,), dtype=numba.complex64)
        for i in range(n):
            if x[i].imag > 10:
                return 3
            results[i] = x[i].conjugate()
        return 0

    program = mode(called_on(hostcall.native(conjugate, result=same), tf.complex64))
    x = np.array([1 + 2j, 3 - 1j], np.complex64)
    np.testing.assert_array_equal(program(tf.constant(x)), x.conj())
    if mode is not eagerly:
        assert "returned status 3" in failure(program, tf.constant(x + 20j)).message


@pytest.mark.usefixtures("collected_stats")
@pytest.mark.parametrize("mode", [jitted, partitioned])
def test_calls_are_counted(mode: Any) -> None:
    root = of("root", *[pointer("int32")] * 2, returns=ctypes.c_int32)
    program = mode(called_on(root, tf.int32))
    for value in (1, 4):
        program(tf.constant(value))
    failure(program, tf.constant(-1))
    [row] = hostcall.stats()
    assert (row.calls, row.errors) == (3, 1)
    assert row.bytes >= 16
    assert row.function_seconds > 0.0
    assert "<hostcall.native root>, called at" in row.callback


def test_the_profiler_shows_calls(tmp_path: Any) -> None:
    program = jitted(called_on(of("next_float32", *NEXT), tf.float32))
    program(tf.constant([1.0]))
    with tf.profiler.experimental.Profile(str(tmp_path)):
        program(tf.constant([1.0]))
    profiles = b"".join(file.read_bytes() for file in tmp_path.rglob("*.xplane.pb"))
    assert b"<hostcall.native next_float32>" in profiles


def test_explain_shows_that_nothing_is_copied() -> None:
    program = jitted(called_on(of("next_float32", *NEXT), tf.float32))
    [op] = hostcall.explain(program, tf.TensorSpec([3], tf.float32)).script_ops
    expected = ("<hostcall.native next_float32>", "custom_call", 0)
    assert (op.callback, op.route, op.bytes_copied) == expected
