"""Exported programs whose files are missing or damaged: errors, never a crash."""

import json
import os
import pickle
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hostcall_mlir
from hostcall_mlir.program import files
from tests.support.exported.damaged import PROGRAM, error_of, save, sign


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path)


def test_what_is_no_program_says_so(tmp_path: Path) -> None:
    assert "the directory does not exist" in error_of(tmp_path / "nothing")
    assert "there is no manifest.json" in error_of(tmp_path)
    (tmp_path / "file").write_text("text")
    assert "the directory is a file" in error_of(tmp_path / "file")


@pytest.mark.parametrize("name", ["manifest.json", "program.stablehlo", "variables.npz"])
def test_file_that_is_missing_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    assert f"there is no {name}" in error_of(folder)
    (folder / name).mkdir()
    assert f"{name} is no file" in error_of(folder)


def test_text_for_people_is_not_needed(folder: Path) -> None:
    (folder / "program.mlir").unlink()
    assert hostcall_mlir.load(folder).variables["v"].item() == 3


@pytest.mark.parametrize("name", ["program.stablehlo", "variables.npz"])
def test_file_that_is_cut_short_or_changed_is_named(name: str, folder: Path) -> None:
    data = (folder / name).read_bytes()
    for end in range(0, len(data), len(data) // 20):
        (folder / name).write_bytes(data[:end])
        assert f"{name} is not the file that was exported" in error_of(folder)
    for place in range(0, len(data), len(data) // 20):
        changed = bytearray(data)
        changed[place] ^= 0x10
        (folder / name).write_bytes(changed)
        assert f"{name} is not the file that was exported" in error_of(folder)


def test_manifest_that_is_cut_short_is_an_error(folder: Path) -> None:
    data = (folder / "manifest.json").read_bytes()
    for end in range(0, len(data) - 2, len(data) // 40):
        (folder / "manifest.json").write_bytes(data[:end])
        assert "manifest.json is damaged, or no JSON" in error_of(folder)


@pytest.mark.parametrize(
    "path",
    ["../program.stablehlo", "/etc/passwd", "sub/program", "..", ".", "", "a\\b", "c:x", "a\0"],
)
def test_path_that_leads_out_of_the_directory_is_refused(path: str, folder: Path) -> None:
    fields = json.loads((folder / "manifest.json").read_text())
    fields["program"]["path"] = path
    (folder / "manifest.json").write_text(json.dumps(fields))
    assert "is not the plain name of a file beside manifest.json" in error_of(folder)


@pytest.mark.parametrize("name", ["manifest.json", "program.stablehlo", "variables.npz"])
def test_link_that_leads_out_of_the_directory_is_refused(name: str, folder: Path) -> None:
    (folder / name).rename(folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)
    assert f"{name} is a link that leads out of the directory" in error_of(folder)


def test_link_within_the_directory_and_to_it_do(folder: Path) -> None:
    (folder / "program.stablehlo").rename(folder / "moved")
    (folder / "program.stablehlo").symlink_to("moved")
    (folder.parent / "link").symlink_to(folder)
    assert hostcall_mlir.load(folder.parent / "link").variables["v"].item() == 3


def test_what_is_no_file_is_not_read(folder: Path) -> None:
    path = folder / "program.stablehlo"
    path.unlink()
    os.mkfifo(path)
    assert "program.stablehlo is no file" in error_of(folder)
    path.unlink()
    path.symlink_to(path)
    assert "program.stablehlo cannot be read" in error_of(folder)


# Places and bytes with which MLIR's reader does not say what is wrong, but aborts or reads where no
# memory is.
_LETHAL = [{655: 150}, {624: 168}, {47: 90}, {718: 11}, {727: 5}]


@pytest.mark.parametrize("changes", [*_LETHAL, {}], ids=str)
def test_bytes_that_are_made_up_are_an_error_and_no_crash(
    changes: dict[int, int], folder: Path
) -> None:
    data = bytearray(PROGRAM.artifact if changes else b"no artifact")
    for place, byte in changes.items():
        data[place] = byte
    (folder / "program.stablehlo").write_bytes(data)
    sign(folder, "program.stablehlo")
    text = error_of(folder)
    assert "the program cannot be read" in text
    assert "is for a newer jaxlib than the one that is installed" in text


def test_artifact_is_tried_in_a_process_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_readable", set())
    assert hostcall_mlir.load(folder).variables["v"].item() == 3
    # What could be read once is not tried again.
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert hostcall_mlir.load(folder).variables["v"].item() == 3


@pytest.mark.parametrize("executable", ["/nothing/here", ""])
def test_where_no_process_can_be_started_the_artifact_is_read_all_the_same(
    executable: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_readable", set())
    monkeypatch.setattr(sys, "executable", executable)
    assert hostcall_mlir.load(folder).variables["v"].item() == 3
    (folder / "program.stablehlo").write_bytes(b"no artifact")
    sign(folder, "program.stablehlo")
    assert "the program cannot be read" in error_of(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"v": np.zeros(2, np.int64)},
        {"v": np.float32(3)},
        {"w": np.int64(3)},
        {"v": np.int64(3), "w": np.int64(3)},
        {},
    ],
)
def test_variables_of_another_program_are_refused(values: dict[str, Any], folder: Path) -> None:
    np.savez(folder / "variables.npz", **values)
    sign(folder, "variables.npz")
    assert "the variables are not those of the program" in error_of(folder)


def test_variables_that_are_objects_are_not_unpickled(folder: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os._exit, (7,)

    np.savez(folder / "variables.npz", v=np.array([Evil()], object))
    sign(folder, "variables.npz")
    assert "the file of the variables is no .npz of arrays" in error_of(folder)
    (folder / "variables.npz").write_bytes(pickle.dumps(Evil()))
    sign(folder, "variables.npz")
    assert "the file of the variables is no .npz of arrays" in error_of(folder)


def test_random_damage_of_the_variables_is_an_error_or_none(folder: Path) -> None:
    data = (folder / "variables.npz").read_bytes()
    manifest = files.read(folder).manifest
    random = Random(3)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[random.randrange(len(data))] = random.randrange(256)
        try:
            arrays = files._read_arrays(bytes(damaged), manifest)
        except hostcall_mlir.ProgramError:
            continue
        assert isinstance(files._problems_of_variables(arrays, manifest), list)
