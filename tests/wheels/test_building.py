"""The package wheels, but for what builds (`make wheels`) and installs (`wheels.trying`)."""

import platform
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import tensorflow as tf
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags

import hostcall
from hostcall import _versions
from hostcall_runtime import _library
from tests.support.pages import ROOT
from wheels import building, fitting, libraries, parts
from wheels.matrix import SERVED

FIND_TENSORFLOW = ROOT / "cmake" / "find_tensorflow.py"
XLA_OP_KERNEL = ROOT / "cmake" / "xla_op_kernel.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FLAGS = [flag for flag in tf.sysconfig.get_compile_flags() if flag.startswith("-D")]


def library(folder: Path, *options: str, name: str = "_module.so") -> Path:
    """A library of a single function."""
    source = folder / "module.c"
    source.write_text("int one(void) { return 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", *options, source, "-o", folder / name], check=True)
    return folder / name


def test_the_installed_libraries_look_beside_themselves_alone() -> None:
    modules = [
        _library.load(name) for name in ("hostcall_runtime._runtime", "hostcall._tensorflow")
    ]
    for path in (*(module.__file__ or "" for module in modules), hostcall.serving_library()):
        assert libraries.problems(Path(path)) == []


FOREIGN_PATH = "-Wl,-rpath,/build/tensorflow:$ORIGIN/../../../tensorflow"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([FOREIGN_PATH], "_module.so looks for libraries in /build/tensorflow"),
        # The old kind of path.
        (["-Wl,--disable-new-dtags,-rpath,$ORIGIN"], "_module.so looks for libraries in $ORIGIN"),
        (["-Wl,--no-as-needed", "-L{}", "-l:libother.so"], "_module.so needs libother.so"),
    ],
)
def test_what_users_may_not_have_is_found(options: list[str], problem: str, tmp_path: Path) -> None:
    library(tmp_path, name="libother.so")
    path = library(tmp_path, *(option.format(tmp_path) for option in options))
    assert libraries.problems(path) == [problem]
    wheel = tmp_path / "hostcall-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(path, "hostcall/_built/tensorflow_2_21/_module.so")
    with pytest.raises(ValueError, match=re.escape(problem)):
        libraries.check(wheel)


def stand_in(folder: Path, tag: str, version: str = "1.0", minor: str = "2_21") -> Path:
    """A file with the name of a wheel, and a set for a minor version of TensorFlow."""
    path = folder / f"hostcall-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"hostcall/_built/tensorflow_{minor}/_build_info.py", b"")
    return path


THIS_PYTHON, THIS_PLATFORM = str(next(sys_tags())).rsplit("-", 1)


def test_a_wheel_for_this_machine_is_used_as_it_is(tmp_path: Path) -> None:
    stand_in(tmp_path, f"cp31-cp31-{THIS_PLATFORM}")
    fits = stand_in(tmp_path, f"{THIS_PYTHON}-{THIS_PLATFORM}")
    assert fitting.fitting(tmp_path, "1.0", "2.21.3") == fits


@pytest.mark.parametrize(
    ("tag", "version", "minor"),
    [
        (f"cp31-cp31-{THIS_PLATFORM}", "1.0", "2_21"),
        (f"{THIS_PYTHON}-win_amd64", "1.0", "2_21"),
        (f"{THIS_PYTHON}-{THIS_PLATFORM}", "1.1", "2_21"),
        (f"{THIS_PYTHON}-{THIS_PLATFORM}", "1.0", "2_20"),
    ],
    ids=["Python", "platform", "version", "TensorFlow"],
)
def test_a_wheel_for_anything_else_is_not_used(
    tag: str, version: str, minor: str, tmp_path: Path
) -> None:
    stand_in(tmp_path, tag, version, minor)
    assert fitting.fitting(tmp_path, "1.0", "2.21.3") is None


def test_the_wheels_are_for_the_pythons_and_the_tensorflows_of_the_project() -> None:
    project = PROJECT["project"]
    named = {
        line.rpartition(" :: ")[2] for line in project["classifiers"] if ":: Python :: 3." in line
    }
    assert set(SERVED) == named
    allowed = SpecifierSet(project["requires-python"])
    assert [f"3.{minor}" for minor in range(8, 20) if f"3.{minor}" in allowed] == list(SERVED)
    for minors in SERVED.values():
        assert minors == sorted(minors, key=lambda minor: int(minor.partition(".")[2]))
    assert {minor for minors in SERVED.values() for minor in minors} == set(_versions.TESTED)


@pytest.mark.parametrize(
    ("machine", "package"), [("x86_64", "tensorflow-cpu"), ("aarch64", "tensorflow")]
)
def test_a_machine_gets_the_tensorflow_for_it(
    machine: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # tensorflow-cpu has no wheels for aarch64.
    cpu = PROJECT["project"]["optional-dependencies"]["cpu"]
    for lines in (PROJECT["build-system"]["requires"], cpu):
        wanted = [
            line.name
            for line in map(Requirement, lines)
            if line.marker is None or line.marker.evaluate({"platform_machine": machine})
        ]
        assert [name for name in wanted if name.startswith("tensorflow")] == [package]
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert runpy.run_path(str(ROOT / "wheels" / "matrix.py"))["TENSORFLOW"] == package
    assert runpy.run_path(_versions.__file__)["PACKAGE"] == package


def test_a_wheel_for_a_python_without_tensorflow_is_for_jax_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []

    def run(*command: str | Path, **options: object) -> None:
        commands.append(list(map(str, command)))
        folder = Path(commands[-1][commands[-1].index("--wheel-dir") + 1])
        folder.mkdir(exist_ok=True)
        (folder / "hostcall-1.0-cp314-cp314-linux_x86_64.whl").touch()

    monkeypatch.setattr(parts, "run", run)
    monkeypatch.setattr(parts, "WORK", tmp_path)
    monkeypatch.setattr(building, "DIST", tmp_path / "dist")
    monkeypatch.setattr(libraries, "check", lambda wheel: None)
    made = building.wheel(Path("python3.14"), "3.14", SERVED["3.14"])
    assert building.built("3.14") == [made]
    packed, _ = commands  # and nothing that links with TensorFlow
    assert "--config-settings=cmake.define.HOSTCALL_RUNTIME_ALONE=ON" in packed


@pytest.mark.parametrize("way", ["imported", "of_own_wheel"])
def test_a_build_finds_the_tensorflow_of_its_python(way: str) -> None:
    version, folder, *flags = runpy.run_path(str(FIND_TENSORFLOW))[way]()
    assert version == tf.__version__
    assert Path(folder, "include") == Path(tf.sysconfig.get_include())
    assert flags == FLAGS


def test_a_tensorflow_that_someone_built_answers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    find = runpy.run_path(str(FIND_TENSORFLOW))
    monkeypatch.setitem(find["imported"].__globals__, "PACKAGES", ())
    assert find["of_own_wheel"]() == []
    assert find["imported"]()[2:] == FLAGS


def test_kernels_are_compiled_with_the_declarations_of_the_installed_tensorflow() -> None:
    include = Path(tf.sysconfig.get_include())
    declared = runpy.run_path(str(XLA_OP_KERNEL))["light"](include)
    whole = (include / "tensorflow/compiler/tf2xla/xla_op_kernel.h").read_text()
    (set_output,) = re.findall(r"^  void SetOutput\(.*$", whole, re.MULTILINE)
    assert set_output in declared
    assert not re.search("#include .*(xla_compiler|xla/client|value_inference)", declared)


def test_unknown_headers_are_included_as_they_are(tmp_path: Path) -> None:
    command = [sys.executable, str(XLA_OP_KERNEL), str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert '#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"' in printed
