"""The wheel for Linux on aarch64: compiled on this machine, and tried under qemu.

`python -m wheels.aarch64` builds it into `dist`, for the Python of the Debian that is here and the
newest TensorFlow. Then README's example runs with it under qemu, and the tests that are named.
`aarch64_python.sh` says what it wants.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from wheels import building, parts, trying
from wheels.matrix import SERVED

WORK = parts.WORK / "aarch64"
PYTHON = WORK / "venv" / "bin" / "python"
# Of the tests of `trying.py`. TensorFlow takes a minute to import there, and each test ten seconds.
TESTS = ["tests/e2e/test_order.py", "tests/e2e/test_partition.py"]

# Those of the project's tests that the tests above use.
_TOOLS = ("pytest>", "hypothesis>")

_BUILDS = """
import json, sys, scikit_build_core.build as build
build.build_wheel(sys.argv[1], json.loads(sys.argv[2]))
"""


def prepare(minor: str) -> Path:
    """Make an environment of aarch64 with a version of TensorFlow; return its packages' folder."""
    table = parts.project()
    tools = [line for line in table["dependency-groups"]["test"] if line.startswith(_TOOLS)]
    needed = [*parts.build_requirements(), *table["project"]["dependencies"], *tools]
    packages = [*dict.fromkeys(needed), f"tensorflow=={minor}.*"]
    script = parts.ROOT / "wheels" / "aarch64_python.sh"
    parts.run(script, Path(sys.executable).parent, WORK, *packages)
    return next(WORK.glob("venv/lib/python*/site-packages"))


def wheel(packages: Path) -> Path:
    """Build the wheel as `pip` does on aarch64; return it in `dist`."""
    folder = WORK / "built"
    shutil.rmtree(folder, ignore_errors=True)
    settings = {
        "build-dir": str(WORK / "build"),
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(WORK / "toolchain.cmake"),
        "cmake.define.HOSTCALL_TENSORFLOW": str(packages),
    }
    parts.run(PYTHON, "-c", _BUILDS, folder, json.dumps(settings))
    return building.repair(next(folder.glob("*.whl")), folder / "repaired")


def attempt(built: Path, packages: Path, tests: list[str]) -> None:
    """Run README's example and tests with a wheel, under qemu."""
    with zipfile.ZipFile(built) as archive:
        archive.extractall(packages)
    folder = WORK / "trial"
    shutil.rmtree(folder, ignore_errors=True)
    trying.copy_tests(folder)
    trying.run_example(folder, functools.partial(_emulated, folder))
    print("README's example: passed", flush=True)
    if tests:
        passed = _emulated(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
        print(passed.splitlines()[-1], flush=True)


def _emulated(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [PYTHON, *arguments],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{arguments} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Build the wheel, and try it."""
    parser = argparse.ArgumentParser(prog="python -m wheels.aarch64")
    parser.add_argument("--tensorflow", default=SERVED["3.13"][-1], help="a minor version")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="tests, or none")
    arguments = parser.parse_args()
    packages = prepare(arguments.tensorflow)
    made = wheel(packages)
    print(f"Built {made}", flush=True)
    attempt(made, packages, arguments.tests)


if __name__ == "__main__":
    main()
