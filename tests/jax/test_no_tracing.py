"""hostcall.jax under `jax.no_tracing`: what was traced runs, and nothing else is traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.jax.helpers import X, assert_same

call = hostcall.jax.call

PROGRAMS: dict[str, Any] = {
    "pure": lambda x: call(np.sin, x, x, pure=True),
    "once": lambda x: call(np.sin, x, x),
    "ordered": lambda x: call(np.sin, x, x, ordered=True),
    "inner": lambda x: jax.jit(lambda x: call(np.sin, x, x, pure=True))(x) + 0,
    "loop": lambda x: jax.lax.fori_loop(0, 2, lambda _, x: call(np.sin, x, x, pure=True), x),
    "batch": jax.vmap(lambda x: call(np.sin, x, x, pure=True, vmap_method="expand_dims")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_compiled_runs(name: str) -> None:
    program = jax.jit(PROGRAMS[name])
    with jax.no_tracing(True), pytest.raises(RuntimeError, match="'no_tracing' is set"):
        program(X)
    expected = program(X)
    with jax.no_tracing(True):
        assert_same(program(X), expected)
        with pytest.raises(RuntimeError, match="'no_tracing' is set"):
            program(jnp.zeros([2]))
        assert_same(program(X), expected)
    assert program(jnp.zeros([2])).shape == (2,)


def test_eager_calls() -> None:
    def sine(x: Any) -> Any:
        return call(np.sin, x, x, pure=True)

    expected = sine(X)
    with jax.no_tracing(True):
        assert_same(sine(X), expected)


@pytest.mark.usefixtures("enabled_again")
def test_other_programs_do_as_without_hostcall() -> None:
    logging = jax.jit(lambda x: [jax.debug.callback(len, x), x][1])
    logging(X)
    plain = jax.jit(jnp.sin)
    expected = plain(X)
    for is_enabled in (True, False):
        hostcall.enable() if is_enabled else hostcall.disable()
        with jax.no_tracing(True):
            assert_same(plain(X), expected)
            with pytest.raises(RuntimeError, match=r"re-tracing function <lambda> at .*:"):
                logging(X)  # JAX takes it for one that is to be traced
            with pytest.raises(RuntimeError, match=r"re-tracing function cos at .*:"):
                jax.jit(jnp.cos)(X)
