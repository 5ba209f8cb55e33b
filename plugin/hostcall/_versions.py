"""The extension modules of this installation, and the check that they fit TensorFlow and Python.

TensorFlow promises no stable C++ interface between its minor versions. So hostcall builds the code
that links with its libraries once for each: `hostcall/_built/tensorflow_2_21` holds the modules and
libraries for 2.21. A wheel has a set for each minor version that it serves. An installation built
from source has a single one.

A module that was built against other versions may crash anywhere. Comparing versions first turns
the crash into a readable error.
"""

import importlib
import platform
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from hostcall_runtime import _library
from hostcall_runtime._library import REBUILD

_PREFIX = "tensorflow_"

# TensorFlow's package for CPUs has a name of its own on x86-64 only.
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
    """Let Python find the modules that were built for a TensorFlow, as modules of `hostcall`."""
    # If there are none, an ImportError lists the versions that have modules, and the commands that
    # install one of them, or build modules for this one.
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
    """Return the folders of this installation by minor version, oldest first."""
    found: dict[str, Path] = {}
    for place in sys.modules["hostcall"].__path__:
        for folder in Path(place, "_built").glob(_PREFIX + "*"):
            found.setdefault(folder.name.removeprefix(_PREFIX).replace("_", "."), folder)
    return dict(sorted(found.items(), key=lambda item: numbers(item[0])))


def minor(version: str) -> str:
    """Return the minor version of a version, such as "2.21" for "2.21.0"."""
    return ".".join(version.split(".")[:2])


def numbers(version: str) -> list[int]:
    """Return the key that orders minor versions."""
    return [int(number) for number in minor(version).split(".")]


def serving_library() -> str:
    """Return the path of the library that runs saved models in processes without Python.

    `TF_LoadLibrary` of TensorFlow's C API takes it, and so do servers that load libraries of ops.

    Returns:
      The path of `libhostcall_serving.so`, which was built for the installed TensorFlow.

    Raises:
      FileNotFoundError: when the library is missing, with the commands that build it.

    Examples:
      >>> hostcall.serving_library().endswith("libhostcall_serving.so")
      True
    """
    return str(_library.file_beside("hostcall", "libhostcall_serving.so"))


def _listed(versions: list[str]) -> str:
    *others, last = versions
    return f"{', '.join(others)} and {last}" if others else last


# The minor versions of TensorFlow that the tests have passed with, oldest first.
TESTED = ("2.19", "2.20", "2.21")

# The version of XLA's FFI in the oldest of them. Handlers are made for the newest version, and
# csrc/compat/ffi.h adapts them to older ones.
_OLDEST_FFI = (0, 1)

_NO_TENSORFLOW = """\
hostcall extends TensorFlow, and this Python has no TensorFlow. Two packages provide it, so hostcall
installs neither by itself. Install one of the two with

    pip install 'hostcall[cpu]'
    pip install 'hostcall[gpu]'    # with an NVIDIA GPU"""

_MISMATCH = """\
hostcall was built against other versions than it finds here, and could crash if it went on:

{mismatches}

Most likely another TensorFlow was installed after hostcall. Make them fit again with one of

{rebuild}"""

_TOO_OLD = """\
hostcall needs TensorFlow {oldest} or later, and this is {found}. XLA in older versions ends the \
process when it compiles a call with side effects. Install a later one:

    pip install '{package}=={newest}.*'"""

_UNTESTED = """\
hostcall was tested with TensorFlow {oldest} to {newest}, and this is {found}. Features whose \
private names it lacks are off, with a warning for each; others may find that a name means \
something else by now. `hostcall doctor` lists all names. If something goes wrong, try it with

    pip install '{package}=={newest}.*'"""

# The newest StableHLO: `hostcall.load` must read what JAX's newer version exports.
STABLEHLO = "1.13.0"


@dataclass(frozen=True)
class Versions:
    """The versions that the extension modules depend on."""

    tensorflow: str
    ffi_api: tuple[int, int] | None  # of XLA's FFI; None if TensorFlow brings no header
    python: str  # major and minor version
    cxx11_abi: int  # 1 if C++ strings and lists have the layout of C++11, else 0


def check() -> None:
    """Choose the extension modules for the TensorFlow here, and check that they can be loaded."""
    # An ImportError lists the installed versions, and the commands that fix it. For a TensorFlow
    # that hostcall was not tested with, this only warns.
    installed = found()
    if not _is_at_least(installed.tensorflow, TESTED[0]):
        raise ImportError(_named(_TOO_OLD, installed.tensorflow), name="hostcall")
    choose(installed.tensorflow)
    if problems := mismatches(built(), installed):
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise ImportError(_MISMATCH.format(mismatches=listed, rebuild=REBUILD), name="hostcall")
    if said := untested(installed.tensorflow):
        warnings.warn(said, RuntimeWarning, stacklevel=3)


def untested(version: str) -> str | None:
    """Return the warning for a version of TensorFlow, or None if tests have passed with it."""
    if minor(version) in TESTED and "dev" not in version:
        return None
    return _named(_UNTESTED, version)


def runs_on_the_caller(version: str) -> bool:
    """Return whether XLA's CPU programs run on the calling thread, and not on one of a stream."""
    return _is_at_least(version, "2.20")


def stablehlo(version: str) -> str:
    """Return the version of StableHLO that a version of TensorFlow reads, such as "1.13.0"."""
    return STABLEHLO if _is_at_least(version, "2.20") else "1.9.0"


def _is_at_least(version: str, first: str) -> bool:
    return numbers(version) >= numbers(first)


def _named(text: str, version: str) -> str:
    return text.format(oldest=TESTED[0], newest=TESTED[-1], found=version, package=PACKAGE)


def mismatches(built: Versions, found: Versions) -> list[str]:
    """Return a line for each version that does not fit that which hostcall was built against."""
    # TensorFlow's patch version may differ, and so may the minor version of XLA's FFI: it stays
    # compatible with older ones, and hostcall accepts the oldest tested one.
    same_minor = minor(built.tensorflow) == minor(found.tensorflow)
    rows = [
        ("TensorFlow", built.tensorflow, found.tensorflow, same_minor),
        ("XLA FFI", _dotted(built.ffi_api), _dotted(found.ffi_api), _ffi_fits(built, found)),
        ("Python", built.python, found.python, built.python == found.python),
        ("C++11 ABI flag", built.cxx11_abi, found.cxx11_abi, built.cxx11_abi == found.cxx11_abi),
    ]
    return [
        f"{what}: built against {old}, found {new}" for what, old, new, fits in rows if not fits
    ]


def _ffi_fits(built: Versions, found: Versions) -> bool:
    if built.ffi_api is None or found.ffi_api is None:
        return False
    return built.ffi_api[0] == found.ffi_api[0] and found.ffi_api >= _OLDEST_FFI


def _dotted(version: tuple[int, int] | None) -> str:
    return "none" if version is None else "{}.{}".format(*version)


def built() -> Versions:
    """Return the versions that the chosen extension modules were built against."""
    info = importlib.import_module("hostcall._build_info")
    return Versions(
        tensorflow=info.TENSORFLOW_VERSION,
        ffi_api=info.FFI_API_VERSION,
        python=info.PYTHON_VERSION,
        cxx11_abi=info.CXX11_ABI_FLAG,
    )


def found() -> Versions:
    """Return the versions in this process; raise an ImportError if TensorFlow is missing."""
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":  # TensorFlow is there, but a dependency is missing.
            raise
        raise ImportError(_NO_TENSORFLOW, name="tensorflow") from error
    return Versions(
        tensorflow=tf.__version__,
        ffi_api=_ffi_api(Path(tf.sysconfig.get_include(), "xla/ffi/api/c_api.h")),
        python="{}.{}".format(*sys.version_info),
        cxx11_abi=tf.sysconfig.CXX11_ABI_FLAG,
    )


def _ffi_api(header: Path) -> tuple[int, int] | None:
    """Read the FFI's version from the header that defines it; TensorFlow has it nowhere else."""
    if not header.is_file():
        return None
    text = header.read_text(encoding="utf-8")
    parts = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", text, re.MULTILINE))
    return (int(parts["MAJOR"]), int(parts["MINOR"])) if len(parts) == 2 else None
