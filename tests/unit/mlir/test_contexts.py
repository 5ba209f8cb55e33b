"""MLIR contexts, of a megabyte each, go with what they were made for."""

import gc
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf
from jaxlib.mlir import ir

import hostcall
import hostcall.jax
import hostcall_mlir
from hostcall_mlir import opt
from hostcall_mlir.program import files
from hostcall_runtime import _permissions
from tests.support.exported import functions
from tests.support.exported.programs import F3, FUNCTIONS, TRIPLE, load, make

BROKEN = "func.func @main() {"
SPEC = tf.TensorSpec([3], tf.float32)
USES = 4


def transform(folder: Path) -> None:
    hostcall_mlir.transform(TRIPLE, "builtin.module(hostcall-dce)")
    with pytest.raises(hostcall_mlir.PassError):
        hostcall_mlir.transform(BROKEN, "builtin.module(hostcall-dce)")


def run_the_command(folder: Path) -> None:
    for text in (TRIPLE, BROKEN):
        file = folder / "program.mlir"
        file.write_text(text)
        with pytest.raises(SystemExit):
            opt.main([str(file), "--pass-pipeline=hostcall-dce"], standalone_mode=False)


def load_programs(folder: Path) -> None:
    hostcall_mlir.allow(FUNCTIONS)
    for partitioned in (False, True):
        program = load(make(TRIPLE), folder, partitioned=partitioned)
        np.testing.assert_array_equal(program.call(F3), 3 * F3)


def read_what_is_damaged(folder: Path) -> None:
    artifact = make(TRIPLE).artifact
    with pytest.raises(ValueError, match="artifact"):
        files._parse(artifact[: len(artifact) // 2])


def export_from_tensorflow(folder: Path) -> None:
    hostcall.export(lambda x: tf.numpy_function(functions.triple, [x], SPEC), SPEC)


def compile_pure_calls_of_jax(folder: Path) -> None:
    def call(x: Any) -> Any:
        return hostcall.jax.call(lambda v: 2 * v, x, x, pure=True)

    np.testing.assert_array_equal(jax.jit(call)(F3), 2 * F3)
    np.testing.assert_array_equal(jax.jit(lambda x: call(x) + call(2 * x))(F3), 6 * F3)


USERS: list[Callable[[Path], None]] = [
    transform,
    run_the_command,
    load_programs,
    read_what_is_damaged,
    export_from_tensorflow,
    compile_pure_calls_of_jax,
]


@pytest.mark.parametrize("use", USERS, ids=lambda use: use.__name__)
def test_no_context_is_left(use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setattr(_permissions, "_allowed", {})
    _permissions.allow("tests.support.exported")
    use(tmp_path)
    before = living_contexts()
    for _ in range(USES):
        use(tmp_path)
    # A single context may be held for longer; a leak holds one of each use.
    assert living_contexts() < before + USES


def living_contexts() -> int:
    jax.clear_caches()
    gc.collect()
    return int(ir.Context._get_live_count())
