"""The wheel of `dist` that this environment can use as it is.

`python -m wheels.fitting` prints its path, or nothing.
"""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from wheels import libraries, parts
from wheels.building import DIST
from wheels.matrix import TENSORFLOW


def fitting(folder: Path, version: str, tensorflow: str) -> Path | None:
    """Find a wheel of hostcall for the Python of this process.

    Args:
        folder: The folder of the wheels.
        version: The version of hostcall, for example "0.1.0".
        tensorflow: The installed version of TensorFlow, for example "2.21.0".

    Returns:
        The wheel of this version, for this Python and machine and a set for this TensorFlow; None
        if there is none.
    """
    minor = ".".join(tensorflow.split(".")[:2])
    usable = set(sys_tags())
    for wheel in sorted(folder.glob("hostcall-*.whl")):
        _, its_version, _, tags = parse_wheel_filename(wheel.name)
        if str(its_version) == version and tags & usable and minor in libraries.served(wheel):
            return wheel
    return None


def _main() -> None:
    project = tomllib.loads((parts.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        tensorflow = metadata.version(TENSORFLOW)
    except metadata.PackageNotFoundError:
        return  # a nightly build, which no wheel serves
    if wheel := fitting(DIST, project["version"], tensorflow):
        print(wheel)


if __name__ == "__main__":
    _main()
