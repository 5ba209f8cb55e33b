"""A call sees the settings of who started its program, on whatever thread it runs."""

import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.jax.helpers import X, run_python

LARGE = jnp.ones((600, 600))
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="nothing")


def seen() -> Any:
    """Return the settings that this thread sees: of JAX, of NumPy and of the user."""
    return [
        jnp.ones(1, jnp.float64 if jax.config.jax_enable_x64 else jnp.float32).dtype.name,
        jax.config.jax_default_matmul_precision,
        str(jax.config.jax_default_device),
        jax.config.jax_debug_nans,
        jax.config.jax_log_compiles,
        np.geterr()["divide"],
        VARIABLE.get(),
    ]


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Makes other settings for a block."""
    token = VARIABLE.set("something")
    with (
        jax.enable_x64(True),
        jax.default_matmul_precision("float32"),
        jax.default_device(jax.devices()[0]),
        jax.debug_nans(True),
        jax.log_compiles(True),
        np.errstate(divide="ignore"),
    ):
        yield
    VARIABLE.reset(token)


class Looking:
    """A function that notes what it sees and where it runs."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.threads: set[int] = set()

    def __call__(self, x: Any) -> Any:
        self.seen.append(seen())
        self.threads.add(threading.get_ident())
        return x


def concurrent_calls(look: Any) -> Callable[..., Any]:
    how: Any = {"pure": True, "concurrent": True}
    return lambda x, w: [hostcall.jax.call(look, x, x + i, **how) for i in range(4)]


def in_a_large_program(look: Any) -> Callable[..., Any]:
    return lambda x, w: [hostcall.jax.call(look, w, w + i) for i in range(4)]


def on_an_executor(look: Any) -> Callable[..., Any]:
    pool = concurrent.futures.ThreadPoolExecutor(2)
    return lambda x, w: [hostcall.jax.call(look, x, x + i, executor=pool) for i in range(4)]


def within_a_time(look: Any) -> Callable[..., Any]:
    call = hostcall.callback(look, result=lambda x: x, timeout=60.0)
    return lambda x, w: [call(x + i) for i in range(4)]


def not_waited_for(look: Any) -> Callable[..., Any]:
    def program(x: Any, w: Any) -> Any:
        for i in range(4):
            hostcall.jax.call(lambda v: look(v) and None, None, x[0] + i, wait=False)
        return x

    return program


@pytest.mark.parametrize(
    "make", [concurrent_calls, in_a_large_program, on_an_executor, within_a_time, not_waited_for]
)
def test_calls_see_what_the_starter_sees(make: Any) -> None:
    look = Looking()
    usual = seen()
    program = jax.jit(make(look))
    for around in (settings, contextlib.nullcontext, settings):
        look.seen.clear()
        with around():
            expected = seen()
            for _ in range(3):
                jax.block_until_ready(program(X, LARGE))
            hostcall.barrier()
        assert look.seen == [expected] * 12
    # XLA may run it on one thread, and on a GPU it waits for each call.
    if make is not in_a_large_program and jax.default_backend() == "cpu":
        assert look.threads - {threading.get_ident()}
    assert seen() == usual


def test_parts_of_jax_that_are_imported_later_change_nothing() -> None:
    """Pallas, and what imports it, adds states to those that a trace depends on."""
    script = """
import concurrent.futures, jax, jax.numpy as jnp, numpy as np, hostcall.jax
before = jax._src.config.trace_context()
import jax.experimental.pallas
assert len(jax._src.config.trace_context()) > len(before), "this test tests nothing"
pool = concurrent.futures.ThreadPoolExecutor(1)
name = lambda x: np.array(jnp.ones(1, float).dtype.itemsize, np.int32)
result = jax.ShapeDtypeStruct((), "int32")
size = jax.jit(lambda x: hostcall.jax.call(name, result, x, executor=pool))
with jax.enable_x64(True):
    print(size(jnp.float32(1)))
print(size(jnp.float32(2)))
"""
    assert run_python(script).split() == ["8", "4"]
