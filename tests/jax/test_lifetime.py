"""hostcall.jax: functions live as long as the programs that call them, and no longer."""

from __future__ import annotations

import gc
from typing import Any

import jax
import numpy as np

import hostcall.jax
from hostcall_runtime import _library
from tests.support.fate import Fate
from tests.support.jax.helpers import X

runtime = _library.load("hostcall_runtime._runtime")


class Doubled:
    def __call__(self, x: Any) -> Any:
        return x * np.float32(2)


def test_a_compiled_program_keeps_its_function() -> None:
    function = Doubled()
    fate = Fate(function)
    program = jax.jit(lambda x, f=function: hostcall.jax.call(f, x, x)).lower(X).compile()
    del function
    jax.clear_caches()
    gc.collect()
    np.testing.assert_array_equal(program(X), 2 * X)
    np.testing.assert_array_equal(program(X), 2 * X)
    del program
    fate.assert_goes()


def test_a_function_goes_with_its_jitted_function() -> None:
    size = runtime.size()
    function = Doubled()
    fate = Fate(function)
    program = jax.jit(lambda x, f=function: hostcall.jax.call(f, x, x, pure=True))
    for _ in range(3):
        np.testing.assert_array_equal(program(X), 2 * X)
    del function, program
    jax.clear_caches()
    fate.assert_goes()
    assert runtime.size() <= size
