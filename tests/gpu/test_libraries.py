"""Functions that compute on the GPU, by CuPy, Torch and Numba, in JAX's programs for one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax

call = hostcall.jax.call
Function = Callable[[Any], Any]

if all(device.platform != "gpu" for device in jax.devices()):
    pytest.skip("JAX has no GPU here", allow_module_level=True)

# Numba's, of kernels as small as these.
pytestmark = pytest.mark.filterwarnings("ignore:.*Grid size")


def by(library: str, take: str) -> Function:
    module = pytest.importorskip(library)
    return lambda x: getattr(module, take)(x) * 2


def by_cupy_on_a_stream() -> Function:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)

    def double(x: Any) -> Any:
        with stream:
            y = cupy.from_dlpack(x) * 2
        stream.synchronize()
        return y

    return double


def by_numba() -> Function:
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def kernel(x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i]

    def double(x: Any) -> Any:
        y = cuda.device_array(x.shape, x.dtype)
        kernel[(x.shape[0] + 127) // 128, 128](cuda.as_cuda_array(x), y)
        return y

    return double


BY_DLPACK = [
    partial(by, "cupy", "from_dlpack"),
    partial(by, "torch", "from_dlpack"),
    by_cupy_on_a_stream,
]
BY_ADDRESS = [partial(by, "cupy", "asarray"), by_numba]
each_library = pytest.mark.parametrize("library", BY_DLPACK + BY_ADDRESS)


@each_library
@pytest.mark.parametrize("size", [4, 2**20])
def test_one_call(library: Callable[[], Function], size: int) -> None:
    double, x = library(), jnp.arange(size, dtype=jnp.float32)
    program = jax.jit(lambda x: call(double, x, x + 1, memory="device") + 1)
    for _ in range(3):
        np.testing.assert_array_equal(program(x), 2 * (np.asarray(x) + 1) + 1)


@each_library
def test_calls_in_a_loop(library: Callable[[], Function]) -> None:
    double, x = library(), jnp.ones(2**12, jnp.float32)

    def step(_: int, x: Any) -> Any:
        return call(double, x, x, memory="device", ordered=True) - x / 2

    got = jax.jit(lambda x: jax.lax.fori_loop(0, 20, step, x))(x)
    np.testing.assert_array_equal(got, np.full(2**12, np.float32(1.5) ** 20))


@each_library
def test_an_array_that_is_kept(library: Callable[[], Function]) -> None:
    double, kept, x = library(), [], jnp.ones(4, jnp.float32)

    def keep(x: Any) -> Any:
        kept.append(x)
        return double(x)

    program = jax.jit(lambda x: call(keep, x, x, memory="device"))
    if library in BY_ADDRESS:  # which do not tell when they are done with it
        with pytest.raises(jax.errors.JaxRuntimeError, match="still has the memory"):
            jax.block_until_ready(program(x))
        return
    np.testing.assert_array_equal(program(x), 2)
    with pytest.raises(BufferError):
        double(kept[0])
