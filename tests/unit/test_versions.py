"""hostcall._versions: every way in which a build may not fit what it meets."""

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import hostcall._build_info as _build_info
import pytest
import tensorflow as tf
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hostcall import _versions
from hostcall._versions import Versions, check, mismatches
from tests.support.helpers import assert_says
from tests.support.pages import ROOT, read

BUILT = Versions(tensorflow="2.21.0", ffi_api=(0, 2), python="3.11", cxx11_abi=1)


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        *((replace(BUILT, tensorflow=version), []) for version in ("2.21.3", "2.21.0-rc1")),
        *((replace(BUILT, ffi_api=version), []) for version in ((0, 2), (0, 3), (0, 1))),
        *(
            (replace(BUILT, tensorflow=found), [f"TensorFlow: built against 2.21.0, found {found}"])
            for found in ("2.22.0", "3.21.0")
        ),
        (replace(BUILT, ffi_api=(1, 2)), ["XLA FFI: built against 0.2, found 1.2"]),
        (replace(BUILT, ffi_api=(0, 0)), ["XLA FFI: built against 0.2, found 0.0"]),
        (replace(BUILT, ffi_api=None), ["XLA FFI: built against 0.2, found none"]),
        (replace(BUILT, python="3.12"), ["Python: built against 3.11, found 3.12"]),
        (replace(BUILT, cxx11_abi=0), ["C++11 ABI flag: built against 1, found 0"]),
    ],
)
def test_each_mismatch_is_named(found: Versions, lines: list[str]) -> None:
    assert mismatches(BUILT, found) == lines


def test_all_mismatches_come_in_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    built = {"TENSORFLOW": "1.15.0", "FFI_API": (99, 0), "PYTHON": "3.1"}
    for name, version in built.items():
        monkeypatch.setattr(_build_info, f"{name}_VERSION", version)
    monkeypatch.setattr(_build_info, "CXX11_ABI_FLAG", 7)
    with pytest.raises(ImportError) as caught:
        check()
    assert_says(
        caught.value,
        f"TensorFlow: built against 1.15.0, found {tf.__version__}",
        "XLA FFI: built against 99.0, found 0.",
        f"Python: built against 3.1, found 3.{sys.version_info.minor}",
        "C++11 ABI flag: built against 7, found 1",
        "pip install --force-reinstall --no-cache-dir 'hostcall[cpu]'",
    )
    assert caught.value.name == "hostcall"


@pytest.mark.parametrize("version", ["2.22.0", "3.0.0", "2.21.0-dev20260101"])
def test_an_untested_version_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(tf, "__version__", version)
    monkeypatch.setattr(_build_info, "TENSORFLOW_VERSION", version)  # as if built from source
    monkeypatch.setattr(_versions, "choose", lambda version: None)
    with pytest.warns(RuntimeWarning, match=f"2.19 to 2.21, and this is {version}") as caught:
        check()
    assert "tensorflow-cpu==2.21.*" in str(caught[0].message)


@pytest.mark.parametrize("version", ["2.18.1", "1.15.0"])
def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(tf, "__version__", version)
    with pytest.raises(ImportError, match=f"TensorFlow 2.19 or later, and this is {version}"):
        check()


@pytest.mark.parametrize("version", [*(f"{v}.1" for v in _versions.TESTED), "2.21.0-rc1"])
def test_nothing_is_said_of_versions_that_were_tested(version: str) -> None:
    assert _versions.untested(version) is None


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [("2.19.1", False), ("2.20.0-rc0", True), ("2.20.0", True), ("2.21.0", True)],
)
def test_what_came_with_a_version(version: str, is_newer: bool) -> None:
    assert _versions.runs_on_the_caller(version) == is_newer
    assert _versions.stablehlo(version) == ("1.13.0" if is_newer else "1.9.0")


def test_pyproject_and_the_page_of_versions_name_those_that_were_tested() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    major, minor = map(int, _versions.TESTED[-1].split("."))
    wanted = SpecifierSet(f">={_versions.TESTED[0]},<{major}.{minor + 1}")
    extras = {name: list(map(Requirement, extras[name])) for name in ("cpu", "gpu")}
    assert [line.name for line in extras["cpu"]] == ["tensorflow-cpu", "tensorflow"]
    assert [(line.name, line.extras) for line in extras["gpu"]] == [("tensorflow", {"and-cuda"})]
    assert {line.specifier for lines in extras.values() for line in lines} == {wanted}
    _, _, section = read("docs/versions.md").partition("\n## What was run\n")
    rows = re.findall(r"^\| (2\.\d+)\.\d+ \|", section.split("\n## ")[0], re.MULTILINE)
    assert sorted({*rows}, key=lambda row: int(row[2:])) == list(_versions.TESTED)


def test_absent_tensorflow_names_both_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match="no TensorFlow") as caught:
        check()
    assert_says(caught.value, "pip install 'hostcall[cpu]'", "pip install 'hostcall[gpu]'")
    assert caught.value.name == "tensorflow"


def test_a_broken_tensorflow_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("import something_tensorflow_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorflow")
    with pytest.raises(ModuleNotFoundError, match="something_tensorflow_needs"):
        check()
