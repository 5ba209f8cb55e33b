"""Compiled programs with calls in bytes: refused where the bytes are made."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

import hostcall.jax
from tests.support.jax.helpers import X, assert_same

CALLS: dict[str, Any] = {
    "pure": lambda x: hostcall.jax.call(np.sin, x, x, pure=True),
    "once": lambda x: hostcall.jax.call(np.sin, x, x),
    "ordered": lambda x: hostcall.jax.call(np.sin, x, x, ordered=True),
    "callback": lambda x: hostcall.callback(np.sin, result=lambda x: x)(x),
    "overlapping": lambda x: CALLS["pure"](x) + CALLS["pure"](2 * x),
}


@pytest.mark.parametrize("name", CALLS)
def test_programs_with_calls_are_refused(name: str) -> None:
    program = jax.jit(CALLS[name]).lower(X).compile()
    with pytest.raises(hostcall.NotExportableError) as raised:
        serialize_executable.serialize(program)
    said = str(raised.value)
    assert f"{Path(__file__).name}:" in said
    assert "hostcall.export(hostcall.jax.to_tf(program), spec)" in said
    assert program(X).shape == X.shape


def test_other_programs_are_as_before() -> None:
    program = jax.jit(jnp.sin).lower(X).compile()
    loaded = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(program), execution_devices=jax.devices()[:1]
    )
    assert_same(loaded(X), program(X))
