"""Exported programs that are missing, damaged or made up: errors, never a crash."""

import os
import pickle
import sys
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np
import pytest

import hostcall_mlir
from hostcall_mlir.program import files
from tests.support.exported.programs import TOKEN, artifact_of, call, change, error_of, load, make

LOOP = f"""
func.func @main(%a: tensor<3xf32>, %b: tensor<i64>) -> (tensor<3xf32>, tensor<i64>) {{
  %t = stablehlo.create_token : {TOKEN}
  %z = stablehlo.constant dense<0> : tensor<i64>
  %0:2 = {call("triple", f"(tensor<3xf32>, {TOKEN}) -> (tensor<3xf32>, {TOKEN})", "%a, %t")}
  %w:2 = stablehlo.while(%i = %b, %x = %0#0) : tensor<i64>, tensor<3xf32>
  cond {{
    %p = stablehlo.compare LT, %i, %z : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %y = func.call @f(%x) : (tensor<3xf32>) -> tensor<3xf32>
    stablehlo.return %i, %y : tensor<i64>, tensor<3xf32>
  }}
  return %w#1, %w#0 : tensor<3xf32>, tensor<i64>
}}
func.func private @f(%x: tensor<3xf32>) -> tensor<3xf32> {{
  %k = stablehlo.sine %x : tensor<3xf32>
  return %k : tensor<3xf32>
}}
"""
PROGRAM = make(LOOP, variables={"v": np.array(3)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    PROGRAM.save(tmp_path / "program")
    files.trust(PROGRAM.artifact)
    return tmp_path / "program"


def sign(folder: Path, name: str) -> None:
    """Has the manifest have the hash of a file as it is."""
    entry = "program" if name.endswith("stablehlo") else "variables"
    sha256 = files._sha256((folder / name).read_bytes())
    change(folder, lambda m: m[entry].update(sha256=sha256))


def test_what_is_no_program_says_so(tmp_path: Path) -> None:
    assert "the directory does not exist" in error_of(tmp_path / "nothing")
    assert "there is no manifest.json" in error_of(tmp_path)
    (tmp_path / "file").write_text("text")
    assert "the directory is a file" in error_of(tmp_path / "file")


@pytest.mark.parametrize("name", ["manifest.json", "program.stablehlo", "variables.npz"])
def test_file_that_is_missing_or_elsewhere_is_named(name: str, folder: Path) -> None:
    (folder / name).rename(folder.parent / name)
    assert f"there is no {name}" in error_of(folder)
    (folder / name).symlink_to(folder.parent / name)
    assert f"{name} is a link that leads out of the directory" in error_of(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    assert f"{name} is not a file" in error_of(folder)


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
        assert "manifest.json is damaged, or not JSON" in error_of(folder)


@pytest.mark.parametrize(
    "path",
    ["../program.stablehlo", "/etc/passwd", "sub/program", "..", ".", "", "a\\b", "c:x", "a\0"],
)
def test_path_that_leads_out_of_the_directory_is_refused(path: str, folder: Path) -> None:
    change(folder, lambda m: m["program"].update(path=path))
    assert "is not the plain name of a file beside manifest.json" in error_of(folder)


def test_link_within_the_directory_and_to_it_do(folder: Path) -> None:
    (folder / "program.stablehlo").rename(folder / "moved")
    (folder / "program.stablehlo").symlink_to("moved")
    (folder.parent / "link").symlink_to(folder)
    assert hostcall_mlir.load(folder.parent / "link").variables["v"].item() == 3


def test_what_is_no_file_is_not_read(folder: Path) -> None:
    path = folder / "program.stablehlo"
    path.unlink()
    os.mkfifo(path)
    assert "program.stablehlo is not a file" in error_of(folder)
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
    assert "the file of the variables is not an .npz of arrays" in error_of(folder)
    (folder / "variables.npz").write_bytes(pickle.dumps(Evil()))
    sign(folder, "variables.npz")
    assert "the file of the variables is not an .npz of arrays" in error_of(folder)


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
        files._problems_of_variables(arrays, manifest)


def main(op: str) -> str:
    """The text of a program of one op, from a number to a number."""
    signature = "func.func public @main(%x: tensor<f32>) -> tensor<f32>"
    return f"{signature} {{ %0 = {op} : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32> }}"


ELSEWHERE = "', which works only in the process that made it"
# What another program says in the place of the one that was exported, and what is said of it.
REFUSED = {
    "a callback of JAX": (
        main(
            'stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {backend_config = "", '
            "mhlo.backend_config = {index = 0 : ui64}}"
        ),
        f"'xla_ffi_python_cpu_callback{ELSEWHERE}",
    ),
    "an older callback of JAX": (
        main("stablehlo.custom_call @xla_python_cpu_callback(%x)"),
        f"'xla_python_cpu_callback{ELSEWHERE}",
    ),
    "native code": (
        main(
            "stablehlo.custom_call @hostcall_native(%x) {api_version = 4 : i32, "
            "backend_config = {code = 1 : i64}}"
        ),
        f"'hostcall_native{ELSEWHERE}",
    ),
    **{
        f"a call that is {what}": (
            main(f"stablehlo.custom_call @hostcall_{target}(%x) {{api_version = 4 : i32}}"),
            f"'hostcall_{target}{ELSEWHERE}",
        )
        for what, target in {"joint": "joint", "async": "start", "under way": "done"}.items()
    },
    "what waits for somebody": (
        f"""
func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
  %t = stablehlo.create_token : {TOKEN}
  %0:2 = "stablehlo.infeed"(%t) {{infeed_config = ""}} : ({TOKEN}) -> (tensor<f32>, {TOKEN})
  return %0#0 : tensor<f32>
}}
""",
        "an op 'stablehlo.infeed', which would wait for ever",
    ),
    "an older host call": (
        main('stablehlo.custom_call @hostcall(%x) {backend_config = ""}'),
        "hostcall-check: api_version has to be 4",
    ),
    "a host call that contradicts itself": (
        main(call("triple", "", "%x", sub_byte_operands="0, 21").removesuffix(" : ")),
        "sub_byte_operands is about operand 0, which has to be of i8 or ui8",
    ),
    "a number for a name": (
        LOOP.replace('"tests.support.exported.functions:triple"', "5 : i64"),
        "a host call has the callback id 5 in the place of a name",
    ),
    "another name": ("func.func public @other() { return }", "has no function @main"),
    "no body": ("func.func private @main(tensor<f32>) -> tensor<f32>", "has no function @main"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_program_that_cannot_run_here_is_refused(what: str, folder: Path) -> None:
    text, problem = REFUSED[what]
    artifact = artifact_of(text)
    files.trust(artifact)
    (folder / "program.stablehlo").write_bytes(artifact)
    sign(folder, "program.stablehlo")
    assert problem in error_of(folder)


@pytest.mark.parametrize(
    "attribute", ["tf.aliasing_output = 0 : i32", "jax.buffer_donor = true", "mhlo.x = 1"]
)
def test_program_cannot_reuse_the_memory_of_its_callers_arrays(
    attribute: str, tmp_path: Path
) -> None:
    text = f"""
module attributes {{mhlo.num_replicas = 2 : i32}} {{
  func.func public @main(%x: tensor<3xf32> {{{attribute}}}) -> tensor<3xf32> {{
    %0 = stablehlo.add %x, %x : tensor<3xf32>
    return %0 : tensor<3xf32>
  }}
}}
"""
    x = jax.numpy.ones(3)
    loaded = load(make(text), tmp_path)
    for _ in range(2):
        np.testing.assert_array_equal(loaded.call(x), [2, 2, 2])
    np.testing.assert_array_equal(x, [1, 1, 1])
