"""A process does not grow with the programs that it compiles, nor with the functions it calls."""

import contextlib
import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.stress.processes import Worker

# Bytes for each program. An MLIR context takes 1,300,000; XLA's allocator keeps a tenth of that.
A_PROGRAM = 130_000.0

# Bytes for each function, whose entry in a table takes 200 or more. JAX's compiler leaves some
# kilobytes of each program of a hundred, with calls and without.
A_FUNCTION = 200.0

# The number of functions that one program calls.
_FEW = 100

pytestmark = pytest.mark.runs_in("process", limit=600.0)


@pytest.fixture
def process() -> Iterator[Worker]:
    with contextlib.closing(Worker()) as worker:
        yield worker


def test_programs_of_jax() -> None:
    assert _left(lambda: _compiled_by_jax(1), 300) < A_PROGRAM


def test_functions_of_jax() -> None:
    empty = _left(lambda: _compiled_by_jax(_FEW, False), 30) / _FEW
    assert _left(lambda: _compiled_by_jax(_FEW), 100) / _FEW < empty + A_FUNCTION


def _compiled_by_jax(calls: int, with_calls: bool = True) -> None:
    def program(x: Any) -> Any:
        for number in range(calls):
            if with_calls:
                x = hostcall.jax.call(lambda v, n=number: v + np.float32(n), x, x, pure=True)
            else:
                x = jnp.sin(x + np.float32(number))
        return x

    jax.jit(program)(jnp.zeros(4)).block_until_ready()


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
