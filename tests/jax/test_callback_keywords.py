"""hostcall.callback in JAX: arguments by keyword, and the function's defaults."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall
from tests.support.jax.helpers import X, each_mode


def gradient(inputs: Any, results: Any, upstream: Any, sigma: float) -> Any:
    return upstream * np.float32(sigma)


@hostcall.callback(result=lambda x: x, grad=gradient, stateful=False)
def scaled(x: Any, sigma: float = 2.0, *, mode: str | None = "a") -> Any:
    assert isinstance(sigma, float)
    return x * np.float32(sigma) if mode == "a" else x


@each_mode
def test_what_is_no_array_reaches_the_function_as_it_is(mode: Any) -> None:
    result = mode(lambda x: scaled(x) + scaled(sigma=3.0, x=x) + scaled(x, mode=None))(X)
    np.testing.assert_allclose(result, 6.0 * X)


@each_mode
def test_an_array_by_keyword_is_an_input(mode: Any) -> None:
    @hostcall.callback(result=lambda x, y: y["a"])
    def add(x: Any, *, y: Any) -> Any:
        return x + y["a"]

    np.testing.assert_allclose(mode(lambda x: add(x, y={"a": x}))(X), 2.0 * X)


def test_gradients_and_batches() -> None:
    np.testing.assert_array_equal(jax.grad(lambda x: scaled(x, sigma=3.0).sum())(jnp.ones(2)), 3.0)
    batched = jax.vmap(lambda x: scaled(x, sigma=3.0))(jnp.ones((3, 2)))
    np.testing.assert_array_equal(batched, np.full((3, 2), 3.0))


def test_equal_values_are_compiled_once(caplog: pytest.LogCaptureFixture) -> None:
    x = jnp.ones(5)
    with jax.log_compiles(True):
        for sigma in (3.5, float("3.5"), 4.5):
            scaled(x, sigma=sigma)
    compiled = [r for r in caplog.messages if r.startswith("Finished XLA compilation")]
    assert len(compiled) == 2, compiled


def test_arguments_that_the_function_does_not_take() -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'sgima'"):
        scaled(X, sgima=3.0)  # type: ignore[call-overload]
