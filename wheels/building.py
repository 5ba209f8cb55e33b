"""The build of one Python's wheel, with a set of extension modules for each TensorFlow."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from wheels import libraries, parts

DIST = parts.ROOT / "dist"


def wheel(python: Path, version: str, minors: list[str]) -> Path:
    """Build a wheel.

    Args:
        python: The Python of an environment with the build requirements.
        version: The version of Python, for example "3.11".
        minors: The versions of TensorFlow to serve, oldest first. With none, the wheel is for JAX.

    Returns:
        The wheel in `dist`. Its tag names the C library that it needs.
    """
    folder = parts.WORK / f"built-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    sets = folder / "sets"
    sets.mkdir(parents=True)
    for minor in minors:
        _build_set(python, minor, sets)
    _build_wheel(python, version, minors, sets, folder)
    return repair(next(folder.glob("*.whl")), folder / "repaired")


def sdist(python: Path) -> Path:
    """Pack the sources into an sdist."""
    code = "import sys, scikit_build_core.build as build; build.build_sdist(sys.argv[1])"
    parts.run(python, "-c", code, DIST)
    return next(DIST.glob("*.tar.gz"))


def repair(unrepaired: Path, folder: Path) -> Path:
    """Give a wheel the tag of the oldest C library that it runs with; copy nothing into it.

    Args:
        unrepaired: A wheel. Those in `dist` for the same Python and machine are removed.
        folder: The folder where the wheel is made.

    Returns:
        The wheel in `dist`.
    """
    excluded = [option for name in libraries.OF_TENSORFLOW for option in ("--exclude", name)]
    auditwheel = Path(sys.executable).with_name("auditwheel")
    parts.run(auditwheel, "repair", *excluded, "--wheel-dir", folder, unrepaired)
    repaired = next(folder.glob("*.whl"))
    libraries.check(repaired)
    _, _, python, _, tag = unrepaired.stem.split("-")
    for old in _of(python, tag.removeprefix("linux_")):
        old.unlink()
    DIST.mkdir(exist_ok=True)
    return Path(shutil.move(repaired, DIST / repaired.name))


def built(version: str) -> list[Path]:
    """Return the wheels in `dist` for a Python of this machine: one, or none.

    Args:
        version: The version of Python, for example "3.11".
    """
    return _of(f"cp{version.replace('.', '')}", platform.machine())


def _of(python: str, machine: str) -> list[Path]:
    return list(DIST.glob(f"hostcall-*-{python}-*_{machine}.whl"))


def _build_set(python: Path, minor: str, into: Path) -> None:
    """Build only the libraries that link with a version of TensorFlow.

    All Pythons share one build folder, so code that does not depend on them is compiled once.
    """
    build = parts.WORK / f"set-{minor}"
    parts.run(
        *("cmake", "--fresh", "-S", ".", "-B", build, "-G", "Ninja", "--log-level=WARNING"),
        *(f"-DPython_EXECUTABLE={python}", "-DCMAKE_BUILD_TYPE=Release"),
        f"-DHOSTCALL_TENSORFLOW={parts.tensorflow(minor)}",
    )
    parts.run("cmake", "--build", build, "--target", "_tensorflow", "hostcall_serving")
    for component in ("set", "serving"):
        parts.run(
            *("cmake", "--install", build, "--component", component, "--strip", "--prefix", into),
            stdout=subprocess.DEVNULL,
        )


def _build_wheel(python: Path, version: str, minors: list[str], sets: Path, into: Path) -> None:
    """Build the runtime, which serves all versions, and pack it with the sets."""
    settings = {
        "build-dir": parts.WORK / f"runtime-{version}",
        "build.targets": "_runtime",
        "install.components": "runtime;sets",
        "cmake.define.HOSTCALL_RUNTIME_ALONE": "OFF" if minors else "ON",
        "cmake.define.HOSTCALL_TENSORFLOW": parts.tensorflow(minors[-1]) if minors else "",
        "cmake.define.HOSTCALL_SETS": sets,
    }
    parts.run(
        *(python, "-m", "pip", "wheel", ".", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-build-isolation", "--wheel-dir", into),
        *(f"--config-settings={name}={value}" for name, value in settings.items()),
    )
