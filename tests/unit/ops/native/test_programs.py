"""hostcall.native in programs: order, threads, Numba, what is told of calls, lifetime, replays."""

import ctypes
import gc
import pathlib
from typing import Any

import numba
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.fate import Fate
from tests.support.helpers import MODES, failure, jitted, plain
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

    @numba.cfunc(types.int32(types.CPointer(types.complex64), types.voidptr, types.intp))
    def conjugate(x: Any, y: Any, n: Any) -> Any:
        results = numba.carray(y, (n,), dtype=numba.complex64)
        for i in range(n):
            if x[i].imag > 10:
                return 3
            results[i] = x[i].conjugate()
        return 0

    native = hostcall.native(conjugate, result=same)
    assert native.__name__ == "conjugate"
    program = mode(called_on(native, tf.complex64))
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


def test_explain_shows_that_nothing_is_copied() -> None:
    program = jitted(called_on(of("next_float32", *NEXT), tf.float32))
    [op] = hostcall.explain(program, tf.TensorSpec([3], tf.float32)).script_ops
    expected = ("<hostcall.native next_float32>", "custom_call", 0)
    assert (op.callback, op.route, op.bytes_copied) == expected


def new_native() -> tuple[Any, Any, Fate]:
    """A native function, its code, and the fate of the code."""
    function = functions()["next_float32"]
    function.argtypes, function.restype = NEXT, None
    return hostcall.native(function, result=lambda x: x), function, Fate(function)


@pytest.mark.parametrize("mode", [plain, jitted])
def test_code_lives_as_long_as_its_graph(mode: Any) -> None:
    native, function, fate = new_native()
    program = mode(called_on(native))
    concrete = program.get_concrete_function(tf.TensorSpec([2], tf.float32))
    del function, native, program
    gc.collect()
    assert fate.lives()
    np.testing.assert_array_equal(concrete(tf.zeros([2])), [1.0, 1.0])
    del concrete
    fate.assert_goes()


def test_code_that_refers_to_its_program() -> None:
    native, function, fate = new_native()
    program = jitted(called_on(native))
    np.testing.assert_array_equal(program(tf.zeros([2])), [1.0, 1.0])
    function.program = program
    del function, native, program
    fate.assert_goes()


def test_eager_calls_leave_nothing() -> None:
    native, function, fate = new_native()
    hostcall.declare(native, route="auto")
    called = hostcall.callback(native, result=lambda x: x)
    for _ in range(3):
        native(np.zeros(2, np.float32))
        called(tf.zeros([2]))
        tf.numpy_function(native, [tf.zeros([2])], tf.float32)
    del function, native, called
    fate.assert_goes()


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


@pytest.mark.parametrize("mode", MODES)
def test_calls_are_answered_from_the_file(mode: Any, tmp_path: pathlib.Path) -> None:
    file = str(tmp_path / "run.hostcall")
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
