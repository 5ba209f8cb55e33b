"""Installs the wheels of `dist` as users do, and uses them.

Each gets a fresh environment outside of the source tree, without a compiler on the PATH: first with
nothing but TensorFlow, where README's example runs; then with pytest, where some of the tests run.
TensorFlow is replaced there under the installed wheel by each version that it serves. Another
environment has JAX, and no TensorFlow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import pages
from wheels import building, interpreters, libraries, parts
from wheels.matrix import SERVED, TENSORFLOW

# They read no page and want nothing that is compiled for tests alone.
TESTS = [
    "tests/e2e/test_arguments.py",
    "tests/e2e/test_exceptions.py",
    "tests/e2e/test_order.py",
    "tests/e2e/test_partition.py",
    "tests/e2e/test_saved_models.py",
    "tests/unit/frontend/test_callback.py",
    "tests/unit/test_builds.py",
]
TESTS_OF_JAX = [
    "tests/jax/test_call.py",
    "tests/jax/test_call_errors.py",
    "tests/jax/test_behaviours_values.py",
]
TOOLS = ["pytest>=9,<10"]

_LOADS_LIBRARY = "import sys, tensorflow as tf; tf.load_library(sys.argv[1])"


class Installation:
    """An environment with a wheel, and TensorFlow's minor version that is there now."""

    def __init__(self, interpreter: Path, folder: Path, wheel: Path) -> None:
        self._folder, self._wheel = folder, wheel
        subprocess.run([interpreter, "-m", "venv", folder / "venv"], check=True)

    def install(self, *packages: str | Path, extra: str = "") -> None:
        options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        self.run("python", "-m", "pip", "install", *options, f"{self._wheel}{extra}", *packages)

    def run(self, program: str, *arguments: str | Path, fails: bool = False) -> str:
        """What a program of the environment prints, in both streams if it is to fail."""
        programs = self._folder / "venv" / "bin"
        # Nothing else is found: no compiler, no cmake, and not this repository's packages.
        variables = {**os.environ, "PATH": str(programs), "TF_CPP_MIN_LOG_LEVEL": "3"}
        variables.pop("PYTHONPATH", None)
        done = subprocess.run(
            [programs / program, *arguments],
            cwd=self._folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if fails else None,
            text=True,
            check=False,
        )
        if (done.returncode != 0) != fails:
            raise SystemExit(f"{program} {arguments} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def has_no_compiler(self) -> None:
        found = [name for name in ("c++", "g++", "gcc", "clang", "cmake", "ninja")
                 if shutil.which(name, path=self._folder / "venv" / "bin")]  # fmt: skip
        assert not found, found

    def runs_the_example(self) -> None:
        text = pages.read("README.md")
        (self._folder / "example.py").write_text(pages.as_program(text), encoding="utf-8")
        printed = self.run("python", "example.py").split(f"{pages.END}\n")
        assert printed[0] == pages.expected_outputs(text)[0], printed

    def finds_the_serving_library(self) -> None:
        library = self.run("hostcall", "serving-library").strip()
        self.run("python", "-c", _LOADS_LIBRARY, library)

    def says_what_is_missing(self, minor: str) -> None:
        """As if the wheel did not serve the TensorFlow that is there."""
        name = f"hostcall/_built/tensorflow_{minor.replace('.', '_')}"
        served = next((self._folder / "venv").glob(f"lib/python*/site-packages/{name}"))
        aside = served.rename(served.with_name("aside"))
        said = self.run("python", "-c", "import tensorflow, hostcall", fails=True)
        aside.rename(served)
        assert "hostcall has no extension modules" in said or "hostcall was not built" in said, said

    def passes(self, tests: list[str]) -> None:
        copied = self._folder / "tests"
        if not copied.is_dir():
            shutil.copytree(pages.ROOT / "tests", copied, ignore=shutil.ignore_patterns("*.pyc"))
            shutil.copy(pages.ROOT / "pyproject.toml", self._folder)
        self.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


def attempt(version: str, wheel: Path, folder: Path) -> None:
    """Uses a wheel with all versions of TensorFlow that it serves, the newest first."""
    interpreter = interpreters.find(version)
    assert interpreter is not None
    installation = Installation(interpreter, folder, wheel)
    installation.has_no_compiler()
    for minor in reversed(libraries.served(wheel)):
        installation.install(f"{TENSORFLOW}=={minor}.*")
        installation.runs_the_example()
        installation.finds_the_serving_library()
        installation.says_what_is_missing(minor)
        installation.install(f"{TENSORFLOW}=={minor}.*", *TOOLS)
        installation.passes(TESTS)
        print(f"Python {version}, TensorFlow {minor}: passed", flush=True)


def attempt_jax(version: str, wheel: Path, folder: Path) -> None:
    """Uses a wheel with JAX where TensorFlow is not installed."""
    interpreter = interpreters.find(version)
    assert interpreter is not None
    installation = Installation(interpreter, folder, wheel)
    installation.install(*TOOLS, extra="[jax]")
    installation.passes(TESTS_OF_JAX)
    print(f"Python {version}, JAX without TensorFlow: passed", flush=True)


def attempt_sdist(packed: Path, folder: Path) -> None:
    """Builds a wheel of the sdist, with the TensorFlow beside this Python and a compiler."""
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    parts.run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, packed)
    libraries.check(next(folder.glob("*.whl")))


def main() -> None:
    """Tries the wheels of the Pythons that are asked for, and the sdist."""
    parser = argparse.ArgumentParser(prog="python -m wheels.trying")
    parser.add_argument("--python", nargs="*", default=list(SERVED), choices=SERVED)
    arguments = parser.parse_args()
    tried = 0
    for version in arguments.python:
        tag = f"cp{version.replace('.', '')}"
        for wheel in building.DIST.glob(f"hostcall-*-{tag}-*.whl"):
            for use in (attempt, attempt_jax):
                with tempfile.TemporaryDirectory(prefix="hostcall-wheel-") as folder:
                    use(version, wheel, Path(folder))
            tried += 1
    if not tried:
        raise SystemExit("dist has no wheel of hostcall for these Pythons: make wheels")
    for packed in building.DIST.glob("hostcall-*.tar.gz"):
        with tempfile.TemporaryDirectory(prefix="hostcall-sdist-") as folder:
            attempt_sdist(packed, Path(folder))
        print(f"{packed.name}: builds", flush=True)


if __name__ == "__main__":
    main()
