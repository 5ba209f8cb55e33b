"""Prints what `TensorFlow.cmake` asks about a TensorFlow, a line each.

    python find_tensorflow.py [DIRECTORY]

Without DIRECTORY it is the TensorFlow that this Python imports. If its wheel is not TensorFlow's
own, it answers itself, which takes seconds. With DIRECTORY, it is the one whose wheel was unpacked
there. Nothing of that one is imported: it may be for another Python, and without the packages that
it needs.
"""
# ruff: noqa: T201 - CMake reads what it prints

from __future__ import annotations

import re
import sys
from importlib import metadata, util
from pathlib import Path

# The flags of all of TensorFlow's own wheels for Linux since 2.19.
WHEELS_FLAGS = ("-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64")
# The packages that TensorFlow is in.
PACKAGES = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu")


def imported() -> list[str]:
    """Version, directory and definitions of the TensorFlow of this Python."""
    if known := of_own_wheel():
        return known
    from tensorflow import __version__, sysconfig

    flags = [flag for flag in sysconfig.get_compile_flags() if flag.startswith("-D")]
    return [__version__, str(Path(sysconfig.get_include()).parent), *flags]


def of_own_wheel() -> list[str]:
    """Return the same if TensorFlow was installed from a wheel of its own, or nothing.

    Those are tagged `manylinux`, which wheels are not that someone builds.
    """
    spec = util.find_spec("tensorflow")
    directory = Path((spec.origin if spec else None) or ".").parent
    for name in PACKAGES:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        tags = found.read_text("WHEEL") or ""
        if "manylinux" in tags and Path(str(found.locate_file("tensorflow"))) == directory:
            return [found.version, str(directory), *WHEELS_FLAGS]
    return []


def unpacked(directory: Path) -> list[str]:
    """Return the same for a TensorFlow wheel that was unpacked into a directory."""
    found = [
        distribution.version
        for distribution in metadata.distributions(path=[str(directory)])
        if re.match(r"tensorflow|tf[-_]nightly", distribution.name)
    ]
    if len(found) != 1 or not (directory / "tensorflow" / "include").is_dir():
        sys.exit(f"{directory} does not hold one unpacked wheel of TensorFlow: {found}")
    return [found[0], str(directory.resolve() / "tensorflow"), *WHEELS_FLAGS]


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    print(*(unpacked(*arguments) if arguments else imported()), sep="\n")
