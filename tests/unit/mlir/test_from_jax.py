"""hostcall-from-jax: programs of JAX's own callbacks compute the same on hostcall's runtime."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jaxlib import _jax, xla_client

import hostcall.jax
import hostcall_mlir

CPU = jax.devices("cpu")[:1]


class Triple:
    """A function that JAX calls itself, or the runtime by `number`, and that counts its calls."""

    def __init__(self, like: jax.Array) -> None:
        self.calls = 0
        self.spec = jax.ShapeDtypeStruct(like.shape, like.dtype)
        # Lowering registers the function, for as long as the lowered program lives.
        self._lowered = jax.jit(lambda x: hostcall.jax.call(self, self.spec, x)).lower(like)
        number = re.search(r"callback = (\d+)", self._lowered.as_text())
        assert number is not None
        self.number = int(number[1])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.calls += 1
        return np.asarray(x * 3, dtype=x.dtype)


def run(text: str, *args: jax.Array) -> list[jax.Array]:
    """Compile a program in StableHLO with XLA, run it, and return its results."""
    client = CPU[0].client
    devices = _jax.DeviceList(tuple(CPU))
    executable = client.compile_and_load(text, devices, xla_client.CompileOptions())
    results = executable.execute_sharded([*args]).disassemble_into_single_device_arrays()
    return [result[0] for result in results]


def pure(f: Triple, x: Any) -> Any:
    return jax.pure_callback(f, f.spec, x + x)


def in_a_loop(f: Triple, x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, y: io_callback(f, f.spec, y), x)


def in_a_branch(f: Triple, x: Any) -> Any:
    return jax.lax.cond(x[0, 0] != 0, lambda y: jax.pure_callback(f, f.spec, y), jnp.negative, x)


@pytest.mark.parametrize("program", [pure, in_a_loop, in_a_branch])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int2, jnp.uint4, jnp.complex64])
def test_program_computes_the_same(program: Callable[[Triple, Any], Any], dtype: Any) -> None:
    x = jnp.array([[1, 0, 1]], dtype)
    if x.dtype.itemsize == 1 and jax.__version_info__ < (0, 10):
        pytest.skip("JAX's own callbacks get other numbers of less than a byte")
    f = Triple(x)
    text = jax.jit(lambda x: program(f, x)).lower(x).as_text()
    assert "xla_ffi_python_cpu_callback" in text
    passes = f"hostcall-from-jax{{callbacks=0={f.number}}},hostcall-check"
    changed = hostcall_mlir.transform(text, passes)
    assert "python" not in changed
    expected = jax.jit(lambda x: program(f, x))(x)
    calls, f.calls = f.calls, 0
    (result,) = run(changed, x)
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))
    assert f.calls == calls


def test_calls_of_hostcall_jax_stay_what_they_are() -> None:
    x = jnp.arange(3.0)
    f = Triple(x)
    program = jax.jit(lambda x: hostcall.jax.call(f, f.spec, x + 1))
    lowered = program.lower(x)
    changed = hostcall_mlir.transform(lowered.as_text(), "hostcall-from-jax,hostcall-check")
    (result,) = run(changed, x)
    np.testing.assert_array_equal(np.asarray(result), np.asarray(program(x)))
