"""Checks of exported programs for a process that never imports TensorFlow.

A directory has a program in `program`, and in `expected.npz` its arguments (`in_0`, ...), its
results (`out_0`, ...) and what its effects were (`seen`). If it raises an error for other
arguments (`bad_0`, ...), there are what that says (`says`), and the effects before (`notes`).
"""

import itertools
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hostcall_mlir
from hostcall_mlir.program import files
from tests.support.exported import user_code


def numbered(arrays: dict[str, np.ndarray], prefix: str) -> list[np.ndarray]:
    names = (f"{prefix}_{number}" for number in itertools.count())
    return [arrays[name] for name in itertools.takewhile(arrays.__contains__, names)]


def check(directory: str, partitioned: bool) -> None:
    loaded, arrays = _loaded(Path(directory), partitioned)
    for _ in range(2):
        user_code.seen.clear()
        returned = loaded.call(*numbered(arrays, "in"))
        expected = numbered(arrays, "out")
        for value, wanted in zip(jax.tree.leaves(returned), expected, strict=True):
            assert value.dtype == wanted.dtype, (value.dtype, wanted.dtype)
            np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-6)
        np.testing.assert_allclose(user_code.seen, arrays["seen"], rtol=1e-6)
    assert not {"tensorflow", "hostcall"} & sys.modules.keys()


def check_failing(directory: str, partitioned: bool) -> None:
    loaded, arrays = _loaded(Path(directory), partitioned)
    for prefix in ("in", "bad", "in", "bad", "in"):
        user_code.seen.clear()
        arguments = numbered(arrays, prefix)
        if prefix == "in":
            returned = jax.tree.leaves(loaded.call(*arguments))
            for value, wanted in zip(returned, numbered(arrays, "out"), strict=True):
                np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-6)
            continue
        with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: ") as raised:
            loaded.call(*arguments)
        for part in arrays["says"].tolist():
            assert part in str(raised.value)
        assert raised.value.__cause__ is None
        assert len(user_code.seen) == arrays["notes"], user_code.seen


def _loaded(folder: Path, partitioned: bool) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the program of a directory, and the arrays beside it."""
    hostcall_mlir.allow(user_code.__name__, "numpy:copy")
    program = folder / "program"
    # The tests have made it, so that no process needs to try whether it can be read.
    files.trust((program / "program.stablehlo").read_bytes())
    arrays = dict(np.load(folder / "expected.npz"))
    return hostcall_mlir.load(program, partitioned=partitioned), arrays
