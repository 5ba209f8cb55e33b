"""The manifest of exported programs: written, read, and refused where it is not as it should be."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

import hostcall_mlir
from hostcall_mlir.ir import custom_calls
from hostcall_mlir.program import files, manifests
from hostcall_mlir.program.manifests import Manifest
from hostcall_runtime._registry import DTYPES
from tests.support.errors import assert_says
from tests.support.exported.programs import call, change, error_of, make

TEXT = f"""
func.func public @main(%x: tensor<3xf32>, %v: tensor<2xi64>)
    -> (tensor<3xf32>, tensor<3xf32>, tensor<2xi64>, tensor<i32>) {{
  %0 = {call("triple", "(tensor<3xf32>) -> tensor<3xf32>", "%x")}
  %1:2 = {
    call(
        "positive", "(tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)", "%0", dynamic_results="0, 0"
    )
}
  %2 = stablehlo.add %v, %v : tensor<2xi64>
  return %0, %1#0, %2, %1#1 : tensor<3xf32>, tensor<3xf32>, tensor<2xi64>, tensor<i32>
}}
"""
PROGRAM = make(TEXT, variables={"v": np.arange(2)}, assigns=["v"], sizes=[(1, 0)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    PROGRAM.save(tmp_path)
    return tmp_path


def test_manifest_comes_back_as_it_was_written(folder: Path) -> None:
    read = files.read(folder)
    assert read.manifest.callbacks == PROGRAM.manifest.callbacks
    assert read.manifest.inputs == PROGRAM.manifest.inputs
    assert read.manifest.outputs == PROGRAM.manifest.outputs
    assert read.manifest.made_by == PROGRAM.manifest.made_by
    assert read.artifact == PROGRAM.artifact
    assert "stablehlo.custom_call @hostcall" in read.text
    np.testing.assert_array_equal(read.variables["v"], PROGRAM.variables["v"])


def test_manifest_says_all_that_its_documentation_lists(folder: Path) -> None:
    fields = json.loads((folder / "manifest.json").read_text())
    page = (Path(__file__).parents[2] / "docs" / "exporting.md").read_text()
    described = page[page.index("## The files") :]
    for name in {*fields, *fields["callbacks"][0], *fields["outputs"][-1]}:
        assert f"`{name}`" in described, name
    assert next(iter(fields)) == "format"


def test_manifest_that_was_changed_is_told_by_its_digest(folder: Path) -> None:
    path = folder / "manifest.json"
    digest = files.read(folder).manifest.sha256
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields))  # another layout is no other manifest
    assert files.read(folder).manifest.sha256 == digest == fields["sha256"]
    fields["callbacks"][0]["timeout"] = 9.0
    path.write_text(json.dumps(fields))
    text = error_of(folder)
    assert "manifest.json is not the file that was exported: the SHA-256 of its" in text
    assert f"its field sha256 is {digest}" in text
    change(folder, lambda m: None)
    assert files.read(folder).manifest.sha256 != digest
    change(folder, lambda m: {name: m[name] for name in m if name != "made_by"})
    assert "missing required field `made_by`" in error_of(folder)


def test_digest_of_the_manifest_stands_for_all_that_a_program_does(tmp_path: Path) -> None:
    def digest(program: files.Program, name: str) -> str:
        program.save(tmp_path / name)
        return files.read(tmp_path / name).manifest.sha256

    first = digest(PROGRAM, "one")
    assert digest(PROGRAM, "two") == first
    other = files.Program(PROGRAM.artifact, "", PROGRAM.manifest, {"v": np.array([0, 2])})
    assert digest(other, "three") != first


def test_program_that_is_saved_twice_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        PROGRAM.save(tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("name", "spec_of"),
    [("v", lambda: np.arange(3)), ("v", lambda: np.zeros(2)), ("w", lambda: np.arange(2))],
)
def test_variables_that_are_not_those_of_the_program_are_not_saved(
    name: str, spec_of: Callable[[], Any], tmp_path: Path
) -> None:
    wrong = files.Program(PROGRAM.artifact, "", PROGRAM.manifest, {name: spec_of()})
    with pytest.raises(hostcall_mlir.ProgramError, match="predict cannot be saved"):
        wrong.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_newer_format_says_what_to_install(folder: Path) -> None:
    change(folder, lambda m: m.update(format=2, something="new"))
    assert_says(error_of(folder), "is of format 2", "reads format 1: install a newer hostcall")


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda m: m.update(format=0), "export the program once more"),
        (lambda m: m.update(format="1"), "does not say which format it has"),
        (lambda m: m.update(format=True), "does not say which format it has"),
        (lambda m: [], "does not say which format it has"),
        (lambda m: m.update(colour="red"), "unknown field `colour`"),
        (lambda m: m["callbacks"][0].update(x=1), r"unknown field `x` - at `\$.callbacks\[0\]`"),
        (lambda m: m["inputs"][0]["spec"].update(shape=[-1]), ">= 0"),
        (lambda m: m["inputs"][0].update(kind="thing"), "Invalid enum value 'thing'"),
        (lambda m: m.pop("results"), "missing required field `results`"),
        (lambda m: m["outputs"][0].pop("spec"), "missing required field `spec`"),
    ],
)
def test_manifest_of_another_form_is_refused(
    edit: Callable[[Any], Any], text: str, folder: Path
) -> None:
    change(folder, lambda m: value if isinstance(value := edit(m), list) else None)
    assert re.search(text, error_of(folder))


def replaced(which: int, **fields: Any) -> Callable[[Any], None]:
    return lambda m: m["callbacks"][which].update(fields)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            lambda m: m["inputs"][0]["spec"].update(dtype="float31"),
            "'float31', which is not one of",
        ),
        (lambda m: m["inputs"][0]["spec"].update(dtype="object"), "'object', which is not one of"),
        (lambda m: m["inputs"][0]["spec"].update(bounded=[0]), "which only results can be"),
        (lambda m: m["outputs"][0]["spec"].update(bounded=[1]), "bounded dimensions [1]"),
        (lambda m: m["outputs"][1]["spec"].update(bounded=[]), "one size for each bounded"),
        (lambda m: m["outputs"].pop(), "one size for each bounded"),
        (lambda m: m["outputs"][3].update(dim=1), "one size for each bounded"),
        (lambda m: m["outputs"][3]["spec"].update(dtype="int64"), "int32 without dimensions"),
        (lambda m: m["outputs"][2].update(name="w"), "the new value of no variable"),
        (lambda m: m["inputs"].reverse(), "have to come in this order"),
        (lambda m: m["outputs"].reverse(), "have to come in this order"),
        (lambda m: m["inputs"].append(m["inputs"][1]), "variable 'v' is there 2 times"),
        (lambda m: m.update(variables=None), "and no file that holds them"),
        (lambda m: m.update(arguments={"tuple": []}), "arguments: the leaves are []"),
        (lambda m: m.update(arguments={"list": [0]}), "arguments: has to be a tuple"),
        (lambda m: m.update(results={"tuple": [0, 0]}), "results: the leaves are [0, 0]"),
        (
            lambda m: m.update(results={"set": [0, 1]}),
            "results: {'set': [0, 1]} is not a structure",
        ),
        (replaced(0, name="no name"), "a program cannot have such a name in it"),
        (replaced(0, function="os.system"), "is not of the form module:qualname"),
        (replaced(0, timeout=-1.0), "a timeout of -1.0 seconds"),
        (replaced(0, calls=[]), "is called nowhere"),
        (replaced(0, keywords=["no name"]), "the keyword 'no name' is not a name of Python's"),
        (replaced(0, keywords=["a"], fixed={"a": "1"}), "keyword 'a' is there 2 times"),
        (replaced(0, keywords=["a", "b"]), "has more keywords than arguments"),
        (replaced(0, fixed={"a": "f(x)"}), "a=f(x) is not a literal of Python's"),
        (replaced(0, arguments={"tuple": [0, 1]}), "arguments: the leaves are [0, 1]"),
        (replaced(0, results={"tuple": []}), "results: the leaves are []"),
        (lambda m: m["callbacks"].append(m["callbacks"][0]), "is there 2 times"),
        (lambda m: m["program"].update(sha256="abc"), "'abc' is not the SHA-256"),
    ],
)
def test_manifest_that_contradicts_itself_is_refused(
    edit: Callable[[Any], Any], text: str, folder: Path
) -> None:
    change(folder, lambda m: edit(m) and None)
    assert_says(error_of(folder), "manifest.json contradicts itself", text)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda m: m["inputs"][0]["spec"].update(shape=[4]), "listed as float32[4]"),
        (lambda m: m["inputs"].insert(0, m["inputs"][0]), "@main has 2 inputs, and 3 are listed"),
        (
            lambda m: m["outputs"][0]["spec"].update(dtype="int32"),
            "output 0 of @main is tensor<3xf3",
        ),
        (replaced(0, name="other"), "functions:triple', which is not listed"),
        (lambda m: m["callbacks"][0]["calls"].append(m["callbacks"][0]["calls"][0]), "1 time, "),
        (lambda m: m["callbacks"][0]["calls"][0].update(effect="ordered"), "(float32[3]), pure"),
        (
            lambda m: m["callbacks"][1]["calls"][0]["results"][0].update(bounded=[]),
            "(float32[<=3]), pure, and listed as (float32[3]) -> (float32[3]), pure",
        ),
    ],
)
def test_manifest_that_contradicts_the_program_is_refused(
    edit: Callable[[Any], Any], text: str, folder: Path
) -> None:
    def both(fields: Any) -> None:
        edit(fields)
        count = sum(entry["kind"] == "argument" for entry in fields["inputs"])
        fields["arguments"] = {"tuple": [*range(count)]}

    change(folder, both)
    assert_says(error_of(folder), "do not belong together", text)


def test_random_damage_of_the_manifest_is_an_error_or_none(folder: Path) -> None:
    data = (folder / "manifest.json").read_bytes()
    random = Random(5)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(random.choice([1, 1, 3])):
            damaged[random.randrange(len(data))] = random.randrange(256)
        try:
            manifest = manifests.decode(bytes(damaged), "hostcall")
        except hostcall_mlir.ProgramError:
            continue
        [*manifests.problems_of(manifest)]


def test_manifest_that_is_nested_too_deep_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000 + "]" * 100_000)
    assert "damaged, or not JSON" in error_of(folder)


def test_dtypes_are_those_of_the_runtime() -> None:
    assert {np.dtype(dtype).name for _, dtype, _ in DTYPES} == {*custom_calls.ELEMENTS}
    assert all(manifests.dtype_of(name).name == name for name in custom_calls.ELEMENTS)


def test_manifest_without_callbacks_or_variables_does() -> None:
    manifest = Manifest({}, "f", (), {"tuple": []}, (), None)
    assert [*manifests.problems_of(manifest, saved=False)] == []
    read = manifests.decode(manifests.encode(manifest), "hostcall")
    assert msgspec.structs.replace(read, sha256="") == manifest
