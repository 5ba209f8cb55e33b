"""Program.save: nothing is lost that lies where a program is saved."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hostcall_mlir
from tests.exported.test_load_variables import COUNTER, VARIABLES
from tests.support.exported.programs import F3, make, with_call


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["manifest.json", "program.mlir", "variables.npz"])
def test_files_of_somebody_else_are_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"format": 3, "name": "a web page"}')
    before = files_in(tmp_path)
    with pytest.raises(FileExistsError, match=f"{name} would be replaced, and no program") as error:
        make(with_call("triple")).save(tmp_path)
    assert "Save into another directory, or remove it" in str(error.value)
    assert files_in(tmp_path) == before


def test_program_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(with_call("triple")).save(tmp_path)
    before = files_in(tmp_path)
    write = Path.write_bytes

    def full(path: Path, data: Any) -> int:
        if path.name == "manifest.json":
            raise OSError(28, os.strerror(28), str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        make(COUNTER, variables=VARIABLES, assigns=["v"]).save(tmp_path)
    assert files_in(tmp_path) == before
    program = hostcall_mlir.load(tmp_path)
    np.testing.assert_array_equal(program.call(F3), 3 * F3)


def test_program_replaces_one_with_more_files(tmp_path: Path) -> None:
    make(COUNTER, variables=VARIABLES, assigns=["v"]).save(tmp_path)
    assert "variables.npz" in files_in(tmp_path)
    make(with_call("triple")).save(tmp_path)
    assert {*files_in(tmp_path)} == {"manifest.json", "program.mlir", "program.stablehlo"}


def test_program_has_a_short_text() -> None:
    assert repr(make(with_call("triple"))) == "<Program predict(x0: float32[3])>"
