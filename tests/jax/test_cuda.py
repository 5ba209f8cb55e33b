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


@pytest.mark.parametrize("options", [{}, {"pure": True}, {"ordered": True}], ids=str)
def test_programs_are_those_for_cpus(options: Any) -> None:
    def program(x: Any) -> Any:
        return call(np.sin, x, x, **options) + call(np.cos, x, x, **options)

    text = text_of(program, "cuda")
    assert text.count("custom_call @hostcall(") == 2
    assert text == text_of(program, "cpu")


def test_loops_and_packed_dtypes() -> None:
    def iteration(_: int, x: Any) -> Any:
        small = call(lambda x: x.astype(ml_dtypes.int4), struct(x.shape, jnp.int4), x)
        return x + small.astype(x.dtype)

    def program(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, iteration, x)

    text = text_of(program, "cuda")
    assert "sub_byte_results = array<i64: 0, 21>" in text
    assert text == text_of(program, "cpu")


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_a_program_for_both(ordered: bool) -> None:
    def program(x: Any) -> Any:
        return call(np.sin, x, x, ordered=ordered)

    assert text_of(program, "cpu", "cuda").count("custom_call @hostcall(") == 1
