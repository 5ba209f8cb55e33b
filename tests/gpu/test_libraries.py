"""Functions that compute on the GPU, by CuPy, Torch and Numba, in JAX's programs for one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax

call = hostcall.jax.call


def has_gpu() -> bool:
    return any(device.platform == "gpu" for device in jax.devices())


if not has_gpu():
    pytest.skip("JAX has no GPU here", allow_module_level=True)


def by_cupy() -> Callable[[Any], Any]:
    cupy = pytest.importorskip("cupy")
    return lambda x: cupy.from_dlpack(x) * 2


def by_cupy_with_its_interface() -> Callable[[Any], Any]:
    cupy = pytest.importorskip("cupy")
    return lambda x: cupy.asarray(x) * 2


def by_cupy_on_a_stream() -> Callable[[Any], Any]:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)

    def double(x: Any) -> Any:
        with stream:
            y = cupy.from_dlpack(x) * 2
        stream.synchronize()
        return y

    return double


def by_torch() -> Callable[[Any], Any]:
    torch = pytest.importorskip("torch")
    return lambda x: torch.from_dlpack(x) * 2


def by_numba() -> Callable[[Any], Any]:
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def kernel(x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i]

    def double(x: Any) -> Any:
        taken = cuda.as_cuda_array(x)
        y = cuda.device_array(x.shape, x.dtype)
        kernel[(x.shape[0] + 127) // 128, 128](taken, y)
        return y

    return double


LIBRARIES = [by_cupy, by_cupy_with_its_interface, by_cupy_on_a_stream, by_torch, by_numba]
each_library = pytest.mark.parametrize("library", LIBRARIES)

# Numba's, of kernels as small as these.
pytestmark = pytest.mark.filterwarnings("ignore:.*Grid size")


@each_library
@pytest.mark.parametrize("size", [4, 2**20])
def test_one_call(library: Callable[[], Any], size: int) -> None:
    double = library()
    x = jnp.arange(size, dtype=jnp.float32)
    program = jax.jit(lambda x: call(double, x, x + 1, memory="device") + 1)
    for _ in range(3):
        np.testing.assert_array_equal(program(x), 2 * (np.asarray(x) + 1) + 1)


@each_library
def test_calls_in_a_loop(library: Callable[[], Any]) -> None:
    double = library()

    def step(_: int, x: Any) -> Any:
        return call(double, x, x, memory="device", ordered=True) - x / 2

    x = jnp.ones(2**12, jnp.float32)
    got = jax.jit(lambda x: jax.lax.fori_loop(0, 20, step, x))(x)
    np.testing.assert_array_equal(got, np.full(2**12, np.float32(1.5) ** 20))


@pytest.mark.parametrize("library", [by_cupy, by_cupy_on_a_stream, by_torch])
def test_an_array_that_is_kept_ends_with_the_call(library: Callable[[], Any]) -> None:
    double, kept = library(), []

    def keep(x: Any) -> Any:
        kept.append(x)
        return double(x)

    x = jnp.ones(4, jnp.float32)
    np.testing.assert_array_equal(jax.jit(lambda x: call(keep, x, x, memory="device"))(x), 2)
    with pytest.raises(BufferError):
        double(kept[0])


@pytest.mark.parametrize("library", [by_cupy_with_its_interface, by_numba])
def test_a_kept_array_whose_address_was_given_is_an_error(library: Callable[[], Any]) -> None:
    double, kept = library(), []

    def keep(x: Any) -> Any:
        kept.append(x)
        return double(x)

    x = jnp.ones(4, jnp.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="still has the memory"):
        jax.block_until_ready(jax.jit(lambda x: call(keep, x, x, memory="device"))(x))


def test_where_arrays_lie() -> None:
    seen = []

    def look(x: hostcall.DeviceArray) -> Any:
        seen.append((x.device, x.__cuda_array_interface__["data"][1]))
        return np.full(x.shape, 3, x.dtype)

    x = jnp.ones(4, jnp.float32)
    np.testing.assert_array_equal(jax.jit(lambda x: call(look, x, x, memory="device"))(x), 3)
    assert seen == [("cuda:0", True)]


def test_a_result_of_another_place() -> None:
    cpu = jax.devices("cpu")[0]
    x = jnp.ones(4, jnp.float32)
    program = jax.jit(
        lambda x: call(lambda _: jax.device_put(np.ones(4, np.float32), cpu), x, x, memory="device")
    )
    np.testing.assert_array_equal(program(x), 1)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_failure_leaves_the_device_in_use(ordered: bool) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no such value")

    x = jnp.ones(4, jnp.float32)
    program = jax.jit(lambda x: call(fail, x, x, memory="device", ordered=ordered))
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match="no such value"):
            jax.block_until_ready(program(x))
    np.testing.assert_array_equal(jax.jit(lambda x: call(np.negative, x, x))(x), -1)


def test_large_arrays_through_the_host() -> None:
    x = jnp.arange(2**22, dtype=jnp.float32)
    program = jax.jit(lambda x: call(lambda v: v[::-1], x, x * 2) + 1)
    for _ in range(3):
        np.testing.assert_array_equal(program(x), 2 * np.asarray(x)[::-1] + 1)
