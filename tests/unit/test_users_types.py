"""What type checkers find in programs of users: mistakes, and nothing in what is right."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PROGRAM = """
    from typing import Any, assert_type

    import jax
    import numpy as np
    import tensorflow as tf

    import hostcall

    def total(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum(x, axis=-1))

    hostcall.declare(total, result=lambda x: x[:-1], route="partition", retries=2, pure=True)
    log = hostcall.callback(print, result=[], wait=False, when_full="drop_oldest")
    rows = hostcall.callback(total, result=[], vmap_method="map", kind="numpy", memory="host")
    names: list[str] = [row.callback for row in hostcall.stats()]
    declared: int = total(np.ones(3)).size

    @hostcall.callback(result=lambda x: tf.TensorSpec(x.shape[1:], x.dtype), stateful=False)
    def median(x: np.ndarray, axis: int = 0) -> np.ndarray:
        return np.asarray(np.median(x, axis=axis))

    @hostcall.callback(result=tf.TensorSpec([2], tf.float32), kind="eager")
    def scaled(x: tf.Tensor, *, by: float = 1.0) -> tf.Tensor:
        return x * by

    @hostcall.callback(result=tf.TensorSpec([2], tf.float32), out=True)
    def written(x: np.ndarray, *, out: np.ndarray) -> None:
        np.copyto(out, x)

    @hostcall.declare(result=lambda x: tf.TensorSpec(x.shape, x.dtype))
    def same(x: np.ndarray) -> np.ndarray:
        return x

    class Model:
        @hostcall.callback(result=[], wait=False)
        def log(self, step: np.ndarray, loss: np.ndarray) -> None:
            print(step, loss)

    x = tf.ones([2, 2])
    print(median(x).numpy(), median(x, 1), median(x, axis=1), median(x=np.ones(3), axis=0))
    print(scaled(x, by=2.0), scaled(2.0), written(x), written(x=x), Model().log(1, x), log(x, "a"))
    assert_type(same(np.ones(3)), np.ndarray)
    assert_type(scaled(x), tf.Tensor)
    assert_type(written, hostcall.Callback[..., Any])
    print(hostcall.callback(np.sort, result=[])(x), hostcall.callback(np.add, result=[])(x, 2.0))
    print(hostcall.map(median, chunks=2)(x, axis=1), hostcall.map(total)(np.ones(3)).size)

    def in_jax(x: jax.Array) -> jax.Array:
        return median(x)
"""
MISTAKES = """
    import numpy as np
    import tensorflow as tf

    import hostcall

    hostcall.declare(print, route="customcall")  # wrong
    hostcall.callback(print, result=[], when_full="drop_eldest")  # wrong
    hostcall.callback(print, result=[], vmap_method="sequental")  # wrong
    hostcall.callback(print, result=[], kind="nummpy")  # wrong
    hostcall.callback(print, result=[], memory="gpu")  # wrong
    hostcall.callback(print, result=[], timout=3.0)  # wrong
    hostcall.callback(print)  # wrong

    @hostcall.callback(result=lambda x, axis: tf.TensorSpec(x.shape[1:], x.dtype))
    def median(x: np.ndarray, axis: int = 0) -> np.ndarray:
        return np.asarray(np.median(x, axis=axis))

    @hostcall.declare(result=lambda x: tf.TensorSpec(x.shape, x.dtype))
    def same(x: np.ndarray) -> np.ndarray:
        return x

    class Model:
        @hostcall.callback(result=[], wait=False)
        def log(self, step: np.ndarray, loss: np.ndarray) -> None:
            print(step, loss)

    x = tf.ones([2, 2])
    median()  # wrong
    median(x, axs=1)  # wrong
    median(x, axis="0")  # wrong
    median(x, 1, 2)  # wrong, unseen by mypy
    same(x, 2)  # wrong
    Model().log(x)  # wrong
    Model.log(x)  # wrong
    hostcall.map(median, chunks=2)(x, axs=1)  # wrong
    hostcall.map(same, chunks=2)(x, 1)  # wrong
"""


def lines_found_by_mypy(folder: Path) -> list[tuple[str, int]]:
    said = output_of("mypy", f"--cache-dir={folder}/cache", *map(str, folder.glob("*.py")))
    errors = [line.split(":")[:2] for line in said.splitlines() if ": error:" in line]
    return [(Path(file).name, int(line)) for file, line in errors]


def lines_found_by_pyright(folder: Path) -> list[tuple[str, int]]:
    paths = [f"{ROOT}/plugin", f"{ROOT}/mlir"]  # it does not see editable installations
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": paths}))
    options = ["--project", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(output_of("pyright", *options))["generalDiagnostics"]
    errors = [one for one in found if one["severity"] == "error"]
    return [(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors]


def output_of(checker: str, *options: str) -> str:
    command = [sys.executable, "-m", checker, *options]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # on newer versions
    return subprocess.run(
        command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.full_run("a type checker reads all of hostcall")
@pytest.mark.parametrize(
    ("checker", "find", "beyond_it"),
    [
        ("mypy", lines_found_by_mypy, "unseen by mypy"),
        ("pyright", lines_found_by_pyright, "unseen by pyright"),
    ],
)
def test_a_type_checker_finds_mistakes_and_no_others(
    checker: str, find: Callable[[Path], list[tuple[str, int]]], beyond_it: str, tmp_path: Path
) -> None:
    pytest.importorskip(checker)
    mistakes = textwrap.dedent(MISTAKES)
    (tmp_path / "right.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "wrong.py").write_text(mistakes)
    wrong = [
        ("wrong.py", number)
        for number, line in enumerate(mistakes.splitlines(), 1)
        if "# wrong" in line and beyond_it not in line
    ]
    assert sorted({*find(tmp_path)}) == wrong
