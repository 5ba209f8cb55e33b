"""The sets of extension modules of this installation, and the choice of the one that fits.

TensorFlow promises no stable C++ interface between its minor versions, so what links with its
libraries is built once for each: `hostcall/_built/tensorflow_2_21` holds the modules and libraries
for 2.21. A wheel has a set for each minor version that it serves, an installation that was built
from source a single one.
"""

import platform
import sys
from pathlib import Path

from hostcall_runtime._library import REBUILD

_PREFIX = "tensorflow_"

# TensorFlow for CPUs has a name of its own on x86-64 alone.
PACKAGE = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"

_NOT_BUILT = """\
hostcall was not built: the folder _built, where its extension modules are installed, is missing or
empty. Most likely Python found hostcall in a source tree, or it was installed for JAX alone, as it
is for a Python that TensorFlow has no wheels for. Build it with one of

{rebuild}"""

_NONE_FITS = """\
hostcall has no extension modules for the TensorFlow that it finds here, and those for another
minor version could crash:

  - TensorFlow: built for {built}, found {found}

Install a TensorFlow that they were built for, with one of

    pip install '{package}=={newest}.*'
    pip install 'tensorflow[and-cuda]=={newest}.*'    # with an NVIDIA GPU

or build hostcall for TensorFlow {found}, which needs g++ and takes some minutes:

    pip install 'scikit-build-core>=1.1,<2' 'nanobind>=3.1,<4' cmake ninja
    pip install --force-reinstall --no-cache-dir --no-deps --no-build-isolation \\
        --no-binary hostcall hostcall"""


def choose(tensorflow: str) -> None:
    """Let Python find the modules that were built for a TensorFlow, as modules of `hostcall`.

    Args:
        tensorflow: The version, such as "2.21.0".

    Raises:
        ImportError: None were built, or none for this minor version. The message lists the versions
            that there are modules for, and the commands that install one of them, or build modules
            for this one.
    """
    sets = built_sets()
    if not sets:
        raise ImportError(_NOT_BUILT.format(rebuild=REBUILD), name="hostcall")
    chosen = sets.get(minor(tensorflow))
    if chosen is None:
        text = _NONE_FITS.format(
            built=_listed(list(sets)), found=tensorflow, newest=[*sets][-1], package=PACKAGE
        )
        raise ImportError(text, name="hostcall")
    # hostcall_runtime._library looks for modules and libraries wherever the package lies.
    places = sys.modules["hostcall"].__path__
    if str(chosen) not in places:
        places.append(str(chosen))


def built_sets() -> dict[str, Path]:
    """The folders of this installation, by the minor version that each is for, oldest first."""
    found: dict[str, Path] = {}
    for place in sys.modules["hostcall"].__path__:
        for folder in Path(place, "_built").glob(_PREFIX + "*"):
            found.setdefault(folder.name.removeprefix(_PREFIX).replace("_", "."), folder)
    return dict(sorted(found.items(), key=lambda item: numbers(item[0])))


def minor(version: str) -> str:
    """The minor version of a version, such as "2.21" of "2.21.0"."""
    return ".".join(version.split(".")[:2])


def numbers(version: str) -> list[int]:
    """What minor versions are ordered by."""
    return [int(number) for number in minor(version).split(".")]


def _listed(versions: list[str]) -> str:
    *others, last = versions
    return f"{', '.join(others)} and {last}" if others else last
