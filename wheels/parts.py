"""The parts of a build: an environment for each Python, and TensorFlow's headers and libraries.

All of them are kept in `build/wheels` for the next build.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from wheels.matrix import TENSORFLOW

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheels"

# The files of TensorFlow's wheel that the compiler and the linker read; cmake/find_tensorflow.py
# reads the version.
_READ = [
    "tensorflow/include/*",
    "tensorflow/libtensorflow_*.so.2",
    "tensorflow/python/lib_pywrap_tensorflow_common.so",
    "tensorflow/python/_pywrap_tensorflow_internal.so",
    "*.dist-info/METADATA",
]


def run(*command: str | Path, **options: Any) -> None:
    """Run a command that finds cmake and ninja beside this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PATH": path}, **options)


def environment(interpreter: Path, version: str) -> Path:
    """Return the Python of a virtual environment with all build requirements but TensorFlow."""
    folder = WORK / f"python-{version}"
    python = folder / "bin" / "python"
    wanted = build_requirements()
    stamp = folder / "requirements.txt"
    if not stamp.is_file() or stamp.read_text() != "\n".join(wanted):
        run(interpreter, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
        stamp.write_text("\n".join(wanted))
    return python


def tensorflow(minor: str) -> Path:
    """Return a folder with the files that a build reads from TensorFlow's wheel, uninstalled.

    It is the wheel for the Python of this process. The headers and libraries that hostcall is built
    and linked against are the same in the wheels for other Pythons.
    """
    folder = WORK / f"tensorflow-{minor}"
    if not folder.is_dir():
        downloads = WORK / "downloads"
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        package = f"{TENSORFLOW}=={minor}.*"
        run(sys.executable, "-m", "pip", "download", *options, "--dest", downloads, package)
        _unpack(next(downloads.glob(f"{TENSORFLOW.replace('-', '_')}-{minor}.*.whl")), folder)
    return folder


def build_requirements() -> list[str]:
    """Return what `pip` installs before it builds, but for TensorFlow."""
    requires: list[str] = project()["build-system"]["requires"]
    return [line for line in requires if not line.startswith("tensorflow")]


def project() -> dict[str, Any]:
    """Return what pyproject.toml says."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)


def _unpack(wheel: Path, folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if any(fnmatch(name, pattern) for pattern in _READ):
                archive.extract(name, unfinished)
    wheel.unlink()
    unfinished.rename(folder)
