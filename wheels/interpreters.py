"""Finds the Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_ASKED = "import ensurepip, sysconfig, venv; print(sysconfig.get_path('include'))"


def find(version: str) -> Path | None:
    """A Python of a minor version, "3.12" say, that makes virtual environments and has headers."""
    return next(filter(_can_build, _candidates(version)), None)


def _candidates(version: str) -> Iterator[Path]:
    """The first one on the PATH, and what pyenv has installed, which need not be on the PATH."""
    name = f"python{version}"
    if found := shutil.which(name):
        yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob(f"versions/{version}.*/bin/{name}"), reverse=True)


def _can_build(python: Path) -> bool:
    # Also no for a file of pyenv's that stands for a Python that is not chosen here.
    asked = subprocess.run(
        [python, "-c", _ASKED], capture_output=True, text=True, check=False, cwd="/"
    )
    return asked.returncode == 0 and Path(asked.stdout.strip(), "Python.h").is_file()
