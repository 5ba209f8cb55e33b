"""The trial of the wheels of `dist`: they are installed as users do, and used.

Each wheel gets a fresh environment outside of the source tree, without a compiler on the PATH. With
TensorFlow alone, README's example runs; then pytest is added, and some of the tests run. Each
TensorFlow that the wheel serves takes its turn under the installed wheel. Another environment has
JAX, and no TensorFlow.

`--newest` tries one wheel, for the newest Python of this machine, beside the
newest versions of packages that people use together. Examples run there, too.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support import pages
from wheels import building, interpreters, libraries, parts
from wheels.matrix import SERVED, TENSORFLOW

# These tests read no page, and need nothing that is compiled only for tests.
TESTS = [
    "tests/e2e/test_arguments.py",
    "tests/e2e/test_exceptions.py",
    "tests/e2e/test_order.py",
    "tests/e2e/test_partition.py",
    "tests/e2e/test_saved_models.py",
    "tests/unit/ops/emit/test_callback.py",
    "tests/unit/test_builds.py",
]
TESTS_OF_JAX = ["tests/jax/test_call.py", "tests/jax/test_call_errors.py"]
TOOLS = ["pytest>=9,<10"]
# Packages that people install side by side, without asking for a version.
BESIDE = ["keras", "jax", "numba"]
TESTS_OF_NEWEST = [
    *TESTS,
    *TESTS_OF_JAX,
    "tests/e2e/test_keras.py",
    "tests/jax/test_behaviours_control.py",
    "tests/jax/test_behaviours_gradients.py",
    "tests/jax/test_from_tf.py",
    "tests/jax/test_to_tf.py",
    "tests/pages/test_examples.py",
    "tests/unit/ops/native/test_programs.py::test_numba",
]
TOOLS_OF_EXAMPLES = ["scipy"]

_LOADS_LIBRARY = "import sys, tensorflow as tf; tf.load_library(sys.argv[1])"


def copy_tests(folder: Path) -> None:
    """Copy the tests, and what they read, to where no sources are."""
    for name in ("tests", "examples"):
        ignored = shutil.ignore_patterns("*.pyc")
        shutil.copytree(pages.ROOT / name, folder / name, ignore=ignored)
    shutil.copy(pages.ROOT / "pyproject.toml", folder)


def run_example(folder: Path, run: Callable[[str], str]) -> None:
    """Check what README's example prints; `run` runs a program of the folder by Python."""
    text = pages.read("README.md")
    (folder / "example.py").write_text(pages.as_program(text), encoding="utf-8")
    printed = run("example.py").split(f"{pages.END}\n")
    assert printed[0] == pages.expected_outputs(text)[0], printed


class Installation:
    """An environment with a wheel, and with one version of TensorFlow at a time.

    Args:
        interpreter: The Python of the environment.
        folder: The folder where it is made.
        wheel: The wheel to install there.
        programs: The folders of programs that are found beside the environment's own, as in PATH.
            Without any there is no compiler, no cmake, and nothing of this repository.
    """

    def __init__(self, interpreter: Path, folder: Path, wheel: Path, programs: str = "") -> None:
        self._folder, self._wheel = folder, wheel
        own = str(folder / "venv" / "bin")
        self._path = os.pathsep.join(filter(None, [own, programs]))
        subprocess.run([interpreter, "-m", "venv", folder / "venv"], check=True)

    def install(self, *packages: str | Path, extra: str = "") -> None:
        options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        self.run("python", "-m", "pip", "install", *options, f"{self._wheel}{extra}", *packages)

    def run(self, program: str, *arguments: str | Path, fails: bool = False) -> str:
        """Run a program of the environment; return its output, of both streams if it must fail."""
        programs = self._folder / "venv" / "bin"
        variables = {**os.environ, "PATH": self._path, "TF_CPP_MIN_LOG_LEVEL": "3"}
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
                 if shutil.which(name, path=self._path)]  # fmt: skip
        assert not found, found

    def runs_the_example(self) -> None:
        run_example(self._folder, functools.partial(self.run, "python"))

    def finds_the_serving_library(self) -> None:
        library = self.run("hostcall", "serving-library").strip()
        self.run("python", "-c", _LOADS_LIBRARY, library)

    def says_what_is_missing(self, minor: str) -> None:
        """Check the error of a wheel that does not serve the installed TensorFlow."""
        name = f"hostcall/_built/tensorflow_{minor.replace('.', '_')}"
        served = next((self._folder / "venv").glob(f"lib/python*/site-packages/{name}"))
        aside = served.rename(served.with_name("aside"))
        said = self.run("python", "-c", "import tensorflow, hostcall", fails=True)
        aside.rename(served)
        assert "hostcall has no extension modules" in said or "hostcall was not built" in said, said

    def passes(self, tests: list[str]) -> str:
        """Run tests, and return pytest's closing line."""
        if not (self._folder / "tests").is_dir():
            copy_tests(self._folder)
        printed = self.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
        return printed.splitlines()[-1]

    def versions(self, *packages: str) -> str:
        """Return the installed versions of packages, as pip's requirements."""
        listed = self.run("python", "-m", "pip", "list", "--format=freeze").replace("_", "-")
        return " ".join(line for line in listed.split() if line.partition("==")[0] in packages)


def attempt(version: str, wheel: Path, folder: Path) -> None:
    """Use a wheel with all versions of TensorFlow that it serves, the newest first."""
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
    """Use a wheel with JAX where TensorFlow is not installed."""
    interpreter = interpreters.find(version)
    assert interpreter is not None
    installation = Installation(interpreter, folder, wheel)
    installation.install(*TOOLS, extra="[jax]")
    installation.passes(TESTS_OF_JAX)
    print(f"Python {version}, JAX without TensorFlow: passed", flush=True)


def attempt_newest(version: str, wheel: Path, folder: Path) -> None:
    """Use a wheel beside the newest packages that people use together, as pip finds them."""
    interpreter = interpreters.find(version)
    assert interpreter is not None
    # A program in C serves one of the examples, so a compiler has to be on the PATH.
    installation = Installation(interpreter, folder, wheel, os.environ["PATH"])
    installation.install(*BESIDE, extra="[cpu]")
    named = (TENSORFLOW, *BESIDE, "jaxlib", "ml-dtypes", "numpy")
    installed = installation.versions(*named)
    print(f"Python {version}, {installed}:", flush=True)
    installation.runs_the_example()
    installation.install(*BESIDE, *TOOLS, *TOOLS_OF_EXAMPLES, extra="[cpu,dask,pickle]")
    assert installation.versions(*named) == installed
    print(installation.passes(TESTS_OF_NEWEST), flush=True)


def attempt_sdist(packed: Path, folder: Path) -> None:
    """Build a wheel from the sdist, with the TensorFlow beside this Python and a compiler."""
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    parts.run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, packed)
    libraries.check(next(folder.glob("*.whl")))


def main() -> None:
    """Try the wheels of the Pythons that are asked for, and the sdist."""
    parser = argparse.ArgumentParser(prog="python -m wheels.trying")
    parser.add_argument("--python", nargs="*", default=list(SERVED), choices=SERVED)
    parser.add_argument("--newest", action="store_true")
    arguments = parser.parse_args()
    if arguments.newest:
        _try_newest(arguments.python)
    else:
        _try_all(arguments.python)


def _try_newest(versions: list[str]) -> None:
    """Try the wheel of `dist` for the newest Python that is found; build it if it is missing."""
    found = [version for version in versions if SERVED[version] and interpreters.find(version)]
    if not found:
        raise SystemExit("No Python that TensorFlow has wheels for is on this machine.")
    newest = found[-1]
    wheel = next(iter(building.built(newest)), None)
    if wheel is None:
        interpreter = interpreters.find(newest)
        assert interpreter is not None
        print(f"Building a wheel for Python {newest}, which takes minutes.", flush=True)
        wheel = building.wheel(parts.environment(interpreter, newest), newest, SERVED[newest][-1:])
    print(f"{wheel.relative_to(parts.ROOT)}", flush=True)
    _use(attempt_newest, newest, wheel)


def _try_all(versions: list[str]) -> None:
    tried = 0
    for version in versions:
        for wheel in building.built(version):
            if libraries.served(wheel):
                _use(attempt, version, wheel)
            _use(attempt_jax, version, wheel)
            tried += 1
    if not tried:
        raise SystemExit("dist has no wheel of hostcall for these Pythons: make wheels")
    for packed in building.DIST.glob("hostcall-*.tar.gz"):
        with tempfile.TemporaryDirectory(prefix="hostcall-sdist-") as folder:
            attempt_sdist(packed, Path(folder))
        print(f"{packed.name}: builds", flush=True)


def _use(attempted: Callable[[str, Path, Path], None], version: str, wheel: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hostcall-wheel-") as folder:
        attempted(version, wheel, Path(folder))


if __name__ == "__main__":
    main()
