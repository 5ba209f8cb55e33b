"""Helpers that the tests of hostcall.jax share."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import dispatch

X = jnp.arange(4, dtype=jnp.float32)


def eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


each_mode = pytest.mark.parametrize("mode", [eagerly, jax.jit])


def struct(shape: Any, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def noting_shapes(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The function, and the shapes of the arguments of each of its calls."""
    shapes: list[Any] = []
    return lambda *args: (shapes.append((*map(np.shape, args),)), function(*args))[1], shapes


def assert_same(actual: Any, expected: Any) -> None:
    """Both are the same structure of bitwise equal arrays."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes(), f"{one} != {other}"


def plus_one(v: Any) -> Any:
    return np.asarray(v) + np.float32(1)


def failure(function: Callable[..., Any], *args: Any) -> jax.errors.JaxRuntimeError:
    """The error of JAX's that a call raises, at the latest when its results are waited for."""
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(function(*args))
    if jax.default_backend() != "cpu":
        dispatch.runtime_tokens.clear()  # where JAX keeps the error for the next ordered call
    return caught.value


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
