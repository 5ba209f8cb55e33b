"""How much a process grows by what is done in it again and again, in JAX and in TensorFlow."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import hostcall.jax

# Of the functions that one program calls.
_FEW = 100


def compilations_in_jax(count: int) -> float:
    """The bytes that stay of each of `count` compilations of a program with a pure call."""
    return _left(lambda: _compiled_by_jax(1), count)


def compilations_in_tensorflow(count: int, with_call: bool = True) -> float:
    """The same; TensorFlow itself never lets go of a program."""
    return _left(lambda: _compiled_by_tensorflow(with_call), count)


def functions_in_jax(count: int, with_calls: bool = True) -> float:
    """The bytes that stay of each of `count` functions, a hundred of them to a program."""
    return _left(lambda: _compiled_by_jax(_FEW, with_calls), count // _FEW) / _FEW


def functions_in_tensorflow(count: int) -> float:
    """The same, of functions that are called eagerly."""
    return _left(lambda: _called_by_tensorflow(_FEW), count // _FEW) / _FEW


def _compiled_by_jax(calls: int, with_calls: bool = True) -> None:
    def program(x: Any) -> Any:
        for number in range(calls):
            if with_calls:
                x = hostcall.jax.call(lambda v, n=number: v + np.float32(n), x, x, pure=True)
            else:
                x = jnp.sin(x + np.float32(number))
        return x

    jax.jit(program)(jnp.zeros(4)).block_until_ready()


def _compiled_by_tensorflow(with_call: bool) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        called = tf.numpy_function(lambda v: v + v, [x], x.dtype) if with_call else x + x
        return tf.ensure_shape(called, x.shape)

    tf.function(program, jit_compile=True, autograph=False)(tf.zeros([4]))


def _called_by_tensorflow(calls: int) -> None:
    for number in range(calls):
        tf.numpy_function(lambda v, n=number: v + np.float32(n), [tf.zeros([4])], tf.float32)


def _left(do: Callable[[], None], count: int) -> float:
    """The bytes that stay of each time, after a third as many to warm up."""
    for _ in range(max(count // 3, 1)):
        do()
    before = _resident()
    for _ in range(count):
        do()
    return (_resident() - before) / count


def _resident() -> int:
    """The memory of the process in bytes, without what its allocator could give back."""
    jax.clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
