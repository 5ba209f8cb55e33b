"""The cost of a native callback in a loop, beside a custom call that XLA knows itself."""

import ctypes
import tempfile
from collections.abc import Callable

import jax
import numpy as np

import hostcall
import hostcall.jax
from benchmarks import jax_programs
from benchmarks.native_programs import library
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.timing import FULL, Effort, measure

TITLE = "One of 10,000 calls of native code in a compiled loop, on 4 floats"
CALLS = 10_000
TARGET = "hostcall_benchmark_add_one"
OWN = "XLA's own custom call"
FUNCTION, HANDLER = "hostcall.native of a C function", "hostcall.native of a handler of XLA's FFI"

InJax = Callable[[jax.Array], jax.Array]


def by_native(code: object) -> InJax:
    def call(v: jax.Array) -> jax.Array:
        result: jax.Array = hostcall.jax.call(code, v, v, pure=True)
        return result

    return call


def calls_of(compiled: ctypes.CDLL) -> dict[str, InJax]:
    """Return the ways to call the native code, with the peer first."""
    function = compiled.add_one
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    handler = jax.ffi.pycapsule(compiled.add_one_handler)
    jax.ffi.register_ffi_target(TARGET, handler, platform="cpu")
    return {
        OWN: lambda v: jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(v.shape, v.dtype))(v),
        FUNCTION: by_native(hostcall.native(function, result=lambda x: x)),
        HANDLER: by_native(hostcall.native(handler, result=lambda x: x)),
    }


def main(effort: Effort = FULL) -> list[Row]:
    count = effort.of(CALLS)
    array = np.zeros(4, np.float32)
    with tempfile.TemporaryDirectory(prefix="hostcall_benchmarks_") as folder:
        programs = {
            name: jax_programs.loop_of_calls(lambda _, v, call=call: call(v), None, array, count)
            for name, call in calls_of(library("add_one.cc", folder)).items()
        }
        measured = measure(programs, effort)
    samples = {name: value.per(count) for name, value in measured.items()}
    rows = [alone(OWN, samples[OWN])]
    rows += [beside(samples, name, OWN, at_most(1.2)) for name in (FUNCTION, HANDLER)]
    return rows
