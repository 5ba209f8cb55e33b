"""The function of the benchmarks as native code, and native code that calls a Python function."""

import ctypes
import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numba
import numpy as np
import tensorflow as tf

import hostcall
from benchmarks.steps import Function, Step, numpy_step

_XLA = Path(__file__).parents[1] / "third_party"  # headers that suit TensorFlow and JAX
_FLOATS = numba.types.CPointer(numba.types.float32)


@numba.cfunc(numba.types.void(_FLOATS, _FLOATS, numba.types.int64))
def _add_one(x: Any, y: Any, count: int) -> None:
    for i in range(count):
        y[i] = x[i] + numba.float32(1)


def native_step() -> Step:
    """Return a step that adds 1 without Python."""
    return _step_of(_add_one)


def least_step(function: Function, folder: str) -> Step:
    """Return a step that only calls a Python function. All these steps call the latest function."""
    code = library("least_call.cc", folder)
    with_lock = ctypes.PyDLL(code._name)
    if with_lock.set_function(ctypes.py_object(function)) != 0:
        raise ImportError("NumPy's interface for C is not there.")
    return _step_of(jax.ffi.pycapsule(code.least_call))


def _step_of(code: Any) -> Step:
    called: Callable[..., Any] = hostcall.native(
        code, result=lambda x: tf.TensorSpec(x.shape, x.dtype)
    )
    return numpy_step(called)


def library(source: str, folder: str) -> ctypes.CDLL:
    """Load the code of a file beside this one, compiled into a folder unless it is there."""
    path = Path(folder) / f"{source}.so"
    if path.exists():
        return ctypes.CDLL(str(path))
    headers = [_XLA, sysconfig.get_path("include"), np.get_include()]
    options = ["-O2", "-std=c++17", "-shared", "-fPIC", *(f"-isystem{each}" for each in headers)]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *options, Path(__file__).with_name(source), "-o", path], check=True)
    return ctypes.CDLL(str(path))
