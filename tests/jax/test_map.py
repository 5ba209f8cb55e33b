"""`hostcall.map` and `retries=` in JAX programs."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support import executor_functions as functions
from tests.support.process_pools import two_processes as processes

pytestmark = pytest.mark.usefixtures("pools_end")

X = np.arange(14, dtype=np.float32).reshape(7, 2)


def test_a_batch_is_divided_among_processes() -> None:
    place = hostcall.map(functions.place_of_each, executor=processes)
    result = jax.ShapeDtypeStruct((7, 2), np.float32)

    @jax.jit
    def program(x: Any) -> Any:
        return hostcall.jax.call(lambda v: place(v).astype(np.float32), result, x, pure=True)

    np.testing.assert_array_equal(program(X)[:, 1], [3, 3, 3, 4, 4, 4, 4])


def test_the_gradient_is_mapped() -> None:
    slope = hostcall.callback(
        functions.slope_of_scaled_by, result=lambda inputs, results, upstream: inputs
    )
    by = hostcall.callback(
        functions.scaled_by, result=lambda x, w: x, grad=slope, stateful=False, executor=processes
    )
    mapped = hostcall.map(by, in_axes=(0, None))
    w = jnp.array([2.0, 3.0])
    of_x, of_w = jax.jit(jax.grad(lambda x, w: (mapped(x, w) * x).sum(), (0, 1)))(X, w)
    np.testing.assert_allclose(of_x, 2 * X * w, rtol=1e-6)
    np.testing.assert_allclose(of_w, (X * X).sum(0), rtol=1e-6)


def test_calls_whose_worker_died_are_made_again(tmp_path: Path) -> None:
    once = functools.partial(functions.ends_once, folder=str(tmp_path))

    @jax.jit
    def program(x: Any) -> Any:
        return hostcall.jax.call(once, x, x, pure=True, executor=processes, retries=1)

    np.testing.assert_array_equal(program(X), 2 * X)
    mapped = hostcall.map(once, executor=processes)
    double = hostcall.callback(mapped, result=lambda x: x, stateful=False, retries=9)
    np.testing.assert_array_equal(jax.jit(double)(X + 100), 2 * (X + 100))


def test_retries_are_for_pure_calls() -> None:
    for ordered in (False, True):
        with pytest.raises(ValueError, match=r"hostcall\.jax\.call of doubled: .* pure=True"):
            hostcall.jax.call(
                functions.doubled, X, X, ordered=ordered, executor=processes, retries=1
            )
    with pytest.raises(ValueError, match="must be a non-negative integer"):
        hostcall.jax.call(functions.doubled, X, X, pure=True, executor=processes, retries=-1)
