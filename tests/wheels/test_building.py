"""The package wheels, but for what builds and installs: `make wheels test-wheel` does that."""

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
from wheels import building, fitting, interpreters, libraries, parts
from wheels.matrix import SERVED

FIND_TENSORFLOW = ROOT / "cmake" / "find_tensorflow.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FLAGS = [flag for flag in tf.sysconfig.get_compile_flags() if flag.startswith("-D")]


def find_tensorflow(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FIND_TENSORFLOW), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def library(folder: Path, *options: str, name: str = "_module.so") -> Path:
    """A library of a single function."""
    source = folder / "module.c"
    source.write_text("int one(void) { return 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", *options, source, "-o", folder / name], check=True)
    return folder / name


def wheel(folder: Path, *files: tuple[Path | None, str]) -> Path:
    path = folder / "hostcall-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, name in files:
            archive.writestr(name, file.read_bytes() if file else b"")
    return path


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
    with pytest.raises(ValueError, match=re.escape(problem)):
        libraries.check(wheel(tmp_path, (path, "hostcall/_built/tensorflow_2_21/_module.so")))


@pytest.mark.parametrize("loader", ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"])
def test_the_dynamic_linker_of_each_processor_is_on_every_linux(
    loader: str, tmp_path: Path
) -> None:
    library(tmp_path, f"-Wl,-soname,{loader}", name=loader)
    path = library(tmp_path, "-Wl,--no-as-needed", f"-L{tmp_path}", f"-l:{loader}")
    table = subprocess.check_output(["readelf", "--dynamic", path], text=True)
    assert f"[{loader}]" in table
    assert libraries.problems(path) == []


def test_a_wheel_tells_what_it_serves(tmp_path: Path) -> None:
    names = [f"hostcall/_built/tensorflow_{minor}/_build_info.py" for minor in ("2_21", "2_9")]
    made = wheel(tmp_path, *((None, name) for name in names))
    assert libraries.served(made) == ["2.9", "2.21"]
    with pytest.raises(ValueError, match="no extension module is in it"):
        libraries.check(made)


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


def test_without_wheels_none_fits(tmp_path: Path) -> None:
    assert fitting.fitting(tmp_path / "dist", "1.0", "2.21.3") is None


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


def test_a_python_is_found_by_its_minor_version_or_its_path() -> None:
    version = "{}.{}".format(*sys.version_info)
    found = interpreters.find(version)
    assert found is not None
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    assert subprocess.check_output([found, "-c", code], text=True).strip() == version
    assert interpreters.find(sys.executable) == Path(sys.executable)
    assert [interpreters.find(name) for name in ("3.99", "/nowhere/python3")] == [None, None]


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_what_fails_on_the_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As pyenv's files do whose version is not chosen.
    script(tmp_path / "shims" / "python3.98", "echo 'command not found' >&2; exit 127")
    installed = tmp_path / "pyenv" / "versions" / "3.98.2" / "bin" / "python3.98"
    script(installed, f'exec "{sys.executable}" "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert interpreters.find("3.98") == installed
    command = [sys.executable, "-m", "wheels.interpreters", "3.99", "3.98", "3.11"]
    assert subprocess.check_output(command, cwd=ROOT, text=True).strip() == str(installed)
    done = subprocess.run(command[:4], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_build_asks_the_tensorflow_of_its_python() -> None:
    version, folder, *flags = runpy.run_path(str(FIND_TENSORFLOW))["imported"]()
    assert version == tf.__version__
    assert Path(folder, "include") == Path(tf.sysconfig.get_include())
    assert flags == FLAGS


def test_an_unpacked_tensorflow_is_described_as_it_describes_itself(tmp_path: Path) -> None:
    ended = find_tensorflow(tmp_path)
    assert ended.returncode == 1
    assert "does not hold one unpacked wheel of TensorFlow" in ended.stderr
    made = tmp_path / "tensorflow_cpu-2.20.1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.20.1\n")
    (tmp_path / "tensorflow" / "include").mkdir(parents=True)
    version, folder, *flags = find_tensorflow(tmp_path).stdout.splitlines()
    assert (version, folder, flags) == ("2.20.1", str(tmp_path / "tensorflow"), FLAGS)
