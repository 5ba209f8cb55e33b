"""The paths and libraries that a wheel's or installation's libraries ask the linker for."""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

# From TensorFlow's own wheel; each version has some of them.
OF_TENSORFLOW = (
    "libtensorflow_cc.so.2",
    "libtensorflow_framework.so.2",
    "lib_pywrap_tensorflow_common.so",
    "_pywrap_tensorflow_internal.so",
)
OF_EVERY_LINUX = (
    "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6",
    "libpthread.so.0", "librt.so.1", "libstdc++.so.6",
)  # fmt: skip
# The dynamic linker itself; its name contains the processor.
LOADER = re.compile(r"ld-linux-[a-z0-9-]+\.so\.\d+")
# From hostcall/_built/tensorflow_2_21 to the TensorFlow that is installed beside hostcall.
PATHS = ("$ORIGIN/../../../tensorflow",)


def problems(library: Path) -> list[str]:
    """Return the problems of a library: its foreign search paths and dependencies."""
    table = subprocess.run(
        ["readelf", "--dynamic", "--wide", library], capture_output=True, text=True, check=True
    ).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", table)
    paths = [path for listed in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", table)
             for path in listed.split(":")]  # fmt: skip
    return [
        *(f"{library.name} looks for libraries in {path}" for path in paths if path not in PATHS),
        *(
            f"{library.name} needs {name}"
            for name in needed
            if name not in (*OF_TENSORFLOW, *OF_EVERY_LINUX) and not LOADER.fullmatch(name)
        ),
    ]


def check(wheel: Path) -> None:
    """Raise ValueError if a library in the wheel has problems, or if it has no library."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.search(r"\.so(\.|$)", name)]
        found = [line for name in names for line in problems(Path(archive.extract(name, folder)))]
    if found or not names:
        raise ValueError(f"{wheel.name}: " + ("; ".join(found) or "no extension module is in it"))


def served(wheel: Path) -> list[str]:
    """Return the minor versions of TensorFlow that a wheel has modules for, oldest first."""
    with zipfile.ZipFile(wheel) as archive:
        found = re.findall(
            r"/tensorflow_(\d+)_(\d+)/_build_info\.py$", "\n".join(archive.namelist()), re.M
        )
    return [f"{major}.{minor}" for major, minor in sorted((int(a), int(b)) for a, b in found)]
