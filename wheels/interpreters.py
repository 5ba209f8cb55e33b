"""The search for the Pythons of this machine.

`python3 -m wheels.interpreters 3.13 3.12` prints the path of the first one that is found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_ASKED = "import ensurepip, sysconfig, tomllib, venv; print(sysconfig.get_path('include'))"


def find(version: str) -> Path | None:
    """Find a Python that makes virtual environments and has headers.

    Args:
        version: A minor version, for example "3.12", or the path of a Python.

    Returns:
        Its path, or None if no Python is found.
    """
    return next(filter(_can_build, _candidates(version)), None)


def _candidates(version: str) -> Iterator[Path]:
    """Yield the first Python on the PATH, then those of pyenv, which need not be on the PATH."""
    if os.sep in version:
        yield Path(version).absolute()
        return
    name = f"python{version}"
    if found := shutil.which(name):
        yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob(f"versions/{version}.*/bin/{name}"), reverse=True)


def _can_build(python: Path) -> bool:
    # A pyenv file for a Python that is not chosen here exists, but fails when it is run.
    if not python.exists():
        return False
    asked = subprocess.run(
        [python, "-c", _ASKED], capture_output=True, text=True, check=False, cwd="/"
    )
    return asked.returncode == 0 and Path(asked.stdout.strip(), "Python.h").is_file()


def _main(versions: list[str]) -> int:
    first = next(filter(None, map(find, versions)), None)
    if first is not None:
        print(first)
    return int(first is None)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
