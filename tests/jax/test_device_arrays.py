"""`memory="device"` in JAX's programs on the CPU, which lend copies, and as far as it can be seen
without one, for GPUs.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hostcall.jax
from tests.support.jax.helpers import X, each_mode, struct

call = hostcall.jax.call
take = jax.dlpack.from_dlpack


def double(x: hostcall.DeviceArray) -> Any:
    assert isinstance(x, hostcall.DeviceArray)
    return jnp.multiply(take(x), 2)


def on_device(function: Any, *args: Any, **options: Any) -> Any:
    return call(function, lambda x: struct(x.shape, x.dtype), *args, memory="device", **options)


@each_mode
@pytest.mark.parametrize("options", [{}, {"pure": True}, {"ordered": True}], ids=str)
def test_calls(mode: Any, options: Any) -> None:
    np.testing.assert_array_equal(mode(lambda x: on_device(double, x, **options))(X), 2 * X)
    large = jnp.arange(2**16, dtype=jnp.float32)
    np.testing.assert_array_equal(
        mode(lambda x: on_device(double, x, **options) + 1)(large), 2 * large + 1
    )


@each_mode
def test_structures_and_scalars(mode: Any) -> None:
    def add(pair: Any) -> Any:
        return {"sum": take(pair[0]) + take(pair[1]), "n": np.int32(pair[0].dtype.itemsize)}

    result = {"sum": struct((), jnp.float32), "n": struct((), jnp.int32)}
    got = mode(lambda a: call(add, result, (a, a + 1), memory="device"))(jnp.float32(3))
    assert (got["sum"], got["n"]) == (7, 4)


def test_transformations() -> None:
    def program(x: Any) -> Any:
        method = {"pure": True, "vmap_method": "expand_dims"}
        return jax.lax.fori_loop(0, 3, lambda _, v: on_device(double, v, **method), x)

    np.testing.assert_array_equal(jax.jit(jax.vmap(program))(jnp.stack([X, -X])), [8 * X, -8 * X])


@each_mode
def test_callbacks_with_a_gradient(mode: Any) -> None:
    @hostcall.callback(result=lambda x, y: x, memory="device")
    def times(x: hostcall.DeviceArray, y: hostcall.DeviceArray) -> Any:
        return take(x) * take(y)

    square = hostcall.callback(
        lambda x: take(x) ** 2,
        result=lambda x: x,
        memory="device",
        grad=lambda inputs, results, upstream: times(inputs[0], 2 * upstream),
    )
    np.testing.assert_allclose(mode(jax.grad(lambda x: square(x).sum()))(X), 2 * X)


def test_what_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"memory": "gpu"}, "neither 'host'"),
        ({"memory": "device", "wait": False}, "with wait=False no program waits"),
        ({"memory": "device", "executor": lambda: None}, "executor="),
    ]
    for options, text in refused:
        with pytest.raises(ValueError, match=text):
            call(double, X, X, **options)


def text_of(function: Any, *platforms: str) -> str:
    """The program of a function of X, in which callbacks have no numbers."""
    lowered = jax.jit(function).trace(X).lower(lowering_platforms=platforms)
    return re.sub(r"callback = \d+", "callback = N", lowered.as_text())


def twice(**options: Any) -> Any:
    return lambda x: call(np.sin, x, x, **options) + call(np.cos, x, x, **options)


def narrowing(_: int, x: Any) -> Any:
    small = call(lambda x: x.astype(ml_dtypes.int4), struct(x.shape, jnp.int4), x)
    return x + small.astype(x.dtype)


# Each with its number of calls.
PROGRAMS: dict[str, tuple[Any, int]] = {
    "unordered": (twice(), 2),
    "pure": (twice(pure=True), 2),
    "ordered": (twice(ordered=True), 2),
    "a packed dtype in a loop": (lambda x: jax.lax.fori_loop(0, 3, narrowing, x), 1),
    "device arrays": (lambda x: call(np.sin, x, x, memory="device"), 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_those_for_cpus(name: str) -> None:
    program, calls = PROGRAMS[name]
    text = text_of(program, "cuda")
    assert text == text_of(program, "cpu")
    assert ("sub_byte_results = array<i64: 0, 21>" in text) == ("packed" in name)
    for either in (text, text_of(program, "cpu", "cuda")):
        assert either.count("custom_call @hostcall(") == calls
