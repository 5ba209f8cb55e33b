"""hostcall.jax: functions live as long as the programs that call them, and no longer."""

import gc
from typing import Any

import jax
import numpy as np
import pytest

import hostcall.jax
from hostcall_runtime import _library
from tests.support.fate import Fate
from tests.support.installed import TENSORFLOW
from tests.support.jax.helpers import X, run_python

with_tensorflow = pytest.mark.skipif(not TENSORFLOW, reason="about both frameworks")

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


GONE = """
import gc, sys
import jax, numpy as np
{also}
import hostcall.jax
from hostcall.jax._lowering import Owned

x = np.ones(2, np.float32)
program = jax.jit(lambda x: hostcall.jax.call(np.sin, x, x)).lower(x).compile()
for owned in [one for one in gc.get_objects() if isinstance(one, Owned)]:
    owned.target = None
gc.collect()
try:
    jax.block_until_ready(program(x))
except jax.errors.JaxRuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("also", ["", pytest.param("import tensorflow", marks=with_tensorflow)])
def test_a_function_that_is_gone_is_an_error_about_jax(also: str) -> None:
    said = run_python(GONE.format(also=also))
    assert "is gone" in said
    assert "what jax.jit" in said
    assert ("tf.function" in said) == bool(also)
