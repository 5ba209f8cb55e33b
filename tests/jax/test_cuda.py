"""hostcall.jax.call in programs for NVIDIA GPUs, as far as that can be seen without one."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hostcall.jax
from tests.support.jax.helpers import X, struct

call = hostcall.jax.call


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
