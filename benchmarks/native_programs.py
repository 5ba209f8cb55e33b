"""The function of the benchmarks as native code."""

from collections.abc import Callable
from typing import Any

import numba
import tensorflow as tf

import hostcall
from benchmarks.programs import Step, numpy_step

_FLOATS = numba.types.CPointer(numba.types.float32)


@numba.cfunc(numba.types.void(_FLOATS, _FLOATS, numba.types.int64))
def _add_one(x: Any, y: Any, count: int) -> None:
    for i in range(count):
        y[i] = x[i] + numba.float32(1)


def native_step() -> Step:
    """Adds 1, without Python."""
    added: Callable[..., Any] = hostcall.native(
        _add_one, result=lambda x: tf.TensorSpec(x.shape, x.dtype)
    )
    return numpy_step(added)
